"""The three autoreset rules of Gymnasium's vector environments, turned into one meaning.

Each rule steps the environments and reports a Transition: which rows ended, with which true last
observation, and which rows now have an observation to act on. The rule is read from the
environment's metadata and never guessed.

    NEXT_STEP   an ended row is reset by the *next* step, which ignores its action: in between the
                row does not ask
    SAME_STEP   an ended row is reset by the same step; its last observation comes in the infos
    DISABLED    an ended row is reset by us, by a mask, right after the step
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from royale_client.driver import (
    BoolArray,
    EnvContractError,
    EnvValue,
    FloatArray,
    Leaves,
    take_rows,
)
from royale_client.driver_infos import FINAL_INFO_KEY, MaskReader, final_rows
from royale_client.driver_leaves import BatchReader
from royale_client.wire.errors import ConfigError

AnyVectorEnv = VectorEnv[Any, Any, Any]


_BOOL = np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)
_NOBODY: npt.NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True)
class Transition:
    """What one step of a vector environment came to, n rows, e of them ended.

    Its arrays may be the environment's own, to be overwritten by the next step or reset.
    """

    observations: Leaves
    """Current observation of every row, shape ``[n, ...]``."""
    rewards: FloatArray
    """Shape ``[n]``; 0 in rows that did not act."""
    terminated: BoolArray
    """Shape ``[n]``."""
    truncated: BoolArray
    """Shape ``[n]``."""
    ended: npt.NDArray[np.int64]
    """Indices of the ended rows, shape ``[e]``."""
    final_observations: Leaves
    """True last observations of the ended rows, shape ``[e, ...]``; empty tuple if none ended."""
    final_infos: Mapping[Any, Any]
    """Infos of the steps in which the ended rows ended."""
    asking: BoolArray | None
    """Rows with an observation to act on, shape ``[n]``; None for all."""


class Autoreset(Protocol):
    """One rule: steps the environments and reports the transition."""

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        """Step every environment.

        Args:
            actions: Batched action as the environment wants it.
            acted: Rows whose action is a real one, shape ``[n]``; None for all.
        """


def autoreset_mode(env: AnyVectorEnv, declared: str | None) -> AutoresetMode:
    """Return the rule of a vector environment from what it or its user declares.

    Args:
        env: The environment; its metadata is asked.
        declared: The user's word, which wins: ``next_step``, ``same_step`` or ``disabled``.

    Raises:
        ConfigError: If neither says a known rule.
    """
    said = declared or (env.metadata or {}).get("autoreset_mode")
    if isinstance(said, AutoresetMode):
        return said
    wanted = str(getattr(said, "value", said)).replace("_", "").lower()
    for mode in AutoresetMode:
        if mode.value.lower() == wanted:
            return mode
    raise ConfigError(
        f"vector environment {env}: metadata['autoreset_mode'] is {said!r}, expected NEXT_STEP, "
        "SAME_STEP or DISABLED; a wrong guess would train on frames that never happened, so say "
        "it: --autoreset-mode next_step|same_step|disabled (serve_env: autoreset_mode=...)"
    )


def make_autoreset(
    mode: AutoresetMode, env: AnyVectorEnv, reader: BatchReader, masks: MaskReader | None
) -> Autoreset:
    """Return the rule ``mode`` for an environment."""
    rules: dict[AutoresetMode, type[_Rule]] = {
        AutoresetMode.NEXT_STEP: _NextStep,
        AutoresetMode.SAME_STEP: _SameStep,
        AutoresetMode.DISABLED: _Disabled,
    }
    return rules[mode](env, reader, masks)


class _Rule(ABC):
    """What the three rules share: one step, with everything checked once.

    A step that ends no episode means the same under every rule; a rule only says what happens in
    one that does.
    """

    def __init__(self, env: AnyVectorEnv, reader: BatchReader, masks: MaskReader | None) -> None:
        self._env = env
        self._rows = (env.num_envs,)
        self._reader = reader
        self._masks = masks

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        """Step every environment; see `Autoreset.step`."""
        observations, rewards, terminated, truncated, infos = self._env.step(actions)
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        transition = Transition(
            rewards=self._rewards(rewards),
            observations=self._reader.read(observations),
            terminated=terminated,
            truncated=truncated,
            ended=_NOBODY,
            final_observations=(),
            final_infos={},
            asking=None,
        )
        raw_ended = terminated | truncated
        if acted is not None:
            transition.rewards = np.where(acted, transition.rewards, 0.0)
        # Several times cheaper than ``any()`` of an array as small as most are.
        if 1 in raw_ended.tobytes():
            ended = raw_ended
            if acted is not None:
                transition.terminated = terminated & acted
                transition.truncated = truncated & acted
                ended = raw_ended & acted
            transition.ended = ended.nonzero()[0]
            self._end(transition, _as_mapping(infos), raw_ended)
        elif self._masks is not None:
            self._masks.update(_as_mapping(infos), None)
        return transition

    @abstractmethod
    def _end(self, transition: Transition, infos: Mapping[Any, Any], raw_ended: BoolArray) -> None:
        """Complete a transition in which some episode ended.

        Args:
            transition: What every rule knows of it.
            infos: Infos of the step.
            raw_ended: Rows that the environment says have ended, whoever acted; shape ``[n]``.
        """

    def _flags(self, name: str, value: EnvValue) -> BoolArray:
        if type(value) is np.ndarray and value.dtype == _BOOL and value.shape == self._rows:
            return value
        flags = np.asarray(value)
        if flags.shape != self._rows or flags.dtype.kind not in "biu":
            raise EnvContractError(
                f"{name}: got shape {flags.shape} of dtype {flags.dtype}, expected "
                f"({self._env.num_envs},) bools"
            )
        return flags.astype(np.bool_)

    def _rewards(self, value: EnvValue) -> FloatArray:
        if type(value) is np.ndarray and value.dtype == _FLOAT64 and value.shape == self._rows:
            return value
        rewards = np.asarray(value)
        if rewards.shape != self._rows or rewards.dtype.kind not in "biuf":
            raise EnvContractError(
                f"reward: got shape {rewards.shape} of dtype {rewards.dtype}, expected "
                f"({self._env.num_envs},) numbers, one per environment"
            )
        return rewards.astype(np.float64)


class _NextStep(_Rule):
    """The environment resets an ended row in the step after, where nobody acts in it."""

    def _end(self, transition: Transition, infos: Mapping[Any, Any], raw_ended: BoolArray) -> None:
        transition.asking = ~raw_ended
        if self._masks is not None:
            self._masks.update(infos, transition.asking)
        transition.final_infos = infos
        if len(transition.ended):
            transition.final_observations = take_rows(transition.observations, transition.ended)


class _SameStep(_Rule):
    """The environment resets an ended row at once and leaves its last observation in the infos."""

    def _end(self, transition: Transition, infos: Mapping[Any, Any], raw_ended: BoolArray) -> None:
        if self._masks is not None:
            self._masks.update(infos, None)
        transition.final_observations = final_rows(infos, self._reader, transition.ended)
        final_infos = infos.get(FINAL_INFO_KEY)
        if isinstance(final_infos, Mapping):
            transition.final_infos = final_infos


class _Disabled(_Rule):
    """We reset ended rows ourselves, so that no step and no request is spent on it."""

    def _end(self, transition: Transition, infos: Mapping[Any, Any], raw_ended: BoolArray) -> None:
        # Copied before the reset, which may write into the same buffers.
        transition.final_observations = take_rows(transition.observations, transition.ended)
        transition.rewards = transition.rewards.copy()
        transition.terminated = transition.terminated.copy()
        transition.truncated = transition.truncated.copy()
        transition.final_infos = infos
        if self._masks is not None:
            self._masks.update(infos, ~raw_ended)
        value, reset_infos = self._env.reset(options={"reset_mask": raw_ended.copy()})
        if self._masks is not None:
            self._masks.update(reset_infos, raw_ended)
        transition.observations = self._reader.read(value)


def _as_mapping(infos: EnvValue) -> Mapping[Any, Any]:
    """Return infos, or an empty mapping in place of what is none."""
    # Asked first, since asking for any mapping takes as long as a whole array operation.
    if type(infos) is dict:
        return infos
    return infos if isinstance(infos, Mapping) else {}
