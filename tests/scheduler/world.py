"""A discrete-event world around the real scheduler core: clients, links, a model, a clock.

Nothing sleeps and nothing is threaded: events lie on a heap, time jumps from one to the next.
All chance comes from two seeds: ``seed`` decides what clients *do* (episodes, silent rows),
``timing_seed`` when messages arrive. The world calls `Scheduler.advance` only after an event
or at ``wake_at``, as the server does, and compares what comes with books of its own.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from royale_server.scheduler import (
    Answer,
    Command,
    Discard,
    EndRun,
    EndSession,
    Group,
    Infer,
    InferItem,
    Learn,
    Member,
    Notice,
    Request,
    Rested,
    Role,
    Scheduler,
)
from tests.scheduler.actors import (
    LEARNER,
    Client,
    ClientGroup,
    closing_request,
    next_request,
)
from tests.scheduler.books import Books, Frame, Sent
from tests.scheduler.plans import Plan
from tests.scheduler.restarts import Restarts

WAKE_LATENESS_S = 1e-6
MOST_FRUITLESS_WAKES = 1000


class World:
    """Runs one plan; ``faults`` lists every broken promise."""

    def __init__(
        self,
        plan: Plan,
        *,
        seed: int,
        timing_seed: int | None = None,
        make_scheduler: Callable[..., Scheduler] = Scheduler,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.timing = random.Random(seed + 7 if timing_seed is None else timing_seed)
        self.now = 0.0
        self.faults: list[str] = []
        self._make_scheduler = make_scheduler
        self.scheduler = make_scheduler(plan.config, target=plan.target)
        self.ledgers = [self.scheduler.ledger]
        """One of each process of the server."""
        self.restarts = Restarts(self)
        self.clients: list[Client] = []
        self.learned: list[list[tuple[str, int, int, int]]] = []
        """For each learn step the frames in cell order: client slot name, ordinal, and the
        episode and step of their noise."""
        self.learned_at: list[float] = []
        self.books = Books(self.scheduler.ledger, self.fault)
        self.notices: list[Notice] = []
        self.ended_run: str | None = None
        self.max_slots_in_use = 0
        self.evaluated_while_closed = 0
        self.timeouts = 0
        self.rests = 0
        self.requests = 0
        self.rows_of_others = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._wake_at: float | None = None
        self._fruitless_wakes = 0
        self._last_progress = 0.0
        self._rest_asked_at: float | None = None
        self._learned_at: list[float] = []
        self.is_rested = False
        self._is_busy = False
        self.by_group: dict[Group, ClientGroup] = {}
        self._slot_names: list[str] = []
        self._slot_client: list[int] = []
        self._out_of_quorum: set[str] = set()

    # --- the clock ---------------------------------------------------------------------

    def at(self, delay: float, what: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), what, args))

    def run(self) -> World:
        plan = self.plan
        for index, sizes in enumerate(plan.sessions):
            self.meet(index, sizes, Role.TRAIN)
        for index in range(plan.evaluators):
            self.meet(1000 + index, (2,), Role.EVAL)
        happenings = (
            (self._join, plan.joins),
            (self._leave, plan.leaves),
            (self._quit, plan.quits),
            (self._cut, plan.cuts),
            (self._hang, plan.hangs),
            (self._pause, plan.pauses),
            (self.restarts.ask, plan.restarts),
        )
        for happening, times in happenings:
            for _ in range(times):
                self.at(plan.trouble_s * (0.05 + 0.95 * self.timing.random()), happening)
        self.at(0.1, self._watch)
        self.advance()
        events = self._events
        while events and not self.faults and not self.ended_run:
            self.now, _, what, args = heapq.heappop(events)
            if self.now > plan.duration_s:
                break
            what(*args)
            if plan.max_learns and len(self.learned) >= plan.max_learns:
                break
        self._check_discards()
        return self

    def _watch(self) -> None:
        """Look for deadlock and starvation from outside: it never calls the scheduler."""
        self.at(0.1, self._watch)
        slow = self.plan.slow
        here = [c for c in self.clients if not (c.is_gone or c.is_absent)]
        awake = [c for c in here if c.hung_until <= self.now]
        healthy = [c for c in awake if c in self._living() and slow.get(c.index, 1.0) <= 10]
        if not healthy or self._rest_asked_at is not None:
            self._last_progress = self.now
        elif self.now - self._last_progress > self.plan.stall_s:
            ledger = self.scheduler.ledger
            self.fault(
                f"deadlock: open={self.scheduler.is_open} reserved={ledger.num_reserved}"
                f" complete={ledger.num_complete}"
            )
        elif self.scheduler.is_open:
            self._check_starvation(awake)

    def _check_starvation(self, clients: Sequence[Client]) -> None:
        for client in clients:
            for group in client.member.groups:
                waiting = group.waiting
                if waiting is not None and self.now - waiting.received_at > self.plan.stall_s:
                    self.fault(f"group {client.index}.{group.index} starves")

    @property
    def given_up(self) -> Counter[Discard]:
        """Frames given up by all processes of the server, by reason."""
        given_up: Counter[Discard] = Counter()
        for ledger in self.ledgers:
            given_up.update(ledger.given_up)
        return given_up

    @property
    def stored_by_client(self) -> Counter[int]:
        """Frames stored, by the client's place in the plan."""
        stored: Counter[int] = Counter()
        for slot, count in self.books.stored_by_slot.items():
            stored[self._slot_client[slot]] += count
        return stored

    def fault(self, text: str) -> None:
        self.faults.append(f"t={self.now:.4f}: {text}")

    # --- the server's side of the world -----------------------------------------------

    def advance(self) -> None:
        scheduler = self.scheduler
        for command in scheduler.advance(self.now):
            self._fruitless_wakes = 0
            self._carry_out(command)
        wake_at = scheduler.wake_at
        if wake_at is not None and (self._wake_at is None or wake_at < self._wake_at):
            self._wake_at = wake_at
            self.at(max(0.0, wake_at - self.now) + WAKE_LATENESS_S, self._wake, wake_at)

    def _wake(self, at: float) -> None:
        if self._wake_at != at:
            return
        self._wake_at = None
        self._fruitless_wakes += 1
        if self._fruitless_wakes > MOST_FRUITLESS_WAKES:
            self.fault("the scheduler wakes again and again without doing anything")
        self.advance()

    def _carry_out(self, command: Command) -> None:
        match command:
            case Infer():
                self._infer(command)
            case Answer(group=group):
                if self.is_rested:
                    self.fault("a silent request answered at rest")
                self._answer(group, None, [])
            case Learn():
                self._learn(command)
            case Notice():
                self._check_notice(command)
                self.notices.append(command)
            case EndSession(member=member):
                self.timeouts += 1
                self._timed_out(member)
            case EndRun(message=message):
                self.ended_run = message
            case Rested(effects=effects):
                self.books.apply(effects)
                self._rested()

    def _infer(self, batch: Infer) -> None:
        if self._is_busy or self.is_rested:
            self.fault("inference while learning, inferring or at rest")
        self.books.apply(batch.effects)
        self._check_batch(batch)
        frames = self.books.reserve(batch)
        ledger = self.scheduler.ledger
        if ledger.num_complete + ledger.num_reserved >= self.plan.target + self.max_slots_in_use:
            self.fault(f"{ledger.num_complete} + {ledger.num_reserved} frames in storage")
        self._last_progress = self.now
        self._is_busy = True
        self.at(self.plan.infer_s, self._inferred, batch, frames)

    def _check_batch(self, batch: Infer) -> None:
        rows = sum(len(item.rows) for item in batch.items)
        if not rows:
            self.fault("an empty batch")
        roles = {item.group.member.role for item in batch.items}
        if roles != {Role.EVAL if batch.evaluation else Role.TRAIN}:
            self.fault("evaluation and training in one batch")
        for item in batch.items:
            cg = self.by_group[item.group]
            trained_on = [
                not (batch.evaluation or tainted) and seat == LEARNER
                for tainted, seat in zip(cg.is_tainted, cg.seats, strict=True)
            ]
            expected = [trained_on[row] for row in item.rows.tolist()]
            if item.learner.tolist() != expected:
                self.fault("a cell for a row that is not to be trained on, or none for one that is")
        self._check_seats(batch)
        if batch.evaluation:
            self.evaluated_while_closed += not self.scheduler.is_open
        ledger = self.scheduler.ledger
        before = ledger.num_complete + ledger.num_reserved - len(batch.cells)
        if len(batch.cells) and before >= self.plan.target:
            self.fault(f"learner rows inferred while closed ({before} of {self.plan.target})")

    def _check_seats(self, batch: Infer) -> None:
        """Every asking row is played by whom its client expects."""
        expected = [
            self.by_group[item.group].seats[row]
            for item in batch.items
            for row in item.rows.tolist()
        ]
        got = [LEARNER] * len(expected) if batch.seats is None else batch.seats.tolist()
        if got != expected:
            self.fault(f"rows played by {got} and not by {expected}")
        self.rows_of_others += sum(map(bool, got))

    def _inferred(self, batch: Infer, frames: list[list[Frame | None]]) -> None:
        self._is_busy = False
        self.scheduler.inferred(self.now)
        for item, made in zip(batch.items, frames, strict=True):
            self._answer(item.group, item, made)
        self.advance()

    def _learn(self, command: Learn) -> None:
        if self._is_busy or self.is_rested:
            self.fault("learning while learning, inferring or at rest")
        self.books.apply(command.effects)
        frames = self.books.learn(command.cells.tolist())
        if len(frames) < self.plan.target:
            self.fault(f"learning from {len(frames)} of {self.plan.target} frames")
        names = self._slot_names
        self.learned.append([(names[f.slot], f.ordinal, f.episode, f.step) for f in frames])
        self.learned_at.append(self.now)
        self._last_progress = self.now
        self._is_busy = True
        self.at(self.plan.learn_s, self._learned)

    def _learned(self) -> None:
        self._is_busy = False
        self._last_progress = self.now
        self._learned_at.append(self.now)
        version = self.scheduler.ledger.version + 1
        if len(self.learned) in self.plan.restarts_at_learn:
            self.restarts.ask()
        self.scheduler.learned(self.now, version=version, target=self.plan.target)
        self.advance()

    def _check_notice(self, notice: Notice) -> None:
        if notice.kind not in ("quorum", "revoked", "dispatch") or not notice.message:
            self.fault(f"an odd notice: {notice}")
        if notice.kind == "quorum":
            name = notice.message.split(" ", 1)[0]
            is_out = "no longer" in notice.message
            if (name in self._out_of_quorum) == is_out:
                self.fault(f"{name} changed to what it was: {notice.message}")
            (self._out_of_quorum.add if is_out else self._out_of_quorum.discard)(name)

    def forget_punctuality(self, group: Group) -> None:
        """Whatever this group was, it is on time until it proves otherwise."""
        self._out_of_quorum.discard(f"{group.member.name}/{group.index}")

    def _check_discards(self) -> None:
        given_up = self.given_up
        if given_up[Discard.STALE] or given_up[Discard.BUFFER_FULL]:
            self.fault("stale or without room: zero by construction")
        discarded = {reason.value for reason, count in given_up.items() if count}
        if self.plan.is_calm and not self.ended_run and not discarded <= {"cut"}:
            self.fault(f"frames discarded as {sorted(discarded)} though nothing went wrong")

    # --- what happens to a run ----------------------------------------------------------

    def meet(self, index: int, sizes: tuple[int, ...], role: Role, *, mid: bool = False) -> None:
        """A session joins; ``mid``: its environments are in the middle of episodes."""
        if role is Role.TRAIN and not self.scheduler.accepts_train_sessions:
            return
        member = self.scheduler.join(f"client-{index}", role, sizes, self.now)
        client = Client(index, sizes, role, member)
        for k, size in enumerate(sizes):
            chance = random.Random(f"{self.seed}-{index}-{k}")
            cg = ClientGroup(client, k, size, chance, member.groups[k])
            cg.is_unknown = [mid] * size
            cg.is_open = list(cg.is_unknown)
            cg.is_resetting = [False] * size
            cg.is_tainted = [False] * size
            cg.seats = [LEARNER] * size
            cg.frames = [None] * size
            cg.observations = [0] * size
            client.groups.append(cg)
            self.by_group[cg.group] = cg
            self._slot_names += [f"{index}.{k}.{row}" for row in range(size)]
            self._slot_client += [index] * size
            if not (self.plan.silent_group and index == 0 and k == 1):
                self.at(self.timing.random() * 0.01, self.step, cg)
        self.clients.append(client)
        in_use = self.scheduler.slots_in_use
        self.max_slots_in_use = max(self.max_slots_in_use, in_use)

    def _living(self) -> list[Client]:
        return [
            c
            for c in self.clients
            if not (c.is_gone or c.is_leaving or c.is_absent) and c.role is Role.TRAIN
        ]

    def _join(self) -> None:
        self.meet(len(self.clients) + 10, (2,) * self.timing.choice((1, 2)), Role.TRAIN)
        self.advance()

    def _leave(self) -> None:
        if len(self._living()) > 1:
            self.timing.choice(self._living()).is_leaving = True

    def _quit(self) -> None:
        if len(self._living()) > 1:
            self._gone(self.timing.choice(self._living()))

    def _cut(self) -> None:
        """A connection breaks and the client comes back later as a new session."""
        if self._living():
            client = self.timing.choice(self._living())
            self._gone(client)
            self.come_back(client, 0.3 * self.timing.random())

    def come_back(self, client: Client, delay: float) -> None:
        self.at(delay, self._rejoin, client.index + 100, client.sizes)

    def _rejoin(self, index: int, sizes: tuple[int, ...]) -> None:
        self.meet(index, sizes, Role.TRAIN, mid=True)
        self.advance()

    def _hang(self) -> None:
        if self._living():
            client = self.timing.choice(self._living())
            client.hung_until = self.now + self.timing.random() * 1.5

    def _pause(self) -> None:
        self.ask_for_rest()

    def ask_for_rest(self) -> None:
        if self._rest_asked_at is None:
            self._rest_asked_at = self.now
            self.scheduler.rest(self.now)
            self.advance()

    def _rested(self) -> None:
        self.rests += 1
        self.is_rested = True
        if self.scheduler.ledger.num_reserved:
            self.fault("at rest with reserved cells")
        assert self._rest_asked_at is not None
        since = max([self._rest_asked_at, *self._learned_at[-1:]])
        waited = self.now - since >= self.plan.config.close_wait_s
        awaited = any(
            group.waiting is None and group.entered and not self._is_late(group)
            for client in self.clients
            if not client.is_gone and client.role is Role.TRAIN
            for group in client.member.groups
        )
        if awaited and (self.plan.config.deterministic or not waited):
            self.fault("at rest without everybody's request")
        if not self.restarts.rested():
            self.at(0.1, self._resume, self.rests)

    def _is_late(self, group: Group) -> bool:
        """Nobody waits for a group that has left the quorum, or whose turn is late."""
        dispatcher = self.scheduler.dispatcher
        return not self.plan.config.deterministic and dispatcher.late_at(group) <= self.now

    def _resume(self, rest: int) -> None:
        if rest != self.rests or not self.is_rested:
            return
        self._rest_asked_at = None
        self.is_rested = False
        self._last_progress = self.now
        self.scheduler.resume(self.now)
        self.advance()

    def begin_process(self) -> Scheduler:
        """The server is another process from now on, and remembers nothing."""
        version = self.scheduler.ledger.version
        self.scheduler = self._make_scheduler(self.plan.config, target=self.plan.target)
        self.scheduler.ledger.version = version
        self.ledgers.append(self.scheduler.ledger)
        self._rest_asked_at = self._wake_at = None
        self.is_rested = False
        self._last_progress = self.now
        return self.scheduler

    def _gone(self, client: Client) -> None:
        client.is_gone = True
        self.scheduler.leave(client.member, self.now)
        self.advance()

    def _timed_out(self, member: Member) -> None:
        client = next(c for c in self.clients if c.member is member)
        client.is_gone, client.is_absent = True, False
        if client.role is Role.TRAIN and not self.plan.silent_group:
            self.come_back(client, max(0.0, client.hung_until - self.now) + 0.1)

    # --- the clients' side ---------------------------------------------------------------

    def step(self, cg: ClientGroup) -> None:
        client = cg.client
        if client.is_gone:
            return
        if client.hung_until > self.now:
            self.at(client.hung_until - self.now, self.step, cg)
            return
        make = closing_request if client.is_leaving else next_request
        request = make(cg, self.plan)
        cg.owes_answer = True
        self.at(self.timing.random() * self.plan.jitter_s, self._arrive, cg, request)

    def _arrive(self, cg: ClientGroup, request: Request) -> None:
        if cg.client.is_gone:
            return
        if cg.group.waiting is not None:
            self.fault("two requests of one group at the server")
        self._expect(cg, request)
        self.requests += 1
        self.scheduler.request(cg.group, request, self.now)
        self.advance()

    def _expect(self, cg: ClientGroup, request: Request) -> None:
        """Keep the world's own books of what this request must count for."""
        if cg.client.role is Role.EVAL:
            return
        sent: Sent = request.payload
        self.books.arrived(sent)
        feedback, observation = request.invalid_feedback, request.invalid_observation
        for row in range(cg.size):
            bad_feedback = feedback is not None and bool(feedback[row])
            bad_observation = observation is not None and bool(observation[row])
            if request.ended[row]:
                cg.is_tainted[row] = bad_observation
            elif bad_feedback or bad_observation:
                cg.is_tainted[row] = True

    def _answer(self, group: Group, item: InferItem | None, frames: list[Frame | None]) -> None:
        cg = self.by_group[group]
        if not cg.owes_answer:
            self.fault("an answer to no request")
        cg.owes_answer = False
        self.at(self.timing.random() * self.plan.jitter_s, self._acted, cg, item, frames)

    def _acted(self, cg: ClientGroup, item: InferItem | None, frames: list[Frame | None]) -> None:
        client = cg.client
        if client.is_gone:
            return
        if item is not None:
            for row, frame in zip(item.rows.tolist(), frames, strict=True):
                cg.is_open[row] = True
                cg.frames[row] = frame
        elif client.is_leaving and not any(cg.is_open):
            cg.is_done = True
            if all(other.is_done for other in client.groups):
                self._gone(client)
            return
        low, high = self.plan.step_s
        slowness = self.plan.slow.get(client.index, 1.0)
        self.at(self.timing.uniform(low, high) * slowness, self.step, cg)
