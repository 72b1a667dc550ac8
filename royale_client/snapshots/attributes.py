"""The state of Gymnasium's own environments and wrappers: their instance attributes, strictly.

Every attribute is either plain data and captured, or known to be a constant of its object, or an
obstacle. Which classes are known is a list of modules whose source was read for this; a class of
anybody else is never looked into.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd

from royale_client.driver import SnapshotError

_MODULES = frozenset(
    {
        "gymnasium.wrappers.common",
        "gymnasium.wrappers.stateful_action",
        "gymnasium.wrappers.stateful_observation",
        "gymnasium.wrappers.stateful_reward",
        "gymnasium.wrappers.transform_action",
        "gymnasium.wrappers.transform_observation",
        "gymnasium.wrappers.transform_reward",
        "gymnasium.wrappers.vector.common",
        "gymnasium.wrappers.vector.stateful_observation",
        "gymnasium.wrappers.vector.stateful_reward",
        "gymnasium.wrappers.vector.vectorize_action",
        "gymnasium.wrappers.vector.vectorize_observation",
        "gymnasium.wrappers.vector.vectorize_reward",
        "royale_client.envs.wrappers",
    }
)
_FAMILIES = ("gymnasium.envs.classic_control.", "gymnasium.envs.mujoco.")

# What stands for the same thing in every object built in the same way, or is only drawn with.
_CONSTANTS = frozenset(
    {
        "env",
        "spec",
        "_cached_spec",
        "_saved_kwargs",
        "_ezpickle_args",
        "_ezpickle_kwargs",
        "metadata",
        "_metadata",
        "render_mode",
        "screen",
        "screens",
        "clock",
        "surf",
        "isopen",
        # MuJoCo; the physics are read apart
        "fullpath",
        "model",
        "data",
        "mujoco_renderer",
        # Of PassiveEnvChecker: the result before, kept for a warning, and whether it was compared
        "_previous_data",
        "checked_data_reuse",
    }
)
# Readings of a clock that counts from elsewhere in another process.
_STARTS = frozenset({"episode_start_time", "episode_start_times"})


def is_known(kind: type) -> bool:
    """Say whether the attributes of a class are known to be its whole state."""
    return kind.__module__ in _MODULES or kind.__module__.startswith(_FAMILIES)


def read_attributes(owner: object) -> dict[str, Any]:
    """Return the attributes that are not constants; what is not plain is for the encoder to say."""
    return {
        name: _read(name, value)
        for name, value in vars(owner).items()
        if name not in _CONSTANTS and not _is_constant(value)
    }


def check_attributes(owner: object, saved: Mapping[str, Any]) -> None:
    """Refuse attributes that an object of this class could not have; changes nothing.

    Raises:
        SnapshotError: If one would replace a constant or a method.
    """
    for name, value in saved.items():
        mine = vars(owner).get(name, getattr(type(owner), name, None))
        takes = not (_is_constant(mine) or callable(mine) or hasattr(mine, "__get__"))
        if isinstance(mine, RunningMeanStd):
            takes = isinstance(value, Mapping) and value.keys() == vars(mine).keys()
        if not takes or name in _CONSTANTS or name.startswith("__"):
            raise SnapshotError(f"the snapshot sets {name} of {type(owner).__name__}")


def write_attributes(owner: object, saved: Mapping[str, Any]) -> None:
    """Give an object the attributes that `read_attributes` returned, and take away later ones."""
    mine = vars(owner)
    for name in [*read_attributes(owner)]:
        if name not in saved:
            del mine[name]
    now_s = time.perf_counter()
    for name, value in saved.items():
        if isinstance(mine.get(name), RunningMeanStd):
            vars(mine[name]).update(value)
        else:
            mine[name] = now_s - value if name in _STARTS else value
    if "_previous_data" in mine:
        # Its checks of the first steps need the objects of the ones before; they only ever warn.
        mine.update(_previous_data=None, checked_data_reuse=True, checked_step=True)


def read_random_state(env: object) -> dict[str, Any]:
    """Return the random generator that Gymnasium gives to an environment, and its seed."""
    return {name: vars(env)[name] for name in _RANDOM if name in vars(env)}


def write_random_state(env: object, saved: Mapping[str, Any]) -> None:
    """Give an environment the generator and seed that `read_random_state` returned."""
    vars(env).update({name: saved[name] for name in _RANDOM if name in saved})


_RANDOM = ("_np_random", "_np_random_seed")


def _read(name: str, value: Any) -> Any:  # noqa: ANN401 - attributes may be anything
    if name in _STARTS:
        return time.perf_counter() - value
    return vars(value) if type(value) is RunningMeanStd else value


def _is_constant(value: object) -> bool:
    if isinstance(value, FunctionType):
        # What Gymnasium's wrappers build for themselves remembers nothing; of others nobody knows.
        return value.__module__.startswith("gymnasium.")
    return isinstance(value, gymnasium.Space | EnvSpec | Enum | type | np.dtype | np.ufunc)
