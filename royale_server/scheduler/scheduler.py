"""The scheduler: events and the time in, commands out.

Keeps the roster and the queue, asks `Quorum`, `FrameLedger`, `Collection` and `Dispatcher`,
and states the frame rules that join them. One batch or learn step is in flight at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from royale_server.scheduler.cells import first_of_block
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
from royale_server.scheduler.roster import (
    ONE,
    Group,
    IntArray,
    Member,
    Request,
    Role,
    count_true,
    joined,
)
from royale_server.scheduler.state import SavedGroup, SavedMember, SchedulerState

FEW_ROWS = 4
"""Up to so many rows are changed one by one: that is cheaper than arrays of them."""


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
        self._last_was_evaluation = False
        self._last_was_learning = False
        self._rest_since: float | None = None
        self._is_rested = False
        self._frozen_since: float | None = None
        self._frozen_s = 0.0
        self._next_expiry = math.inf
        self._wake_at = math.inf

    # --- what the server may look at --------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When `advance` wants to be called again if nothing happens before."""
        return None if self._wake_at == math.inf else self._wake_at

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
        return max(int(group.episodes.max()) + 1 for group in member.groups)

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
        books = self.ledger.books()
        num_slots = len(books.tails)
        tainted = np.zeros(num_slots, np.bool_)
        episodes, steps = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.int64)
        for group in (group for member in self._members for group in member.groups):
            tainted[group.slots] = group.tainted
            episodes[group.slots] = group.episodes
            steps[group.slots] = group.steps
        return SchedulerState(
            version=self.ledger.version,
            round=turn,
            members_ever=members_ever,
            members=tuple(self._saved(member) for member in self._trainers if member.is_parked),
            books=books,
            tainted=tainted,
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

    def load(self, state: SchedulerState, now: float) -> list[Member]:
        """Begin where a checkpoint stood; every session of it is awaited by name.

        Returns:
            The sessions, in the order of the state. `returned`, `restart` or `leave` each.
        """
        self.ledger.version = state.version
        self.ledger.load(state.books)
        self.dispatcher.order = state.round, state.members_ever
        members = [self._load_member(saved, state, now) for saved in state.members]
        orphaned = np.ones(len(state.steps), np.bool_)
        for group in (group for member in members for group in member.groups):
            orphaned[group.slots] = False
        self.ledger.forget_tails(orphaned)
        return members

    def _load_member(self, saved: SavedMember, state: SchedulerState, now: float) -> Member:
        member = Member(number=self._next_number, name=saved.name, role=Role.TRAIN, joined_at=now)
        self._next_number += 1
        member.is_present = False
        member.groups = tuple(
            self._load_group(member, index, group, state, now)
            for index, group in enumerate(saved.groups)
        )
        self._members.append(member)
        self._trainers.append(member)
        self._expire_in(self.config.first_step_timeout_s, now)
        return member

    def _load_group(
        self, member: Member, index: int, saved: SavedGroup, state: SchedulerState, now: float
    ) -> Group:
        group = Group(member=member, index=index, start=saved.start, stop=saved.start + saved.size)
        group.tainted = state.tainted[group.slots].copy()
        group.episodes = state.episodes[group.slots].copy()
        group.steps = state.steps[group.slots].copy()
        group.is_tainted = bool(group.tainted.any())
        learner_rows = saved.asks & ~group.tainted
        group.entered = True
        request = Request(
            number=saved.number,
            asks=saved.asks,
            ended=np.zeros(saved.size, np.bool_),
            has_feedback=False,
            payload=saved.payload,
        )
        request.received_at = now
        request.learner_rows = learner_rows
        request.num_asking, request.num_learner = count_true(saved.asks), count_true(learner_rows)
        group.waiting = request
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
            group = Group(member=member, index=index, start=start, stop=start + size)
            group.episodes += first_episode
            groups.append(group)
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
        any_ended = count_true(request.ended) > 0
        request.num_asking = request.num_learner = count_true(request.asks)
        if group.trains:
            self._take_outcome(group, request, any_ended=any_ended)
        else:
            request.learner_rows = group.nobody
            request.num_learner = 0
        if any_ended:
            self._count_episodes(group, request)
        group.waiting = request
        self._owing_cells.pop(group, None)
        self.dispatcher.asked(group)
        self._enqueue(group, request, now)

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
            self.ledger.restart(group.span)
            group.tainted[:] = group.is_tainted = False
            group.episodes = np.full(group.size, fresh)
            group.steps[:] = 0
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
        self._start_turns([item.group for item in batch.items], now)

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
        self._wake_at = math.inf
        if now >= self._next_expiry:
            self._expire(now)
        if self.is_idle and not self._is_rested:
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
            if group.trains:
                self._quorum.enter(group, group.member)
            return
        assert group.owes_since is not None, "a request came while one was unanswered"
        duration_s = now - group.owes_since
        group.owes_since = None
        if group.trains:
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
            group.tainted[request.ended] = False
            group.is_tainted = bool(group.tainted.any())
        if group.span.block is not None and request.num_asking == group.size:
            ended = request.ended if any_ended else None
            cells = self.ledger.receive_block(group.span, ended)
            self._effects.append(Record(request, group.rows, cells, group.everyone))
            group.reserved = 0
        else:
            self._take_outcome_by_row(group, request)
        request.learner_rows = request.asks
        if group.is_tainted:
            request.learner_rows = request.asks & ~group.tainted
            request.num_learner = count_true(request.learner_rows)

    def _take_outcome_by_row(self, group: Group, request: Request) -> None:
        rows, cells, finished = self.ledger.receive(
            group.span, request.asks, request.ended, has_feedback=request.has_feedback
        )
        if len(rows):
            self._effects.append(Record(request, rows, cells, finished))
            group.reserved -= count_true(finished)

    def _reject_invalid(self, group: Group, request: Request) -> None:
        """Give up the frames of non-finite rows and keep the rest of their episodes out."""
        feedback, observation = (
            group.nobody if invalid is None else invalid
            for invalid in (request.invalid_feedback, request.invalid_observation)
        )
        bad_frame = feedback | (observation & ~request.ended)
        rows, cells = self.ledger.open_rows(group.span)
        self._give_up(group, cells[bad_frame[rows]], Discard.INVALID)
        group.tainted = np.where(request.ended, observation, group.tainted | bad_frame)
        group.is_tainted = bool(group.tainted.any())

    def _count_episodes(self, group: Group, request: Request) -> None:
        rows = request.ended.nonzero()[0]
        group.episodes = episodes = group.episodes.copy()
        if len(rows) <= FEW_ROWS:
            for row in rows.tolist():
                episodes[row] = episodes.item(row) + 1
                group.steps[row] = 0
        else:
            episodes[rows] += 1
            group.steps[rows] = 0

    def _enqueue(self, group: Group, request: Request, now: float) -> None:
        if request.num_asking == 0:
            if self._rest_since is None:
                self._answer_silent(group, now)
            else:
                self._held_silent[group] = None
        elif group.trains:
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
        self._start_turns([group], now)

    def _start_turns(self, groups: Sequence[Group], now: float) -> None:
        running = self._running(now)
        for group in groups:
            group.in_flight = False
            if group.member.ended:
                continue
            group.owes_since = now
            group.owes_since_running = running
            if group.reserved:
                self._owing_cells[group] = None
        self.dispatcher.answered(groups, now)
        self._expire_in(self.config.feedback_wait_timeout_s, now)

    # --- dispatching ----------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        if self._rest_since is not None:
            self._approach_rest(now, self._rest_since)
            if not self._is_rested and self._evaluating:
                self._send(list(self._evaluating), evaluation=True)
            return
        is_open, is_on_policy = self.is_open, self.collection.target is not None
        if is_on_policy and not is_open:
            self._settle_closed(now)
            is_open = self.is_open
        elif is_on_policy and not self._queued and not self._evaluating:
            return  # the usual look after a request or a batch: nobody waits
        may_learn = not (is_open and is_on_policy)
        inference_first = may_learn and self._last_was_learning and not self.dispatcher.is_ordered
        if may_learn and not inference_first and self._learn_if_due(now, is_open=is_open):
            return
        if self._evaluating and not self._last_was_evaluation:
            self._send(list(self._evaluating), evaluation=True)
            return
        batch = self._train_batch(now, is_open=is_open)
        if batch:
            self._send(batch, evaluation=False)
        elif self._evaluating:
            self._send(list(self._evaluating), evaluation=True)
        elif inference_first:
            self._learn_if_due(now, is_open=is_open)

    def _train_batch(self, now: float, *, is_open: bool) -> list[Group] | None:
        if not is_open:
            return [] if self.dispatcher.is_ordered else list(self._without_learner_rows)
        if not self._queued:
            return None
        batch = self.dispatcher.choose(self._trainers, self._queued, self._queued_slots, now)
        if batch:
            self.collection.note_opened(now)
        elif self.dispatcher.wake_at is not None:
            self._wake(self.dispatcher.wake_at)
        return batch

    def _learn_if_due(self, now: float, *, is_open: bool) -> bool:
        if not self.collection.is_learn_due(
            is_open=is_open,
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
        items, slots, episodes, steps = [], [], [], []
        is_whole = True
        for group in groups:
            request = group.waiting
            assert request is not None, "only a group that waits is answered"
            group.waiting = None
            group.in_flight = True
            group.reserved += request.num_learner
            if request.num_learner == group.size:
                items.append(InferItem(group, request, group.rows, group.everyone))
                slots.append(group.slot_numbers)
                episodes.append(group.episodes)
                steps.append(group.steps)
                group.steps = group.steps + ONE
            else:
                is_whole = False
                item = self._item_of_rows(group, request)
                items.append(item)
                slots.append(group.slot_numbers[item.rows])
                episodes.append(group.episodes[item.rows])
                steps.append(group.steps[item.rows])
                group.steps[item.rows] += 1
        self._dequeue_all(groups)
        self.dispatcher.dispatched(groups)
        all_slots = learner_slots = joined(slots)
        if is_whole:
            cells, ordinals = self.ledger.reserve_spans([group.span for group in groups], all_slots)
        else:
            learner_slots = all_slots[joined([item.learner for item in items])]
            cells, ordinals = self._reserve_rows(items, learner_slots)
        self._last_was_evaluation = evaluation
        self._last_was_learning = False
        self._in_flight = Infer(
            tuple(items),
            all_slots,
            joined(episodes),
            joined(steps),
            cells,
            learner_slots,
            ordinals,
            self._take_effects(),
            evaluation,
        )
        self._commands.append(self._in_flight)

    def _reserve_rows(
        self, items: Sequence[InferItem], slots: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Reserve cells for these learner rows; those of whole groups are kept as blocks."""
        for item in items:
            self.ledger.settle(item.group.span)
        cells, ordinals = self.ledger.reserve(slots)
        place = first_of_block(cells)
        if place is not None:
            for item in items:
                if item.learner is item.group.everyone:
                    self.ledger.as_block(item.group.span, place)
                place += item.request.num_learner
        return cells, ordinals

    def _item_of_rows(self, group: Group, request: Request) -> InferItem:
        """The item of a group of which not every row asks for a frame of its own."""
        rows = group.rows if request.num_asking == group.size else request.asks.nonzero()[0]
        learner = request.learner_rows[rows]
        if request.num_learner < len(rows) and group.trains:
            self.ledger.answered_without_cell(group.span, rows[~learner])
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
            self._give_up(group, self.ledger.open_cells(group.span), Discard.CUT)

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
        cells = self.ledger.open_cells(group.span)
        self._give_up(group, cells, Discard.LATE)
        self._owing_cells.pop(group, None)
        text = f"{group.member.name}/{group.index} kept a learn step waiting: {len(cells)} frames"
        self._commands.append(Notice("revoked", f"{text} given up as late"))

    def _give_up(self, group: Group, cells: IntArray, reason: Discard) -> None:
        if not len(cells):
            return
        previous, given_up = self.ledger.give_up(cells, reason)
        group.reserved -= len(cells)
        if len(previous):
            self._effects.append(Bridge(previous, given_up))

    def _bootstrap(self, group: Group) -> None:
        """The waiting observations are the successors of the slots' last stored frames."""
        request = group.waiting
        if request is None or request.num_asking == 0:
            return
        rows, cells = self.ledger.unfinished_tails(group.span, request.asks)
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
            self._give_up(group, self.ledger.open_cells(group.span), Discard.LOST)
            self.ledger.forget_tails(group.slots)
            self._quorum.leave(group)
            group.waiting = None
            self._dequeue(group)
            self._held_silent.pop(group, None)
            self._owing_cells.pop(group, None)
        self.dispatcher.refresh(member)

    # --- small things -------------------------------------------------------------------------

    def _dequeue_all(self, groups: Sequence[Group]) -> None:
        if len(groups) == len(self._queued) and groups[0].trains:
            self._queued.clear()
            self._queued_slots = 0
            self._without_learner_rows.clear()
        else:
            for group in groups:
                self._dequeue(group)

    def _dequeue(self, group: Group) -> None:
        if group in self._queued:
            del self._queued[group]
            self._queued_slots -= group.size
            if self._without_learner_rows:
                self._without_learner_rows.pop(group, None)
        else:
            self._evaluating.pop(group, None)

    def _wake(self, at: float) -> None:
        self._wake_at = min(self._wake_at, at)

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
