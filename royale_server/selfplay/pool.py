"""Which snapshots of the policy there are, and which few of them play at one time.

Knows numbers of snapshots, which are the policy versions they were taken at. Never holds weights.
A snapshot that is to play no longer stays until the battles it was promised to are over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from algorithms.noise import Noise, Purpose, slot_key
from royale_server.selfplay.config import SelfPlayConfig


@dataclass(frozen=True, slots=True)
class PoolChange:
    """What the keeper of the weights has to do, in this order."""

    unseat: tuple[int, ...] = ()
    """Snapshots that play no longer."""
    seat: tuple[int, ...] = ()
    """Snapshots that play from now on."""
    forget: tuple[int, ...] = ()
    """Snapshots that are kept no longer."""


class Pool:
    """The snapshots of a run.

    Args:
        config: Settings.
        seed: Seed of the run.
        entries: Snapshots there are already, ascending.
        residents: Those of them that play.
    """

    def __init__(
        self,
        config: SelfPlayConfig,
        *,
        seed: int,
        entries: Sequence[int] = (),
        residents: Sequence[int] = (),
    ) -> None:
        self._config = config
        self._key = slot_key(seed, "pool", 0)
        self.entries = list(entries)
        """Snapshots kept, oldest first."""
        self.residents = list(residents)
        """Snapshots that play or have battles to finish, in the order in which they were seated."""
        self._wanted = self._choose()

    @property
    def opponents(self) -> tuple[int, ...]:
        """Snapshots that further battles may be assigned to, in a fixed order."""
        return tuple(sorted(set(self.residents) & set(self._wanted)))

    @property
    def is_settled(self) -> bool:
        """Whether exactly those play that should."""
        return set(self.residents) == set(self._wanted)

    def add(self, version: int, in_use: Collection[int]) -> PoolChange:
        """Count a new snapshot in.

        Args:
            version: Policy version it was taken at; more than that of any before.
            in_use: Snapshots that battles under way or assigned are played with.
        """
        self.entries.append(version)
        self._wanted = self._choose()
        change = self.settle(in_use)
        return PoolChange(change.unseat, change.seat, self._thin_out())

    def settle(self, in_use: Collection[int]) -> PoolChange:
        """Let those play that should, as far as others have finished."""
        unseat = [r for r in self.residents if r not in self._wanted and r not in in_use]
        self.residents = [r for r in self.residents if r not in unseat]
        room = max(0, self._config.max_resident - len(self.residents))
        seat = [w for w in self._wanted if w not in self.residents][:room]
        self.residents += seat
        return PoolChange(tuple(unseat), tuple(seat))

    def _choose(self) -> list[int]:
        """The newest snapshot, and others of its past by keyed numbers; anew with each snapshot."""
        if not self.entries:
            return []
        newest, older = self.entries[-1], np.array(self.entries[:-1], np.uint64)
        keys = np.full(len(older), self._key)
        noise = Noise(keys, older, np.full(len(older), newest, np.uint64))
        order = np.argsort(noise.bits(Purpose.SEATING, 1)[:, 0], kind="stable")
        return [newest, *older[order][: self._config.max_resident - 1].tolist()]

    def _thin_out(self) -> tuple[int, ...]:
        """Forget the oldest snapshots beyond the size that neither play nor are about to."""
        excess = max(0, len(self.entries) - self._config.pool_size)
        kept = {*self.residents, *self._wanted}
        forget = [entry for entry in self.entries if entry not in kept][:excess]
        self.entries = [entry for entry in self.entries if entry not in forget]
        return tuple(forget)
