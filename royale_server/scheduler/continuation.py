"""How the scheduler goes into a checkpoint and begins from one.

Knows which of its parts decide the future and how they become plain values (`SchedulerState`).
Never decides when: that is a rest point.
"""

from __future__ import annotations

import numpy as np

from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.ledger import FrameLedger
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.roster import (
    Group,
    Member,
    Request,
    Role,
    Roster,
    count_true,
)
from royale_server.scheduler.state import SavedGroup, SavedMember, SchedulerState


class Continuation:
    """The parts of a scheduler that a checkpoint continues."""

    def __init__(
        self, roster: Roster, ledger: FrameLedger, quorum: Quorum[Group], dispatcher: Dispatcher
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._quorum = quorum
        self._dispatcher = dispatcher

    # --- into a checkpoint ----------------------------------------------------------------

    def state(self) -> SchedulerState:
        """Copy what decides the future, at rest."""
        turn, members_ever = self._dispatcher.order
        books = self._ledger.books()
        num_slots = len(books.tails)
        tainted = np.zeros(num_slots, np.bool_)
        seats = np.zeros(num_slots, np.int64)
        episodes, steps = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.int64)
        for group in (group for member in self._roster.members for group in member.groups):
            tainted[group.slots] = group.tainted
            if group.trains and group.seats is not None:
                seats[group.slots] = group.seats
            episodes[group.slots] = group.episodes
            steps[group.slots] = group.steps
        parked = [member for member in self._roster.trainers if member.is_parked]
        return SchedulerState(
            version=self._ledger.version,
            round=turn,
            members_ever=members_ever,
            members=tuple(self._saved(member) for member in parked),
            books=books,
            tainted=tainted,
            seats=seats,
            episodes=episodes,
            steps=steps,
        )

    def _saved(self, member: Member) -> SavedMember:
        groups = []
        for group in member.groups:
            request = group.waiting
            assert request is not None, "only who is parked is saved"
            groups.append(
                SavedGroup(
                    start=group.start,
                    size=group.size,
                    number=request.number,
                    asks=request.asks,
                    payload=request.payload,
                    turns=self._quorum.turns(group),
                )
            )
        return SavedMember(name=member.name, groups=tuple(groups))

    # --- and out of it --------------------------------------------------------------------

    def load(self, state: SchedulerState, now: float) -> list[Member]:
        """Begin where a checkpoint stood; every session of it is awaited by name."""
        self._ledger.version = state.version
        self._ledger.load(state.books)
        self._dispatcher.order = state.round, state.members_ever
        members = [self._load_member(saved, state, now) for saved in state.members]
        orphaned = np.ones(len(state.steps), np.bool_)
        for group in (group for member in members for group in member.groups):
            orphaned[group.slots] = False
        self._ledger.forget_tails(orphaned)
        return members

    def _load_member(self, saved: SavedMember, state: SchedulerState, now: float) -> Member:
        member = self._roster.admit(saved.name, Role.TRAIN, now)
        member.is_present = False
        member.groups = tuple(
            self._load_group(member, index, group, state, now)
            for index, group in enumerate(saved.groups)
        )
        return member

    def _load_group(
        self, member: Member, index: int, saved: SavedGroup, state: SchedulerState, now: float
    ) -> Group:
        group = Group(member=member, index=index, start=saved.start, stop=saved.start + saved.size)
        group.tainted = state.tainted[group.slots].copy()
        group.episodes = state.episodes[group.slots].copy()
        group.steps = state.steps[group.slots].copy()
        group.is_tainted = bool(group.tainted.any())
        seats = state.seats[group.slots]
        group.seats = seats.copy() if seats.any() else None
        group.entered = True
        group.waiting = _parked(saved, group, now)
        self._quorum.enter_again(group, member, saved.turns)
        return group


def _parked(saved: SavedGroup, group: Group, now: float) -> Request:
    """Return the request as it stood at the server, its outcome taken long ago."""
    request = Request(
        number=saved.number,
        asks=saved.asks,
        ended=np.zeros(saved.size, np.bool_),
        has_feedback=False,
        seats=group.seats,
        payload=saved.payload,
    )
    request.received_at = now
    request.learner_rows = learner_rows = group.learner_rows(saved.asks)
    request.num_asking, request.num_learner = count_true(saved.asks), count_true(learner_rows)
    return request
