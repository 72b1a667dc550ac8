"""One layer of an environment: a wrapper, or the environment at the bottom.

A layer is read by the first way that fits: the two methods its class offers, its attributes if it
is Gymnasium's own or ours, or not at all. What is captured of it is plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import VectorEnv, VectorWrapper

from royale_client.driver import SnapshotError
from royale_client.snapshots import encoding
from royale_client.snapshots.attributes import (
    check_attributes,
    is_known,
    read_attributes,
    read_random_state,
    write_attributes,
    write_random_state,
)

READ_METHOD = "snapshot_state"
WRITE_METHOD = "restore_state"

_REMEDY = f"a class with {READ_METHOD}() and {WRITE_METHOD}(state) can be, see docs/extending.md"


class Layer(Protocol):
    """One layer, and what can be done with its state."""

    name: str
    """Module and class."""

    def obstacle(self) -> str | None:
        """Say why the state cannot be captured, or None."""

    def read(self) -> dict[str, Any]:
        """Return the state: plain data, perhaps views of what goes on changing."""

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse a state that is not of such a layer, changing nothing."""

    def write(self, saved: Mapping[str, Any]) -> None:
        """Put the layer into a state that was checked."""


class OwnLayer:
    """A layer whose class says itself what its state is.

    The random generator that Gymnasium gives every environment is added, whatever it says.

    Args:
        owner: The environment or wrapper.
    """

    def __init__(self, owner: Any) -> None:  # noqa: ANN401 - a class of somebody else
        self.name = class_name(owner)
        self._owner = owner
        self._has_random_state = not isinstance(owner, gymnasium.Wrapper | VectorWrapper)

    def obstacle(self) -> str | None:
        """Return None: whether the state is plain shows when there is one."""

    def read(self) -> dict[str, Any]:
        """Ask for the state."""
        try:
            state = getattr(self._owner, READ_METHOD)()
        # Code of somebody else may raise anything.
        except Exception as error:
            raise SnapshotError(f"{self.name}.{READ_METHOD}() raised {error!r}") from error
        if not isinstance(state, Mapping):
            raise SnapshotError(
                f"{self.name}.{READ_METHOD}() returned a {type(state).__name__}, expected a mapping"
            )
        captured: dict[str, Any] = {"state": dict(state)}
        if self._has_random_state:
            captured["random"] = read_random_state(self._owner)
        unfit = encoding.obstacle(captured["state"])
        if unfit is not None:
            raise SnapshotError(f"{self.name}.{READ_METHOD}(): {unfit}")
        return captured

    def check(self, saved: Mapping[str, Any]) -> None:
        """Leave judging to the class itself."""

    def write(self, saved: Mapping[str, Any]) -> None:
        """Hand over the state."""
        getattr(self._owner, WRITE_METHOD)(saved["state"])
        if self._has_random_state:
            write_random_state(self._owner, saved["random"])


class KnownLayer:
    """A layer of Gymnasium or of ours, whose attributes are its state.

    Args:
        owner: The environment or wrapper.
    """

    def __init__(self, owner: object) -> None:
        self.name = class_name(owner)
        self._owner = owner

    def obstacle(self) -> str | None:
        """Name the first attribute that is neither plain data nor a constant."""
        unfit = encoding.obstacle(read_attributes(self._owner))
        if unfit is None:
            return None
        return f"{self.name} cannot be snapshotted: {unfit}; {_REMEDY}"

    def read(self) -> dict[str, Any]:
        """Return the attributes."""
        return {"attributes": read_attributes(self._owner)}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse attributes that the class cannot have."""
        check_attributes(self._owner, saved["attributes"])

    def write(self, saved: Mapping[str, Any]) -> None:
        """Replace the attributes."""
        write_attributes(self._owner, saved["attributes"])


class MujocoLayer(KnownLayer):
    """A MuJoCo environment of Gymnasium: its attributes and its physics.

    Args:
        owner: The environment, without wrappers.
    """

    def __init__(self, owner: Any) -> None:  # noqa: ANN401 - MuJoCo has no types
        from royale_client.snapshots.mujoco_state import Physics

        super().__init__(owner)
        self._physics = Physics(owner.model, owner.data)

    def obstacle(self) -> str | None:
        """Name what of the attributes or of the model cannot be captured."""
        unfit = self._physics.obstacle()
        if unfit is not None:
            return f"{self.name} cannot be snapshotted: {unfit}"
        return super().obstacle()

    def read(self) -> dict[str, Any]:
        """Return attributes and physics."""
        return {**super().read(), "physics": self._physics.read()}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse the physics of another model, too."""
        super().check(saved)
        self._physics.check(saved["physics"])

    def write(self, saved: Mapping[str, Any]) -> None:
        """Replace attributes and physics."""
        super().write(saved)
        self._physics.write(saved["physics"])


class ClosedLayer:
    """A layer whose state nobody knows.

    Args:
        owner: The environment or wrapper.
        why: Why not, as the end of a sentence.
    """

    def __init__(self, owner: object, why: str) -> None:
        self.name = class_name(owner)
        self._sentence = f"{self.name} cannot be snapshotted: {why}"

    def obstacle(self) -> str | None:
        """Return why not."""
        return self._sentence

    def read(self) -> dict[str, Any]:
        """Refuse."""
        raise SnapshotError(self._sentence)

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse."""
        raise SnapshotError(self._sentence)

    def write(self, saved: Mapping[str, Any]) -> None:
        """Refuse."""
        raise SnapshotError(self._sentence)


def layer_of(owner: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> Layer:
    """Return one environment or wrapper, without what it wraps, as a layer."""
    kind = type(owner)
    offers = [callable(getattr(kind, name, None)) for name in (READ_METHOD, WRITE_METHOD)]
    if all(offers):
        return OwnLayer(owner)
    if any(offers):
        has, lacks = (READ_METHOD, WRITE_METHOD)[:: 1 if offers[0] else -1]
        return ClosedLayer(owner, f"it has {has}() but no {lacks}()")
    if not is_known(kind):
        return ClosedLayer(owner, f"its state is not known; {_REMEDY}")
    if kind.__module__.startswith("gymnasium.envs.mujoco."):
        return MujocoLayer(owner)
    return KnownLayer(owner)


def class_name(owner: object) -> str:
    """Return module and class of an object."""
    return f"{type(owner).__module__}.{type(owner).__qualname__}"
