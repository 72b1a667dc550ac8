"""The scheduler: events and the time in, commands out.

Tells each event to the parts that know what it means, and asks them in the order of the frame
rules what is due. One batch or learn step is in flight at a time. Never keeps what a part knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from royale_server.scheduler.batches import Batches
from royale_server.scheduler.closing import Closing
from royale_server.scheduler.collection import Collection
from royale_server.scheduler.commands import (
    Answer,
    Command,
    EndRun,
    EndSession,
    Learn,
    Notice,
    Rested,
)
from royale_server.scheduler.config import SchedulerConfig
from royale_server.scheduler.continuation import Continuation
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.ledger import FrameLedger
from royale_server.scheduler.outbox import Outbox
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.rest import Rest
from royale_server.scheduler.roster import Group, Member, Request, Role, Roster, count_true
from royale_server.scheduler.state import SchedulerState
from royale_server.scheduler.timeouts import Overdue, Timeouts
from royale_server.scheduler.turns import TurnTaking
from royale_server.scheduler.waiting import Waiting


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
        self._roster = Roster()
        self._waiting = Waiting()
        self._outbox = Outbox()
        self._timeouts = Timeouts(config)
        self._frames = Frames(self.ledger)
        self._batches = Batches(self.ledger)
        self._closing = Closing(
            roster=self._roster,
            ledger=self.ledger,
            collection=self.collection,
            dispatcher=self.dispatcher,
            waiting=self._waiting,
            frames=self._frames,
            outbox=self._outbox,
        )
        self._rest = Rest(
            config.close_wait_s,
            roster=self._roster,
            dispatcher=self.dispatcher,
            closing=self._closing,
            frames=self._frames,
            outbox=self._outbox,
        )
        self._turns = TurnTaking(
            quorum=self._quorum,
            dispatcher=self.dispatcher,
            closing=self._closing,
            timeouts=self._timeouts,
            outbox=self._outbox,
        )
        self._continuation = Continuation(self._roster, self.ledger, self._quorum, self.dispatcher)
        self._in_flight: Sequence[Group] | None = None
        self._last_was_evaluation = False
        self._last_was_learning = False

    # --- what the server may look at --------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When `advance` wants to be called again if nothing happens before."""
        return None if self._outbox.wake_at == math.inf else self._outbox.wake_at

    @property
    def members(self) -> Sequence[Member]:
        """Sessions taking part, in order of joining."""
        return self._roster.members

    @property
    def slots_in_use(self) -> int:
        """Slots of all sessions taking part."""
        return sum(member.size for member in self._roster.members)

    @property
    def num_train_sessions(self) -> int:
        """Train sessions taking part, or awaited from a checkpoint."""
        return len(self._roster.trainers)

    def train_groups(self) -> Iterator[Group]:
        """Groups of the train sessions taking part, in order of joining."""
        return self._roster.train_groups()

    @property
    def num_stragglers(self) -> int:
        """Groups of them that have begun and are too slow to be waited for."""
        return sum(
            group.entered and not self.dispatcher.waits_for(group) for group in self.train_groups()
        )

    @property
    def is_open(self) -> bool:
        """Whether learner rows may be inferred."""
        return self._closing.is_open

    @property
    def accepts_train_sessions(self) -> bool:
        """False once a deterministic run has all its clients."""
        if not self.config.deterministic:
            return True
        return not self.dispatcher.started and self.num_train_sessions < self.config.min_clients

    @property
    def is_rested(self) -> bool:
        """The rest point that was asked for is reached, and not over."""
        return self._rest.is_reached

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
        return list(self._closing.owing)

    # --- checkpoints ----------------------------------------------------------------------

    def state(self) -> SchedulerState:
        """Copy what decides the future, at rest."""
        return self._continuation.state()

    def load(self, state: SchedulerState, now: float) -> list[Member]:
        """Begin where a checkpoint stood; every session of it is awaited by name.

        Returns:
            The sessions, in the order of the state. `returned`, `restart` or `leave` each.
        """
        members = self._continuation.load(state, now)
        if members:
            self._timeouts.await_first_step(now)
        return members

    # --- events: sessions -----------------------------------------------------------------

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
        member = self._roster.admit(name, role, now)
        groups = []
        for index, size in enumerate(group_sizes):
            start = self.ledger.add_slots(size)
            group = Group(member=member, index=index, start=start, stop=start + size)
            group.episodes += first_episode
            groups.append(group)
        member.groups = tuple(groups)
        if role is Role.TRAIN:
            self.dispatcher.member_joined()
        self._timeouts.await_first_step(now)
        return member

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
            self._frames.begin_afresh(group, episode=fresh)
            self._quorum.leave(group)
            group.waiting = None
            group.entered = False
        member.is_present = True
        member.joined_at = now
        self._timeouts.await_first_step(now)
        self.dispatcher.refresh(member)

    def cut_off(self, member: Member) -> None:
        """A session's client cannot be reached: nobody waits for it, and nothing is taken from it.

        A run that waits for every client waits for this one too.
        """
        member.is_connected = False
        self.dispatcher.refresh(member)

    def reconnected(self, member: Member, now: float) -> None:
        """A session that was cut off goes on."""
        member.is_connected = True
        self._turns.go_on(member, now)

    def leave(self, member: Member, now: float) -> None:
        """A session is gone: its reserved cells are lost, its waiting observations kept."""
        if member.ended:
            return
        self._end(member)
        if self.config.deterministic and member.role is Role.TRAIN:
            text = f"client {member.name} left a deterministic run, which needs every client"
            self._end_run(text, now)

    # --- events: requests, batches, learn steps -------------------------------------------

    def request(self, group: Group, request: Request, now: float) -> None:
        """Take a group's request: its outcome at once, its observations when dispatched."""
        self._turns.end(group, now)
        self._take(group, request, now)

    def is_of_use(self, group: Group) -> bool:
        """Whether the group's last answer still leads to a frame, or was never to lead to one."""
        return not (group.trains and self._frames.are_given_up(group))

    def request_again(self, group: Group, request: Request, now: float) -> None:
        """Take a group's last request as a new one: its answer never arrived, and is of no use.

        Args:
            group: The group; all cells of that answer are given up.
            request: The request, without the outcome that was taken when it came first.
            now: Seconds.
        """
        self._turns.void(group)
        self._frames.lose_others(group)
        self._take(group, request, now)

    def _take(self, group: Group, request: Request, now: float) -> None:
        request.received_at = now
        any_ended = request.any_ended = count_true(request.ended) > 0
        request.num_asking = request.num_learner = count_true(request.asks)
        if group.trains:
            self._frames.take_outcome(group, request, any_ended=any_ended)
        else:
            request.learner_rows = group.nobody
            request.num_learner = 0
            group.seats = request.seats
        if any_ended:
            self._frames.count_episodes(group, request)
        group.waiting = request
        self.dispatcher.asked(group)
        self._enqueue(group, request, now)

    def _enqueue(self, group: Group, request: Request, now: float) -> None:
        """Let a request wait; one in which no row asks does so only while the run comes to rest."""
        if request.num_asking:
            self._waiting.add(group, request)
        elif self._rest.since is None:
            self._answer_silent(group, now)
        else:
            self._waiting.silent[group] = None

    def _answer_silent(self, group: Group, now: float) -> None:
        assert group.waiting is not None
        self._outbox.commands.append(Answer(group, group.waiting))
        group.waiting = None
        self._turns.begin([group], now)

    def inferred(self, now: float) -> None:
        """The batch in flight is answered: its groups' turns begin."""
        groups = self._in_flight
        assert groups is not None, "no batch was in flight"
        self._in_flight = None
        self._turns.begin(groups, now)

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
        self._rest.count_from(now)
        self._timeouts.thaw(now)

    def learn_aborted(self, now: float) -> None:
        """The learn step was undone: its frames are there still, and it is due again."""
        self.collection.learning = False
        self._timeouts.thaw(now)

    # --- events: rest points --------------------------------------------------------------

    def rest(self, now: float) -> None:
        """Ask for a rest point: nothing is dispatched until `resume`; `Rested` announces it."""
        self._rest.ask(now)
        if self._rest.is_reached:
            self._say_rested()

    def resume(self, now: float) -> None:
        """End a rest point, reached or not."""
        if self._rest.end():
            self._timeouts.thaw(now)
        for group in self._waiting.take_silent():
            self._answer_silent(group, now)

    # --- what is due ------------------------------------------------------------------------

    def advance(self, now: float) -> list[Command]:
        """Do everything that is due. Call it after every event and at `wake_at`."""
        outbox, timeouts = self._outbox, self._timeouts
        if now >= timeouts.next_at:
            self._expire(now)
        outbox.wake_at = timeouts.next_at
        if self.is_idle and not self._rest.is_reached:
            self._dispatch(now)
        if self.dispatcher.notice is not None:
            outbox.commands.append(Notice("dispatch", self.dispatcher.notice))
            self.dispatcher.notice = None
        commands, outbox.commands = outbox.commands, []
        return commands

    def _dispatch(self, now: float) -> None:
        """Send a batch, learn or come to rest, whichever is due."""
        if self._rest.since is not None:
            self._approach_rest(now, self._rest.since)
            return
        evaluating = self._waiting.evaluating
        is_open, is_on_policy = self._closing.is_open, self.collection.target is not None
        if is_on_policy and not is_open:
            self._closing.settle(now)
            is_open = self._closing.is_open
        elif is_on_policy and not self._waiting.queued and not evaluating:
            return  # the usual look after a request or a batch: nobody waits
        may_learn = not (is_open and is_on_policy)
        inference_first = may_learn and self._last_was_learning and not self.dispatcher.is_ordered
        if may_learn and not inference_first and self._learn_if_due(now, is_open=is_open):
            return
        if evaluating and not self._last_was_evaluation:
            self._send(list(evaluating), evaluation=True)
            return
        batch = self._train_batch(now, is_open=is_open)
        if batch:
            self._send(batch, evaluation=False)
        elif evaluating:
            self._send(list(evaluating), evaluation=True)
        elif inference_first:
            self._learn_if_due(now, is_open=is_open)

    def _approach_rest(self, now: float, since: float) -> None:
        if self._rest.approach(now, since):
            self._timeouts.freeze(now)
            self._say_rested()
        elif self._waiting.evaluating:
            self._send(list(self._waiting.evaluating), evaluation=True)

    def _say_rested(self) -> None:
        self._outbox.commands.append(Rested(self._frames.take_effects()))

    def _train_batch(self, now: float, *, is_open: bool) -> list[Group] | None:
        waiting = self._waiting
        if not is_open:
            return [] if self.dispatcher.is_ordered else list(waiting.without_learner_rows)
        if not waiting.queued:
            return None
        batch = self.dispatcher.choose(
            self._roster.trainers, waiting.queued, waiting.num_slots, now
        )
        if batch:
            self.collection.note_opened(now)
        elif self.dispatcher.wake_at is not None:
            self._outbox.wake(self.dispatcher.wake_at)
        return batch

    def _learn_if_due(self, now: float, *, is_open: bool) -> bool:
        if not self.collection.is_learn_due(
            is_open=is_open,
            reserved=self.ledger.num_reserved,
            stored_total=self.ledger.stored_total,
        ):
            return False
        self.collection.start_learning()
        self._timeouts.freeze(now)
        for group in self._roster.train_groups():
            self._frames.bootstrap(group)
        if self.collection.target is not None:
            self.ledger.forget_tails(slice(None))  # what these frames are worth is settled now
        learn = Learn(self.ledger.complete_cells(), self._frames.take_effects())
        self._outbox.commands.append(learn)
        return True

    def _send(self, groups: Sequence[Group], *, evaluation: bool) -> None:
        effects = self._frames.take_effects()
        batch = self._batches.make(groups, effects, evaluation=evaluation)
        self._in_flight = groups
        self._waiting.remove_all(groups)
        self.dispatcher.dispatched(groups)
        self._last_was_evaluation = evaluation
        self._last_was_learning = False
        self._outbox.commands.append(batch)

    # --- ends -------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        """End sessions that owe a request, or their first step, for too long."""
        is_ordered = self.dispatcher.is_ordered
        for overdue in self._timeouts.overdue(self._roster.members, now, is_ordered=is_ordered):
            self._end_for_timeout(overdue, now)

    def _end_for_timeout(self, overdue: Overdue, now: float) -> None:
        member, what = overdue.member, overdue.what
        self._end(member)
        remedy = f"if the environment needs longer for a step, raise {overdue.flag} on the server"
        self._outbox.commands.append(
            EndSession(member, "timeout", f"client {member.name}: {what}; {remedy}")
        )
        if self.config.deterministic and member.role is Role.TRAIN:
            self._end_run(f"client {member.name} was lost: {what}", now)

    def _end_run(self, text: str, now: float) -> None:
        """Nothing is dispatched any more: what is complete by now goes into the last checkpoint."""
        self._outbox.commands.append(EndRun(text))
        self._rest.ask(now)

    def _end(self, member: Member) -> None:
        self._roster.remove(member)
        for group in member.groups:
            self._frames.lose(group)
            self._quorum.leave(group)
            group.waiting = None
            self._waiting.forget(group)
            self._closing.owing.pop(group, None)
        self.dispatcher.refresh(member)
