"""A whole environment, from its outermost wrapper down to the bottom, as one state.

It never changes what it is given, except in `write`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from royale_client.driver import SnapshotError
from royale_client.driver_serial import SerialVectorEnv
from royale_client.snapshots.layers import Layer, class_name, layer_of


class Stack:
    """An environment and all that wraps it.

    Args:
        env: The outermost wrapper; single or vector.
    """

    def __init__(self, env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> None:
        self._layers: list[Layer] = []
        inner: Any = env
        while isinstance(inner, gymnasium.Wrapper | VectorWrapper):
            self._layers.append(layer_of(inner))
            inner = inner.env
        self._layers.append(_bottom(inner))

    def obstacle(self) -> str | None:
        """Say what of it cannot be captured and what to do about it, or None."""
        return next(filter(None, (layer.obstacle() for layer in self._layers)), None)

    def read(self) -> list[Any]:
        """Return the state of every layer under its name.

        Raises:
            SnapshotError: If a layer cannot be captured.
        """
        return [(layer.name, layer.read()) for layer in self._layers]

    def check(self, saved: Sequence[Any]) -> None:
        """Refuse a state that `read` of such a stack cannot have returned, changing nothing.

        Raises:
            SnapshotError: Names the layers that differ.
        """
        got = [name for name, _ in saved]
        expected = [layer.name for layer in self._layers]
        if got != expected:
            raise SnapshotError(
                f"the snapshot is of other wrappers: got {' around '.join(map(str, got))}, "
                f"expected {' around '.join(expected)}"
            )
        for layer, (_, state) in zip(self._layers, saved, strict=True):
            layer.check(state)

    def write(self, saved: Sequence[Any]) -> None:
        """Put every layer into a state that was checked, the bottom first."""
        for layer, (_, state) in reversed(list(zip(self._layers, saved, strict=True))):
            layer.write(state)


class SyncLayer:
    """Gymnasium's vector environment that steps single ones in this process.

    Its buffers of observations are written before they are read, so they are no state.

    Args:
        env: The vector environment.
    """

    def __init__(self, env: SyncVectorEnv[Any, Any]) -> None:
        self.name = class_name(env)
        self._env = env
        self._stacks = [Stack(part) for part in env.envs]

    def obstacle(self) -> str | None:
        """Return the first obstacle of its parts."""
        return next(filter(None, (stack.obstacle() for stack in self._stacks)), None)

    def read(self) -> dict[str, Any]:
        """Return its flags and the state of every part."""
        flags = {name: getattr(self._env, name) for name in _SYNC_FLAGS}
        return {"flags": flags, "parts": [stack.read() for stack in self._stacks]}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse another number of parts, and whatever a part refuses."""
        shapes = {name: getattr(self._env, name).shape for name in _SYNC_FLAGS}
        if {name: flags.shape for name, flags in saved["flags"].items()} != shapes:
            raise SnapshotError("the snapshot is of another vector environment")
        for stack, state in zip(self._stacks, saved["parts"], strict=True):
            stack.check(state)

    def write(self, saved: Mapping[str, Any]) -> None:
        """Put flags and parts into a checked state."""
        for name in _SYNC_FLAGS:
            setattr(self._env, name, saved["flags"][name])
        for stack, state in zip(self._stacks, saved["parts"], strict=True):
            stack.write(state)


_SYNC_FLAGS = ("_rewards", "_terminations", "_truncations", "_autoreset_envs")


def _bottom(env: Any) -> Layer:  # noqa: ANN401 - single or vector, of anybody
    if type(env) in (SyncVectorEnv, SerialVectorEnv):
        return SyncLayer(env)
    if type(env) is AsyncVectorEnv:
        from royale_client.snapshots.async_layer import async_layer

        return async_layer(env)
    return layer_of(env)
