"""Clients that a checkpoint remembers and that are not back yet: who they are, and what they had.

A client is known by its name. It takes its old place if it brings the same groups of the same
environment; what its environments were like then goes back to it, if there is a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from royale_client.wire.messages import Hello
from royale_client.wire.snapshots import SNAPSHOT
from royale_server.scheduler import Member, Role

States: TypeAlias = tuple[np.ndarray[Any, np.dtype[np.uint8]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One client of a checkpoint."""

    member: Member
    """Its part in the scheduler, absent until it is back."""
    env_id: str
    env_digest: str
    states: States = ()
    """Snapshot of each group's environments; empty if there is none."""

    def differs(self, hello: Hello) -> str | None:
        """Why this hello cannot take the place, or None."""
        sizes = tuple(group.size for group in self.member.groups)
        if Role(hello.role) is not Role.TRAIN:
            return f"has role {hello.role}, and trained before"
        if hello.groups != sizes:
            brought, had = _listed(hello.groups), _listed(sizes)
            return f"brings groups of {brought} environments, and had {had}"
        return None

    def states_for(self, hello: Hello) -> States:
        """What to put back into this client's environments; empty to begin fresh episodes."""
        return self.states if self.obstacle(hello) is None else ()

    def obstacle(self, hello: Hello) -> str | None:
        """Why this client's environments cannot be brought back, or None."""
        if (hello.env_id, hello.env_digest) != (self.env_id, self.env_digest):
            return f"it brings other environments than the {self.env_id} of the checkpoint"
        if not self.states:
            return "there is no snapshot of its environments"
        if SNAPSHOT not in hello.features:
            return "they cannot be restored"
        return None


@dataclass(slots=True)
class ReturningClients:
    """The clients of a checkpoint that are not back, by name."""

    _by_name: dict[str, Remembered] = field(default_factory=dict)

    def expect(self, remembered: Remembered) -> None:
        """Await a client, for the first time or again."""
        self._by_name[remembered.member.name] = remembered

    def get(self, name: str) -> Remembered | None:
        """The client of that name, if it is awaited."""
        return self._by_name.get(name)

    def take(self, name: str) -> Remembered | None:
        """The same, and await it no longer."""
        return self._by_name.pop(name, None)

    @property
    def places(self) -> dict[str, int]:
        """Slots of the places that are kept, by the name of who is awaited, in order."""
        return {name: self._by_name[name].member.size for name in sorted(self._by_name)}


def _listed(sizes: tuple[int, ...]) -> str:
    return " and ".join(str(size) for size in sizes)
