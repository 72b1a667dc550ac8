"""Who plays each slot now and next, for all clients.

Columns over slots. In them 0 is the learner, a positive number the snapshot of that policy version,
and -1, -2, … the scripted bots in the order in which they were met. Slots of environments with one
seat, and of clients that follow no assignments, are the learner's for ever and cost nothing.

An environment always knows its running episode and the next one, so that no reset waits for the
server; the one after is dealt when an episode ends. Pure; knows clients by whatever key they have.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from royale_client.wire.errors import ContractError
from royale_client.wire.seating import Player, SeatAssignment
from royale_server.selfplay.assignment import Assignment, Dealer, Table
from royale_server.selfplay.pool import Pool, PoolState

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

LEARNER = 0
NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSeating:
    """What of the book and the pool decides the future, beside who plays now. S slots."""

    bots: tuple[str, ...]
    pool: PoolState
    next_seats: IntArray
    """Who plays each slot's next episode, ``(S,)``."""
    unsent: BoolArray
    """Slots whose next episode the client was not told about, ``(S,)``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which seats of which environments a client's slots are."""

    table: Table
    environment: IntArray
    """Environment of each slot in the table; -1 for those of one seat. ``(n,)``"""
    slots: tuple[IntArray, ...]
    """Slots of each environment of the table, seat by seat."""

    @classmethod
    def of(
        cls, client: str, environments: IntArray, seats: IntArray, bots: Sequence[str]
    ) -> Layout:
        """Lay out a client.

        Args:
            client: Its name.
            environments: Environment of each slot, ``(n,)``.
            seats: Seat of each slot in it, ``(n,)``.
            bots: Bots that may play there.
        """
        found: dict[int, list[int]] = {}
        for slot in np.lexsort((seats, environments)).tolist():
            found.setdefault(int(environments[slot]), []).append(slot)
        shared = [np.array(slots) for slots in found.values() if len(slots) > 1]
        index = np.full(len(environments), NOWHERE)
        for i, slots in enumerate(shared):
            index[slots] = i
        table = Table(client, tuple(len(slots) for slots in shared), tuple(bots))
        return cls(table, index, tuple(shared))


@dataclass(slots=True)
class _Seated:
    """A client at the table. n slots."""

    layout: Layout
    first: int
    """Number of its first slot."""
    fresh: tuple[IntArray, IntArray] | None
    """Who plays the first two episodes if they begin afresh, as it was told, until it is known
    whether they do. Each ``(n,)``."""


