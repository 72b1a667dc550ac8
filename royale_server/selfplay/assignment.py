"""Who sits in each seat of a battle: a pure function of seed, client, environment and episode.

Mixtures are counts, not draws, so that a small client meets each kind of opponent as often as it
should. Numbers are keyed, as those of actions are: nothing is drawn from a generator. Never knows
which snapshots there are; it is told those that may play.

What holds:

- Among the battles of a client's first k episodes (k in each of its E environments), ``mirror`` are
  the share times k E, rounded half up, and of the rest ``pool`` are in proportion to pool and
  scripted, rounded alike. So each single episode's counts are that of the share to within one, and
  no rounding adds up.
- Who sits where in a client's battles depends on nothing that another client does: clients may come
  and go. It does depend on the client's own number of environments.
- Which opponent plays depends on the snapshots that may play when the battle is assigned. The kind
  of the battle and the learner's seat do not, and the noise of actions depends on neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from algorithms.noise import Noise, Purpose, slot_key
from royale_server.selfplay.config import SHARES, SelfPlayConfig

UIntArray = npt.NDArray[np.uint64]

_LAYOUT, _SEAT, _OPPONENT = range(3)
"""Lanes of an environment's numbers: its place, the learner's seat, who sits in the others."""
_LANES = 3
_HALF = Fraction(1, 2)
_KEPT = 512
"""Episodes whose layout is remembered; the environments of a client are rarely far apart."""


@dataclass(frozen=True, slots=True)
class Table:
    """Where battles are fought: the environments with several seats of one client."""

    client: str
    """Name of the client."""
    seats: tuple[int, ...]
    """Number of seats of each environment, 2 or more."""
    bots: tuple[str, ...]
    """Scripted bots that may play there."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who sits in the seats of one battle."""

    learner_seat: int | None = None
    """The only seat of the policy that learns; None: it plays every seat."""
    snapshot: int | None = None
    """The snapshot in the other seats, if it is one."""
    bot: str | None = None
    """The scripted bot in the other seats, if it is one."""


MIRROR = Assignment()


class Dealer(Protocol):
    """Says who plays what."""

    def assign(
        self, table: Table, environment: int, episode: int, snapshots: Sequence[int]
    ) -> Assignment:
        """See `AssignmentSource.assign`."""


class AssignmentSource:
    """Deals battles.

    Args:
        config: Settings.
        seed: Seed of the run.
    """

    def __init__(self, config: SelfPlayConfig, *, seed: int) -> None:
        self._shares = config.shares
        self._seed = seed
        self._laid_out = lru_cache(maxsize=_KEPT)(self._lay_out)
        self._keys = lru_cache(maxsize=_KEPT)(self._make_keys)

    def assign(
        self, table: Table, environment: int, episode: int, snapshots: Sequence[int]
    ) -> Assignment:
        """Say who plays one battle.

        Args:
            table: The client's environments.
            environment: Which of them.
            episode: Ordinal of the episode in it, from 0.
            snapshots: Those that may play, in a fixed order.
        """
        kinds, numbers = self._laid_out(table, episode)
        kind = kinds[environment]
        if kind == "pool" and not snapshots:
            kind = "scripted"
        if kind == "mirror" or (kind == "scripted" and not table.bots):
            return MIRROR
        seat = int(numbers[environment, _SEAT]) % table.seats[environment]
        draw = int(numbers[environment, _OPPONENT])
        if kind == "pool":
            return Assignment(learner_seat=seat, snapshot=snapshots[draw % len(snapshots)])
        return Assignment(learner_seat=seat, bot=table.bots[draw % len(table.bots)])

    def counts(self, num_environments: int, episode: int) -> dict[str, int]:
        """How many battles of one episode are of each kind, by the names in ``SHARES``."""
        before = self._counts_up_to(num_environments * episode)
        after = self._counts_up_to(num_environments * (episode + 1))
        return {name: after[name] - before[name] for name in SHARES}

    def _counts_up_to(self, battles: int) -> dict[str, int]:
        mirror = _half_up(self._shares["mirror"] * battles)
        rest = battles - mirror
        others = self._shares["pool"] + self._shares["scripted"]
        pool = _half_up(self._shares["pool"] / others * rest) if others else 0
        return {"mirror": mirror, "pool": pool, "scripted": rest - pool}

    def _lay_out(self, table: Table, episode: int) -> tuple[list[str], UIntArray]:
        """The kind of each environment's battle in one episode, and its keyed numbers."""
        keys = self._keys(table.client, len(table.seats))
        episodes = np.full(len(keys), episode, np.uint64)
        noise = Noise(keys, episodes, np.zeros(len(keys), np.uint64))
        numbers = noise.bits(Purpose.SEATING, _LANES)
        places = np.argsort(numbers[:, _LAYOUT], kind="stable")
        kinds = [""] * len(keys)
        counts = self.counts(len(keys), episode)
        dealt = [name for name in SHARES for _ in range(counts[name])]
        for place, kind in zip(places.tolist(), dealt, strict=True):
            kinds[place] = kind
        return kinds, numbers

    def _make_keys(self, client: str, count: int) -> UIntArray:
        return np.array([slot_key(self._seed, client, i) for i in range(count)], np.uint64)


def _half_up(number: Fraction) -> int:
    return math.floor(number + _HALF)
