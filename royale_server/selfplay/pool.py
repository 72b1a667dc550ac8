"""Which snapshots of the policy there are, and which few of them play at one time.

Knows numbers of snapshots, which are the policy versions they were taken at. Never holds weights.

Battles are promised an episode ahead, so a snapshot that is to make place must stay until all it
was promised to are over, which may take longer than it takes to the next snapshot. Therefore one
makes place at a time, the one that has played longest, and the others go on being dealt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from algorithms.noise import Noise, Purpose, slot_key
from royale_server.selfplay.config import SelfPlayConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """What of a pool decides the future, beside its entries."""

    residents: tuple[int, ...] = ()
    """Snapshots that play or have battles to finish, in the order in which they were seated."""
    retiring: int | None = None
    """The one of them that makes place."""
    renewed_at: int = 0
    """The newest snapshot when one was last seated."""


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
        state: Which of them play.
    """

    def __init__(
        self,
        config: SelfPlayConfig,
        *,
        seed: int,
        entries: Sequence[int] = (),
        state: PoolState | None = None,
    ) -> None:
        saved = state or PoolState()
        self._config = config
        self._key = slot_key(seed, "pool", 0)
        self.entries = list(entries)
        """Snapshots kept, oldest first."""
        self._residents = list(saved.residents)
        self._retiring = saved.retiring
        self._renewed_at = saved.renewed_at

    @property
    def opponents(self) -> tuple[int, ...]:
        """Snapshots that further battles may be assigned to, in a fixed order."""
        return tuple(sorted(r for r in self._residents if r != self._retiring))

    def state(self) -> PoolState:
        """What decides the future, beside the entries."""
        return PoolState(
            residents=tuple(self._residents), retiring=self._retiring, renewed_at=self._renewed_at
        )

    def add(self, version: int, in_use: Collection[int]) -> PoolChange:
        """Count a new snapshot in.

        Args:
            version: Policy version it was taken at; more than that of any before.
            in_use: Snapshots that battles under way or assigned are played with.
        """
        self.entries.append(version)
        change = self.settle(in_use)
        return PoolChange(change.unseat, change.seat, self._thin_out())

    def settle(self, in_use: Collection[int]) -> PoolChange:
        """Fill the places that are free, and let one make place for what is newer.

        Args:
            in_use: As for `add`.
        """
        unseat = self._let_go(in_use)
        seat = self._fill(unseat)
        is_full = len(self._residents) >= self._config.max_resident
        if is_full and self._retiring is None and self.entries[-1] > self._renewed_at:
            self._retiring = self._residents[0]
        return PoolChange(unseat, seat)

    def wind_up(self, in_use: Collection[int]) -> PoolChange:
        """Keep only what battles under way are played with: no further ones need a snapshot.

        Args:
            in_use: As for `add`.
        """
        unseat = tuple(r for r in self._residents if r not in in_use)
        self._residents = [r for r in self._residents if r in in_use]
        self._retiring = None
        forget = tuple(entry for entry in self.entries if entry not in self._residents)
        self.entries = list(self._residents)
        return PoolChange(unseat=unseat, forget=forget)

    def _let_go(self, in_use: Collection[int]) -> tuple[int, ...]:
        """Let the one that makes place go, once its battles are over."""
        retired = self._retiring
        if retired is None or retired in in_use:
            return ()
        self._residents.remove(retired)
        self._retiring = None
        return (retired,)

    def _fill(self, retired: tuple[int, ...]) -> tuple[int, ...]:
        seated: list[int] = []
        while len(self._residents) < self._config.max_resident:
            chosen = self._choose(retired)
            if chosen is None:
                break
            self._residents.append(chosen)
            self._renewed_at = self.entries[-1]
            seated.append(chosen)
        return tuple(seated)

    def _choose(self, retired: tuple[int, ...]) -> int | None:
        """The newest snapshot or, half of the time, one of the past; both by keyed numbers."""
        free = [e for e in self.entries if e not in self._residents and e not in retired]
        if not free:
            return None
        newest = self.entries[-1]
        candidates = np.array(free, np.uint64)
        keys = np.full(len(free), self._key)
        noise = Noise(keys, candidates, np.full(len(free), newest, np.uint64))
        numbers = noise.bits(Purpose.SEATING, 1)[:, 0]
        is_due = free[-1] == newest and (bool(numbers[-1] & 1) or not self._residents)
        return newest if is_due else free[int(numbers.argmin())]

    def _thin_out(self) -> tuple[int, ...]:
        """Forget the oldest snapshots beyond the size; those that play and the newest stay."""
        excess = max(0, len(self.entries) - self._config.pool_size)
        kept = {*self._residents, self.entries[-1]}
        forget = [entry for entry in self.entries if entry not in kept][:excess]
        self.entries = [entry for entry in self.entries if entry not in forget]
        return tuple(forget)