class SeatBook:
    """Keeps who plays each slot.

    Args:
        source: Deals battles.
        pool: Says which snapshots may play.
    """

    def __init__(self, source: Dealer, pool: Pool) -> None:
        self._source = source
        self._pool = pool
        self._bots: list[str] = []
        self._seated: dict[Hashable, _Seated] = {}
        self._current = np.zeros(0, np.int64)
        self._next = np.zeros(0, np.int64)
        self._unsent = np.zeros(0, np.bool_)

    def __contains__(self, client: Hashable) -> bool:
        return client in self._seated

    @property
    def clients(self) -> tuple[Hashable, ...]:
        """Who is at the table."""
        return tuple(self._seated)

    # --- coming and going -------------------------------------------------------------------

    def add_slots(self, count: int) -> None:
        """Follow further slots, in the order in which they are numbered. The learner has them."""
        more = np.zeros(count, np.int64)
        self._current = np.concatenate([self._current, more])
        self._next = np.concatenate([self._next, more])
        self._unsent = np.concatenate([self._unsent, np.zeros(count, np.bool_)])

    def welcome(
        self, client: Hashable, layout: Layout, first: int, episode: int
    ) -> list[SeatAssignment]:
        """Deal the first two episodes of a client, should they begin afresh.

        Args:
            client: Its key.
            layout: Its seats; with an environment of several.
            first: Number of its first slot.
            episode: Ordinal of the first of them.

        Returns:
            What it is to be told.
        """
        fresh = self._deal_all(layout, episode), self._deal_all(layout, episode + 1)
        self._seated[client] = _Seated(layout, first, fresh)
        slots = np.flatnonzero(layout.environment != NOWHERE)
        return [
            self._told(slot, episode + later, int(seats[slot]))
            for later, seats in enumerate(fresh)
            for slot in slots.tolist()
        ]

    def begin_afresh(self, client: Hashable) -> None:
        """All episodes of a client begin as it was told in its welcome."""
        seated = self._seated[client]
        assert seated.fresh is not None, "episodes begin afresh once in a session"
        slots = slice(seated.first, seated.first + len(seated.layout.environment))
        self._current[slots], self._next[slots] = seated.fresh
        self._unsent[slots] = False
        seated.fresh = None

    def go_on(self, client: Hashable) -> None:
        """The episodes of a client go on where they were."""
        self._seated[client].fresh = None

    def leave(self, client: Hashable, slots: slice) -> None:
        """A client is gone, or awaited no longer; nobody plays in its slots."""
        self._seated.pop(client, None)
        self._current[slots] = self._next[slots] = LEARNER
        self._unsent[slots] = False

    # --- episodes ---------------------------------------------------------------------------

    def ended(
        self, client: Hashable, start: int, ended: BoolArray, asks: BoolArray, episodes: IntArray
    ) -> None:
        """Episodes ended in a group: who was to play next plays now, and the one after is dealt.

        Args:
            client: Its key.
            start: Number of the group's first slot.
            ended: Rows that ended, ``(n,)``.
            asks: Rows that ask, ``(n,)``.
            episodes: Ordinals of the episodes they were, ``(n,)``.

        Raises:
            ContractError: Some seats of an environment ended and others go on.
        """
        seated = self._seated[client]
        offset = start - seated.first
        places = seated.layout.environment[offset : offset + len(ended)]
        over = np.unique(places[ended & (places != NOWHERE)]).tolist()
        if asks.any():
            self._check_whole(seated.layout, over, ended, offset)
        for environment in over:
            slots = seated.layout.slots[environment]
            # Read from the seat that ended: of one that a bot plays the ordinal is the same.
            episode = int(episodes[slots[0] - offset]) + 2
            dealt = self._deal(seated.layout.table, environment, episode)
            self._current[seated.first + slots] = self._next[seated.first + slots]
            self._next[seated.first + slots] = dealt
            self._unsent[seated.first + slots] = True

    def check_asking(self, start: int, asks: BoolArray) -> None:
        """Refuse rows that ask although a bot of their client plays them.

        Args:
            start: Number of the group's first slot.
            asks: Rows that ask, ``(n,)``.

        Raises:
            ContractError: Naming the first of them.
        """
        wrong = asks & (self._current[start : start + len(asks)] < LEARNER)
        if wrong.any():
            row = int(wrong.argmax())
            raise ContractError(
                "a row asks for an action although a scripted bot plays its seat",
                where=f"step, row {row}",
                got="an asking row",
                expected=f"the client to play {self.describe(start + row)} itself",
                remedy="follow the assignments, or do not declare the feature 'assignments'",
            )

    def seats(self, slots: slice) -> IntArray | None:
        """Return who plays these slots now, as a copy; None if the learner plays all of them."""
        seats = self._current[slots]
        return seats.copy() if seats.any() else None

    def describe(self, slot: int) -> str:
        """Name who plays a slot now, for people."""
        told = self._told(0, 0, int(self._current[slot]))
        return f"{told.player.value} {told.name}".rstrip()

    def opponent_of(self, client: Hashable, slot: int) -> str:
        """Name who plays the first other seat of a slot's environment, for people; "" if none."""
        seated = self._seated[client]
        environment = int(seated.layout.environment[slot - seated.first])
        if environment == NOWHERE:
            return ""
        others = seated.first + seated.layout.slots[environment]
        return self.describe(int(others[others != slot][0]))

    def take_unsent(self, client: Hashable, start: int, episodes: IntArray) -> list[SeatAssignment]:
        """Return what the answer to a group tells of episodes after the next, once.

        Args:
            client: Its key.
            start: Number of the group's first slot.
            episodes: Ordinals of the running episodes, ``(n,)``.
        """
        slots = slice(start, start + len(episodes))
        rows = self._unsent[slots].nonzero()[0].tolist()
        self._unsent[slots] = False
        offset = start - self._seated[client].first
        return [
            self._told(offset + row, int(episodes[row]) + 1, int(self._next[start + row]))
            for row in rows
        ]

    def in_use(self) -> set[int]:
        """Snapshots that play, or are promised to somebody."""
        used = {*np.unique(self._current).tolist(), *np.unique(self._next).tolist()}
        for seated in self._seated.values():
            for seats in seated.fresh or ():
                used.update(np.unique(seats).tolist())
        return {code for code in used if code > LEARNER}

    # --- checkpoints ------------------------------------------------------------------------

    def state(self) -> SavedSeating:
        """Copy what decides the future, beside who plays now."""
        return SavedSeating(
            bots=tuple(self._bots),
            pool=self._pool.state(),
            next_seats=self._next.copy(),
            unsent=self._unsent.copy(),
        )

    def load(self, saved: SavedSeating, current: IntArray) -> None:
        """Begin where a checkpoint stood.

        Args:
            saved: What `state` returned.
            current: Who plays each slot now, ``(S,)``.
        """
        self._bots = list(saved.bots)
        self._current, self._next = current.copy(), saved.next_seats.copy()
        self._unsent = saved.unsent.copy()

    # --- dealing ------------------------------------------------------------------------------

    def _deal_all(self, layout: Layout, episode: int) -> IntArray:
        seats = np.zeros(len(layout.environment), np.int64)
        for environment, slots in enumerate(layout.slots):
            seats[slots] = self._deal(layout.table, environment, episode)
        return seats

    def _deal(self, table: Table, environment: int, episode: int) -> IntArray:
        """Return who plays one episode of one environment, seat by seat."""
        dealt = self._source.assign(table, environment, episode, self._pool.opponents)
        seats = np.full(table.seats[environment], self._code(dealt))
        if dealt.learner_seat is not None:
            seats[dealt.learner_seat] = LEARNER
        return seats

    def _code(self, dealt: Assignment) -> int:
        if dealt.snapshot is not None:
            return dealt.snapshot
        if dealt.bot is None:
            return LEARNER
        if dealt.bot not in self._bots:
            self._bots.append(dealt.bot)
        return -1 - self._bots.index(dealt.bot)

    def _told(self, slot: int, episode: int, code: int) -> SeatAssignment:
        if code == LEARNER:
            return SeatAssignment(slot=slot, episode=episode, player=Player.LEARNER)
        player = Player.SNAPSHOT if code > LEARNER else Player.SCRIPTED
        name = str(code) if code > LEARNER else self._bots[-1 - code]
        return SeatAssignment(slot=slot, episode=episode, player=player, name=name)

    @staticmethod
    def _check_whole(layout: Layout, over: list[int], ended: BoolArray, offset: int) -> None:
        for environment in over:
            rows = layout.slots[environment] - offset
            if not ended[rows].all():
                row = int(rows[ended[rows].argmin()])
                raise ContractError(
                    "an episode ended for some seats of an environment and not for others",
                    where=f"step, row {row}",
                    got="an episode that goes on",
                    expected="all seats of an environment to end together",
                    remedy="end the episode of every seat, those that bots play included",
                )
