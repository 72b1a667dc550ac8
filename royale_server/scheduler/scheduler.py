"""The scheduler: events and the time in, commands out.

Keeps the roster and the queue, asks `Quorum`, `FrameLedger`, `Collection` and `Dispatcher`,
and states the frame rules that join them. One batch or learn step is in flight at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_server.scheduler.collection import Collection
from royale_server.scheduler.commands import (
    Answer,
    Bootstrap,
    Bridge,
    Command,
    Effect,
    EndRun,
    EndSession,
    Infer,
    InferItem,
    Learn,
    Notice,
    Record,
    Rested,
)
from royale_server.scheduler.config import SchedulerConfig
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.ledger import Discard, FrameLedger
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.roster import Group, IntArray, Member, Request, Role
from royale_server.scheduler.state import SavedGroup, SavedMember, SchedulerState


class Scheduler:
    """Decides who is inferred when, which frames are trained on, and when to learn.

    Args:
        config: The rules' settings.
        target: Frames the learner wants in the first iteration; None off-policy.
        capacity: Cells of storage. On-policy at least the largest target and ``max_slots``, which
            is the default; off-policy the ring of the replay buffer.
        block: Off-policy: stored frames a learn step is run for.
        max_debt: Off-policy: blocks owed beyond which learner rows wait.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        target: int | None,
        capacity: int | None = None,
        block: int = 1,
        max_debt: int = 1,
    ) -> None:
        self.config = config
        cells = (target or 0) + config.max_slots if capacity is None else capacity
        self.ledger = FrameLedger(capacity=cells, ring=target is None)
        self.collection = Collection(
            target=target, block=block, max_debt=max_debt, close_wait_s=config.close_wait_s
        )
        self._quorum: Quorum[Group] = Quorum(
            patience=config.patience, floor_s=config.patience_floor_s
        )
        self.dispatcher = Dispatcher(config, self._quorum)
        self._members: list[Member] = []
        self._trainers: list[Member] = []
        self._next_number = 0
        self._queued: dict[Group, None] = {}
        self._queued_slots = 0
        self._without_learner_rows: dict[Group, None] = {}
        self._evaluating: dict[Group, None] = {}
        self._held_silent: dict[Group, None] = {}
        self._owing_cells: dict[Group, None] = {}
        self._in_flight: Infer | None = None
        self._effects: list[Effect] = []
        self._commands: list[Command] = []
        self._tainted = np.zeros(0, np.bool_)
        self._episode = np.zeros(0, np.int64)
        self._step = np.zeros(0, np.int64)
        self._last_was_evaluation = False
        self._last_was_learning = False
        self._rest_since: float | None = None
        self._is_rested = False
        self._frozen_since: float | None = None
        self._frozen_s = 0.0
        self._next_expiry = math.inf
        self.wake_at: float | None = None
        """When `advance` wants to be called again if nothing happens before."""

    # --- what the server may look at --------------------------------------------------

    @property
    def members(self) -> Sequence[Member]:
        """Sessions taking part, in order of joining."""
        return self._members

    @property
    def slots_in_use(self) -> int:
        """Slots of all sessions taking part."""
        return sum(member.size for member in self._members)

    @property
    def num_train_sessions(self) -> int:
        """Train sessions taking part, or awaited from a checkpoint."""
        return len(self._trainers)

    @property
    def is_open(self) -> bool:
        """Whether learner rows may be inferred."""
        return self.collection.is_open(
            complete=self.ledger.num_complete,
            reserved=self.ledger.num_reserved,
            stored_total=self.ledger.stored_total,
        )

    @property
    def accepts_train_sessions(self) -> bool:
        """False once a deterministic run has all its clients."""
        if not self.config.deterministic:
            return True
        return not self.dispatcher.started and len(self._trainers) < self.config.min_clients

    @property
    def is_rested(self) -> bool:
        """The rest point that was asked for is reached, and not over."""
        return self._is_rested

    @property
    def is_idle(self) -> bool:
        """Neither a batch nor a learn step is under way."""
        return self._in_flight is None and not self.collection.learning

    def next_episode(self, member: Member) -> int:
        """An episode ordinal that none of the session's slots has reached."""
        return max(int(self._episode[group.slots].max()) + 1 for group in member.groups)

    def awaited_groups(self) -> list[Group]:
        """Groups whose next request the run is waiting for right now."""
        if self.is_open:
            members = self.dispatcher.awaited
            return [g for m in members for g in m.groups if g.owes_since is not None]
        return list(self._owing_cells)

    # --- checkpoints ----------------------------------------------------------------------

    def state(self) -> SchedulerState:
        """Copy what decides the future, at rest."""
        turn, members_ever = self.dispatcher.order
        return SchedulerState(
            version=self.ledger.version,
            round=turn,
            members_ever=members_ever,
            members=tuple(self._saved(member) for member in self._trainers if member.is_parked),
            books=self.ledger.books(),
            tainted=self._tainted.copy(),
            episodes=self._episode.copy(),
            steps=self._step.copy(),
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

    def load(self, state: SchedulerState, now: float) -> list[Member]:
        """Begin where a checkpoint stood; every session of it is awaited by name.

        Returns:
            The sessions, in the order of the state. `returned`, `restart` or `leave` each.
        """
        self.ledger.version = state.version
        self.ledger.load(state.books)
        self._tainted, self._episode = state.tainted.copy(), state.episodes.copy()
        self._step = state.steps.copy()
        self.dispatcher.order = state.round, state.members_ever
        members = [self._load_member(saved, now) for saved in state.members]
        orphaned = np.ones(len(self._step), np.bool_)
        for group in (group for member in members for group in member.groups):
            orphaned[group.slots] = False
        self.ledger.forget_tails(orphaned)
        return members

    def _load_member(self, saved: SavedMember, now: float) -> Member:
        member = Member(number=self._next_number, name=saved.name, role=Role.TRAIN, joined_at=now)
        self._next_number += 1
        member.is_present = False
        member.groups = tuple(
            self._load_group(member, index, group, now) for index, group in enumerate(saved.groups)
        )
        self._members.append(member)
        self._trainers.append(member)
        self._expire_in(self.config.first_step_timeout_s, now)
        return member

    def _load_group(self, member: Member, index: int, saved: SavedGroup, now: float) -> Group:
        group = Group(member=member, index=index, start=saved.start, stop=saved.start + saved.size)
        tainted = self._tainted[group.slots]
        group.is_tainted = bool(tainted.any())
        learner_rows = saved.asks & ~tainted
        group.entered = True
        group.waiting = Request(
            number=saved.number,
            asks=saved.asks,
            ended=np.zeros(saved.size, np.bool_),
            has_feedback=False,
            payload=saved.payload,
            received_at=now,
            learner_rows=learner_rows,
            num_asking=int(np.count_nonzero(saved.asks)),
            num_learner=int(np.count_nonzero(learner_rows)),
        )
        self._quorum.enter_again(group, member, saved.turns)
        return group

    # --- events -------------------------------------------------------------------------

    def join(
        self,
        name: str,
        role: Role,
        group_sizes: Sequence[int],
        now: float,
        *,
        first_episode: int = 0,
    ) -> Member:
        """Admit a session; its groups enter the quorum with their first step.

        Args:
            name: Client name, for messages.
            role: What its frames are for.
            group_sizes: Slots of each group.
            now: Seconds.
            first_episode: Ordinal of its slots' next episode, so that noise of a client
                that comes back is not drawn twice.
        """
        member = Member(number=self._next_number, name=name, role=role, joined_at=now)
        self._next_number += 1
        groups = []
        for index, size in enumerate(group_sizes):
            start = self.ledger.add_slots(size)
            groups.append(Group(member=member, index=index, start=start, stop=start + size))
            self._tainted = np.append(self._tainted, np.zeros(size, np.bool_))
            self._episode = np.append(self._episode, np.full(size, first_episode))
            self._step = np.append(self._step, np.zeros(size, np.int64))
        member.groups = tuple(groups)
        self._members.append(member)
        if role is Role.TRAIN:
            self._trainers.append(member)
            self.dispatcher.member_joined()
        self._expire_in(self.config.first_step_timeout_s, now)
        return member

    def request(self, group: Group, request: Request, now: float) -> None:
        """Take a group's request: its outcome at once, its observations when dispatched."""
        request.received_at = now
        self._end_turn(group, now)
        any_ended = bool(request.ended.any())
        request.num_asking = int(np.count_nonzero(request.asks))
        if group.member.role is Role.TRAIN:
            self._take_outcome(group, request, any_ended=any_ended)
            request.num_learner = request.num_asking
            if group.is_tainted:
                request.num_learner = int(np.count_nonzero(request.learner_rows))
        else:
            request.learner_rows = np.zeros(group.size, np.bool_)
        if any_ended:
            self._count_episodes(group, request)
        group.waiting = request
        self._owing_cells.pop(group, None)
        self._enqueue(group, request, now)
        self.dispatcher.refresh(group.member)

    def returned(self, member: Member, now: float) -> None:
        """The client of a session that came with a checkpoint is back where it was."""
        member.is_present = True
        for group in member.groups:
            if group.waiting is not None:
                self._enqueue(group, group.waiting, now)
        self.dispatcher.refresh(member)

    def restart(self, member: Member, now: float) -> None:
        """The client of a session that came with a checkpoint is back, with fresh episodes.

        Its parked requests are no more than what its last frames lead to.
        """
        fresh = self.next_episode(member)
        for group in member.groups:
            self._bootstrap(group)
            self._quorum.leave(group)
            group.waiting = None
            group.entered = False
            self.ledger.restart(group.slots)
            self._tainted[group.slots] = group.is_tainted = False
            self._episode[group.slots] = fresh
            self._step[group.slots] = 0
        member.is_present = True
        member.joined_at = now
        self._expire_in(self.config.first_step_timeout_s, now)
        self.dispatcher.refresh(member)

    def leave(self, member: Member, now: float) -> None:
        """A session is gone: its reserved cells are lost, its waiting observations kept."""
        if member.ended:
            return
        self._end(member)
        if self.config.deterministic and member.role is Role.TRAIN:
            text = f"client {member.name} left a deterministic run, which needs every client"
            self._end_run(text, now)

    def inferred(self, now: float) -> None:
        """The batch in flight is answered: its groups' turns begin."""
        batch = self._in_flight
        assert batch is not None, "no batch was in flight"
        self._in_flight = None
        for item in batch.items:
            item.group.in_flight = False
            if not item.group.member.ended:
                self._start_turn(item.group, now)

    def learned(self, now: float, *, version: int, target: int | None) -> None:
        """A learn step is done: the next iteration begins.

        Args:
            now: Seconds.
            version: The new policy version.
            target: Frames wanted now.
        """
        self.ledger.start_version(version)
        self.collection.reopen(target)
        self._last_was_learning = True
        if self._rest_since is not None:
            self._rest_since = now  # whoever is waited for has had no turn meanwhile
        self._thaw(now)

    def learn_aborted(self, now: float) -> None:
        """The learn step was undone: its frames are there still, and it is due again."""
        self.collection.learning = False
        self._thaw(now)

    def rest(self, now: float) -> None:
        """Ask for a rest point: nothing is dispatched until `resume`; `Rested` announces it."""
        if self._rest_since is None:
            self._rest_since = now
        elif self._is_rested:
            self._commands.append(Rested(self._take_effects()))

    def resume(self, now: float) -> None:
        """End a rest point, reached or not."""
        self._rest_since = None
        if self._is_rested:
            self._is_rested = False
            self._thaw(now)
        for group in list(self._held_silent):
            self._answer_silent(group, now)
        self._held_silent.clear()

    def advance(self, now: float) -> list[Command]:
        """Do everything that is due. Call it after every event and at `wake_at`."""
        self.wake_at = None
        self._expire(now)
        self._dispatch(now)
        self._wake(self._next_expiry)
        if self.dispatcher.notice is not None:
            self._commands.append(Notice("dispatch", self.dispatcher.notice))
            self.dispatcher.notice = None
        commands, self._commands = self._commands, []
        return commands

    # --- taking a request ---------------------------------------------------------------

    def _end_turn(self, group: Group, now: float) -> None:
        if not group.entered:
            group.entered = True
            if group.member.role is Role.TRAIN:
                self._quorum.enter(group, group.member)
            return
        assert group.owes_since is not None, "a request came while one was unanswered"
        duration_s = now - group.owes_since
        group.owes_since = None
        if group.member.role is Role.TRAIN:
            change = self._quorum.turn_ended(group, duration_s)
            if change is not None:
                self._say_quorum(group, returned=change, duration_s=duration_s)

    def _say_quorum(self, group: Group, *, returned: bool, duration_s: float) -> None:
        verb = "is on time again: waited for" if returned else "is late: no longer waited for"
        text = f"{group.member.name}/{group.index} {verb} (last turn {duration_s * 1e3:.0f} ms)"
        self._commands.append(Notice("quorum", text))

    def _take_outcome(self, group: Group, request: Request, *, any_ended: bool) -> None:
        if request.invalid_feedback is not None or request.invalid_observation is not None:
            self._reject_invalid(group, request)
        elif group.is_tainted and any_ended:
            self._tainted[group.slots][request.ended] = False
            group.is_tainted = bool(self._tainted[group.slots].any())
        if group.block is not None and request.num_asking == group.size:
            ended = request.ended if any_ended else None
            cells = self.ledger.receive_block(group.slots, group.block, ended)
            self._effects.append(Record(request, group.rows, cells, group.everyone))
            group.block, group.reserved = None, 0
        else:
            self._take_outcome_by_row(group, request)
        request.learner_rows = request.asks
        if group.is_tainted:
            request.learner_rows = request.asks & ~self._tainted[group.slots]

    def _take_outcome_by_row(self, group: Group, request: Request) -> None:
        group.block = None
        rows, cells, finished = self.ledger.receive(
            group.slots, request.asks, request.ended, has_feedback=request.has_feedback
        )
        if len(rows):
            self._effects.append(Record(request, rows, cells, finished))
            group.reserved -= int(np.count_nonzero(finished))

    def _reject_invalid(self, group: Group, request: Request) -> None:
        """Give up the frames of non-finite rows and keep the rest of their episodes out."""
        none = np.zeros(group.size, np.bool_)
        feedback = none if request.invalid_feedback is None else request.invalid_feedback
        observation = none if request.invalid_observation is None else request.invalid_observation
        bad_frame = feedback | (observation & ~request.ended)
        rows, cells = self.ledger.open_rows(group.slots)
        self._give_up(group, cells[bad_frame[rows]], Discard.INVALID)
        tainted = self._tainted[group.slots]
        tainted[:] = np.where(request.ended, observation, tainted | bad_frame)
        group.is_tainted = bool(tainted.any())

    def _count_episodes(self, group: Group, request: Request) -> None:
        episode, step = self._episode[group.slots], self._step[group.slots]
        episode[request.ended] += 1
        step[request.ended] = 0

    def _enqueue(self, group: Group, request: Request, now: float) -> None:
        if request.num_asking == 0:
            if self._rest_since is None:
                self._answer_silent(group, now)
            else:
                self._held_silent[group] = None
        elif group.member.role is Role.TRAIN:
            self._queued[group] = None
            self._queued_slots += group.size
            if request.num_learner == 0:
                self._without_learner_rows[group] = None
        else:
            self._evaluating[group] = None

    def _answer_silent(self, group: Group, now: float) -> None:
        assert group.waiting is not None
        self._commands.append(Answer(group, group.waiting))
        group.waiting = None
        self._start_turn(group, now)

    def _start_turn(self, group: Group, now: float) -> None:
        group.owes_since = now
        group.owes_since_running = self._running(now)
        if group.reserved:
            self._owing_cells[group] = None
        self._expire_in(self.config.feedback_wait_timeout_s, now)
        self.dispatcher.refresh(group.member)

    # --- dispatching ----------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        if not self.is_idle or self._is_rested:
            return
        if self._rest_since is not None:
            self._approach_rest(now, self._rest_since)
            if not self._is_rested and self._evaluating:
                self._send(list(self._evaluating), evaluation=True)
            return
        if self.collection.target is not None and not self.is_open:
            self._settle_closed(now)
        inference_first = self._last_was_learning and not self.dispatcher.is_ordered
        if not inference_first and self._learn_if_due(now):
            return
        if self._evaluating and not self._last_was_evaluation:
            self._send(list(self._evaluating), evaluation=True)
            return
        batch = self._train_batch(now)
        if batch:
            self._send(batch, evaluation=False)
        elif self._evaluating:
            self._send(list(self._evaluating), evaluation=True)
        elif inference_first:
            self._learn_if_due(now)

    def _train_batch(self, now: float) -> list[Group] | None:
        if not self.is_open:
            return [] if self.dispatcher.is_ordered else list(self._without_learner_rows)
        if not self._queued:
            return None
        batch = self.dispatcher.choose(self._trainers, self._queued, self._queued_slots, now)
        self._wake(self.dispatcher.wake_at)
        if batch:
            self.collection.note_opened(now)
        return batch

    def _learn_if_due(self, now: float) -> bool:
        if not self.collection.is_learn_due(
            is_open=self.is_open,
            reserved=self.ledger.num_reserved,
            stored_total=self.ledger.stored_total,
        ):
            return False
        self.collection.start_learning()
        self._freeze(now)
        for group in (group for member in self._trainers for group in member.groups):
            self._bootstrap(group)
        if self.collection.target is not None:
            self.ledger.forget_tails(slice(None))  # what these frames are worth is settled now
        self._commands.append(Learn(self.ledger.complete_cells(), self._take_effects()))
        return True

    def _send(self, groups: Sequence[Group], *, evaluation: bool) -> None:
        items = tuple(self._item(group) for group in groups)
        slots = _concatenated([item.group.slot_numbers[item.rows] for item in items])
        learner_slots = slots
        if any(item.request.num_learner < len(item.rows) for item in items):
            learner_slots = slots[_concatenated([item.learner for item in items])]
        steps = self._step[slots]
        self._step[slots] = steps + 1
        cells, ordinals = self.ledger.reserve(learner_slots)
        self._note_reserved(items, cells)
        self._last_was_evaluation = evaluation
        self._last_was_learning = False
        batch = Infer(
            items=items,
            slots=slots,
            episodes=self._episode[slots],
            steps=steps,
            cells=cells,
            cell_slots=learner_slots,
            ordinals=ordinals,
            effects=self._take_effects(),
            evaluation=evaluation,
        )
        self._in_flight = batch
        self._commands.append(batch)

    def _note_reserved(self, items: Sequence[InferItem], cells: IntArray) -> None:
        """Remember what each group owes now, and where its cells lie if they are a block."""
        is_block = len(cells) > 0 and int(cells[-1]) - int(cells[0]) == len(cells) - 1
        place = int(cells[0]) if is_block else 0
        for item in items:
            group, count = item.group, item.request.num_learner
            is_whole = is_block and count == group.size and group.reserved == 0
            group.block = place if is_whole else None
            group.reserved += count
            place += count

    def _item(self, group: Group) -> InferItem:
        request = group.waiting
        assert request is not None
        group.waiting = None
        group.in_flight = True
        self._dequeue(group)
        self.dispatcher.refresh(group.member)
        if request.num_learner == group.size:
            return InferItem(group, request, group.rows, group.everyone)
        rows = group.rows if request.num_asking == group.size else request.asks.nonzero()[0]
        learner = request.learner_rows[rows]
        if request.num_learner < len(rows) and group.member.role is Role.TRAIN:
            self.ledger.answered_without_cell(group.slot_numbers[rows[~learner]])
        return InferItem(group, request, rows, learner)

    # --- closing --------------------------------------------------------------------------

    def _settle_closed(self, now: float) -> None:
        """Give up what a closed collection should not wait for (rules 2 and 3)."""
        self.collection.note_closed(now)
        if self._owing_cells and not self.config.deterministic:
            self._revoke_late(now)
        if self.ledger.num_reserved and not self._owing_cells and not self.is_open:
            self._cut_silent_rows()

    def _cut_silent_rows(self) -> None:
        """Only silent rows of parked requests are left, and parked is what they stay."""
        groups = [g for m in self._trainers for g in m.groups if g.reserved]
        if not self.dispatcher.is_ordered and any(g in self._without_learner_rows for g in groups):
            return  # that request is answered at once, and its silent rows may yet finish
        self._cut(groups)

    def _cut(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._give_up(group, self.ledger.open_cells(group.slots), Discard.CUT)

    def _revoke_late(self, now: float) -> None:
        """Stop waiting for groups that have had their time while others wait for them."""
        for group in self._owing_cells:
            late_at = self.dispatcher.late_at(group)
            if now < late_at:
                self._wake(late_at)
                return  # somebody on time is waited for anyway
        parked = {g.member for g in self._queued if g not in self._without_learner_rows}
        for group in list(self._owing_cells):
            if parked <= {group.member}:
                continue  # nobody else waits for these cells
            due = self.collection.revoke_at(in_quorum=group in self._quorum)
            if now < due:
                self._wake(due)
            else:
                self._revoke(group)

    def _revoke(self, group: Group) -> None:
        cells = self.ledger.open_cells(group.slots)
        self._give_up(group, cells, Discard.LATE)
        self._owing_cells.pop(group, None)
        text = f"{group.member.name}/{group.index} kept a learn step waiting: {len(cells)} frames"
        self._commands.append(Notice("revoked", f"{text} given up as late"))

    def _give_up(self, group: Group, cells: IntArray, reason: Discard) -> None:
        if not len(cells):
            return
        previous, given_up = self.ledger.give_up(cells, reason)
        group.reserved -= len(cells)
        group.block = None
        if len(previous):
            self._effects.append(Bridge(previous, given_up))

    def _bootstrap(self, group: Group) -> None:
        """The waiting observations are the successors of the slots' last stored frames."""
        request = group.waiting
        if request is None or request.num_asking == 0:
            return
        rows, cells = self.ledger.unfinished_tails(group.slots, request.asks)
        if len(rows):
            self._effects.append(Bootstrap(request, rows, cells))

    def _take_effects(self) -> tuple[Effect, ...]:
        effects, self._effects = tuple(self._effects), []
        return effects

    # --- rest points ------------------------------------------------------------------------

    def _approach_rest(self, now: float, since: float) -> None:
        missing = [
            group
            for member in self._trainers
            for group in member.groups
            if group.entered and group.waiting is None
        ]
        if missing and self.config.deterministic:
            return
        if any(self._is_awaited_at_rest(group, now, since) for group in missing):
            return
        for group in list(self._owing_cells):
            self._revoke(group)
        self._cut([g for m in self._trainers for g in m.groups if g.reserved])
        self._bootstrap_unsaved()
        self._is_rested = True
        self._freeze(now)
        self._commands.append(Rested(self._take_effects()))

    def _bootstrap_unsaved(self) -> None:
        """What a session of which only one group is parked shows: a checkpoint holds no more of it.

        If the run goes on, the frame that follows comes before this.
        """
        for member in self._trainers:
            if not member.is_parked:
                for group in member.groups:
                    self._bootstrap(group)

    def _is_awaited_at_rest(self, group: Group, now: float, since: float) -> bool:
        """Whether a rest still waits for this group: nobody waits for one that is late anyway."""
        until = since + self.config.close_wait_s
        if not group.reserved:
            in_time = self.dispatcher.late_at(group) if group in self._quorum else -math.inf
            until = min(until, in_time)
        if now >= until:
            return False
        self._wake(until)
        return True

    # --- ends -------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        """End sessions that owe a request, or their first step, for too long."""
        if now < self._next_expiry:
            return
        self._next_expiry = math.inf
        first_s = self.config.first_step_timeout_s
        feedback_s = self.config.feedback_wait_timeout_s
        for member in list(self._members):
            first_step_left_s = self._first_step_left_s(member, now)
            feedback_left_s = self._feedback_left_s(member, now)
            if first_step_left_s <= 0:
                text = f"no first step from every group within {first_s:g} s"
                self._end_for_timeout(member, text, "--first-step-timeout", now)
            elif feedback_left_s <= 0:
                text = f"no answer to an action within {feedback_s:g} s"
                self._end_for_timeout(member, text, "--feedback-wait-timeout", now)
            else:
                self._expire_in(min(first_step_left_s, feedback_left_s), now)

    def _first_step_left_s(self, member: Member, now: float) -> float:
        if member.entered and (member.is_present or self.dispatcher.is_ordered):
            return math.inf
        return member.joined_at + self.config.first_step_timeout_s - now

    def _feedback_left_s(self, member: Member, now: float) -> float:
        """Seconds until the session owes a request for too long; its clock may stand still."""
        owed = [g.owes_since_running for g in member.groups if g.owes_since is not None]
        if not owed or self._frozen_since is not None:
            return math.inf
        return min(owed) + self.config.feedback_wait_timeout_s - self._running(now)

    def _expire_in(self, delay_s: float, now: float) -> None:
        self._next_expiry = min(self._next_expiry, now + delay_s)

    def _end_for_timeout(self, member: Member, what: str, flag: str, now: float) -> None:
        self._end(member)
        remedy = f"if the environment needs longer for a step, raise {flag} on the server"
        self._commands.append(
            EndSession(member, "timeout", f"client {member.name}: {what}; {remedy}")
        )
        if self.config.deterministic and member.role is Role.TRAIN:
            self._end_run(f"client {member.name} was lost: {what}", now)

    def _end_run(self, text: str, now: float) -> None:
        """Nothing is dispatched any more: what is complete by now goes into the last checkpoint."""
        self._commands.append(EndRun(text))
        if self._rest_since is None:
            self._rest_since = now

    def _end(self, member: Member) -> None:
        member.ended = True
        self._members.remove(member)
        if member.role is Role.TRAIN:
            self._trainers.remove(member)
        for group in member.groups:
            self._bootstrap(group)
            self._give_up(group, self.ledger.open_cells(group.slots), Discard.LOST)
            self.ledger.forget_tails(group.slots)
            self._quorum.leave(group)
            group.waiting = None
            self._dequeue(group)
            self._held_silent.pop(group, None)
            self._owing_cells.pop(group, None)
        self.dispatcher.refresh(member)

    # --- small things -------------------------------------------------------------------------

    def _dequeue(self, group: Group) -> None:
        if group in self._queued:
            del self._queued[group]
            self._queued_slots -= group.size
        self._without_learner_rows.pop(group, None)
        self._evaluating.pop(group, None)

    def _wake(self, at: float | None) -> None:
        if at is not None and at != math.inf and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def _running(self, now: float) -> float:
        """The clock of the time-outs: it stands still while learning and at rest."""
        stopped = 0.0 if self._frozen_since is None else now - self._frozen_since
        return now - self._frozen_s - stopped

    def _freeze(self, now: float) -> None:
        if self._frozen_since is None:
            self._frozen_since = now

    def _thaw(self, now: float) -> None:
        if self._frozen_since is not None:
            self._frozen_s += now - self._frozen_since
            self._frozen_since = None
            self._next_expiry = now  # deadlines were not looked at while the clock stood still


def _concatenated(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
