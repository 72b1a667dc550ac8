"""Gymnasium's vector environment with a process per part, each of which captures itself.

An exception would end a part's process, so a part answers a refusal as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from royale_client.driver import SnapshotError
from royale_client.snapshots.encoding import pack, unpack
from royale_client.snapshots.layers import ClosedLayer, Layer, class_name
from royale_client.snapshots.stack import Stack

_MARK = "royale_part_snapshots"


class PartSnapshots(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets an environment in a process of its own be captured from outside, as its last wrapper.

    Args:
        env: The environment with all other wrappers on.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.metadata = {**env.metadata, _MARK: True}
        self.part_to_restore = b""
        self._stack = Stack(env)

    def part_obstacle(self) -> str | None:
        """Say what cannot be captured, or None."""
        return self._stack.obstacle()

    def part_snapshot(self) -> bytes | str:
        """Return the state, or a refusal."""
        try:
            return pack(self._stack.read())
        except SnapshotError as error:
            return str(error)

    def part_check(self) -> str | None:
        """Judge ``part_to_restore``; return a refusal or None."""
        return _refusal(self._stack.check, self.part_to_restore)

    def part_restore(self) -> str | None:
        """Take over ``part_to_restore``; return a refusal or None."""
        return _refusal(self._stack.write, self.part_to_restore)


class AsyncLayer:
    """An AsyncVectorEnv whose parts are all wrapped in `PartSnapshots`.

    Args:
        env: The vector environment.
    """

    def __init__(self, env: AsyncVectorEnv[Any, Any]) -> None:
        self.name = class_name(env)
        self._env = env

    def obstacle(self) -> str | None:
        """Ask the parts; return the first obstacle."""
        return next(filter(None, self._env.call("part_obstacle")), None)

    def read(self) -> dict[str, Any]:
        """Ask the parts for their states."""
        answers = self._env.call("part_snapshot")
        _raise_first(answer for answer in answers if isinstance(answer, str))
        return {"parts": list(answers)}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Hand the parts their states and let them judge."""
        parts = saved["parts"]
        if len(parts) != self._env.num_envs:
            raise SnapshotError(f"{len(parts)} environments, expected {self._env.num_envs}")
        self._env.set_attr("part_to_restore", list(parts))
        _raise_first(self._env.call("part_check"))

    def write(self, saved: Mapping[str, Any]) -> None:
        """Let the parts take over the states they judged."""
        _raise_first(self._env.call("part_restore"))


def async_layer(env: AsyncVectorEnv[Any, Any]) -> Layer:
    """Return an AsyncVectorEnv as a layer, if its parts can be asked."""
    if getattr(env, "worker", None) is not None or not env.metadata.get(_MARK):
        return ClosedLayer(
            env,
            "its parts live in other processes and cannot be asked; use a SyncVectorEnv, or "
            "royale-env-client gym --vectorization async",
        )
    if env.autoreset_mode is AutoresetMode.NEXT_STEP:
        return ClosedLayer(env, "with autoreset NEXT_STEP its processes remember what is not shown")
    return AsyncLayer(env)


def _refusal(act: Callable[[Any], None], state: bytes) -> str | None:
    try:
        act(unpack(state))
    # A class of somebody else may raise anything, and no exception may leave this process.
    except Exception as error:
        return str(error) if isinstance(error, SnapshotError) else repr(error)
    return None


def _raise_first(refusals: Any) -> None:  # noqa: ANN401 - an iterable of texts and None
    refusal = next(filter(None, refusals), None)
    if refusal is not None:
        raise SnapshotError(refusal)
