"""A discrete-event world around the real scheduler core: clients, links, a model, a clock.

Nothing sleeps and nothing is threaded: events lie on a heap, time jumps from one to the next.
All chance comes from two seeds: ``seed`` decides what clients *do* (episodes, silent rows),
``timing_seed`` when messages arrive. The world calls `Scheduler.advance` only after an event
or at ``wake_at``, as the server does, keeps books of its own and compares them: ``faults``
lists every broken promise.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from royale_server.scheduler import (
    Answer,
    Bootstrap,
    Bridge,
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
    Record,
    Request,
    Rested,
    Role,
    Scheduler,
    SchedulerConfig,
)

WAKE_LATENESS_S = 1e-6
MOST_FRUITLESS_WAKES = 1000
NEW_EPISODE = 2
"""Observations of an episode are numbered one by one; a new episode skips a number."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One schedule. Times in seconds of the simulated clock."""

    sessions: tuple[tuple[int, ...], ...] = ((2,), (2,), (2,))
    target: int = 50
    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    mode: str = "same"
    """same: every row always asks; next: an ended row is silent once; turn: rows ask at random."""
    slow: dict[int, float] = field(default_factory=dict)
    """Multiplier of the step time of the session with this index."""
    step_s: tuple[float, float] = (0.005, 0.02)
    jitter_s: float = 0.003
    infer_s: float = 0.0005
    learn_s: float = 0.05
    end_probability: float = 0.05
    invalid_probability: float = 0.0
    """How often a row's reward or observation is not finite."""
    duration_s: float = 3.0
    max_learns: int | None = None
    joins: int = 0
    leaves: int = 0
    """Clients that say goodbye after a last step that closes every open row."""
    quits: int = 0
    """Clients that say goodbye, or are killed, without it."""
    cuts: int = 0
    hangs: int = 0
    pauses: int = 0
    silent_group: bool = False
    """The second group of the first session never sends its first step."""
    evaluators: int = 0
    stall_s: float = 2.2
    """Nothing dispatched or learned for so long with healthy sessions around is a deadlock."""

    @property
    def is_calm(self) -> bool:
        """Nothing is late, lost or invalid: no frame but `cut` may be discarded."""
        troubles = (self.quits, self.cuts, self.hangs, self.slow, self.invalid_probability)
        return not (any(troubles) or self.silent_group)


@dataclass(slots=True, eq=False)
class Frame:
    """What the world knows of a cell."""

    slot: int
    ordinal: int
    observation: int
    version: int
    is_complete: bool = False
    ended: bool = False
    has_value: bool = False


@dataclass(slots=True, eq=False)
class Sent:
    """What a client put into a request: which frames it answers for, what it shows."""

    start: int
    frames: list[Frame | None]
    observations: list[int]
    no_state: int
    """Rows that settle an action of which this session's server knows nothing."""
    without_cell: int
    """Rows that settle an action that was answered without a cell."""


@dataclass(slots=True, eq=False)
class ClientGroup:
    client: Client
    index: int
    size: int
    chance: random.Random
    group: Group
    number: int = 0
    is_open: list[bool] = field(default_factory=list)
    """Rows with an action that is still being carried out."""
    is_unknown: list[bool] = field(default_factory=list)
    """Rows whose open action this session's server knows nothing of."""
    is_resetting: list[bool] = field(default_factory=list)
    is_tainted: list[bool] = field(default_factory=list)
    frames: list[Frame | None] = field(default_factory=list)
    observations: list[int] = field(default_factory=list)
    owes_answer: bool = False
    is_done: bool = False


@dataclass(eq=False)
class Client:
    index: int
    sizes: tuple[int, ...]
    role: Role
    member: Member
    groups: list[ClientGroup] = field(default_factory=list)
    is_gone: bool = False
    is_leaving: bool = False
    hung_until: float = 0.0


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
        self.scheduler = make_scheduler(plan.config, target=plan.target)
        self.clients: list[Client] = []
        self.learned: list[list[tuple[str, int]]] = []
        """For each learn step the frames as (client slot name, ordinal), in cell order."""
        self.learned_at: list[float] = []
        self.stored_by_client: Counter[int] = Counter()
        self.notices: list[Notice] = []
        self.ended_run: str | None = None
        self.max_slots_in_use = 0
        self.max_in_storage = 0
        self.evaluated_rows = 0
        self.evaluated_while_closed = 0
        self.timeouts = 0
        self.rests = 0
        self.requests = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._wake_at: float | None = None
        self._fruitless_wakes = 0
        self._last_progress = 0.0
        self._rest_asked_at: float | None = None
        self._is_rested = False
        self._is_busy = False
        self._by_group: dict[Group, ClientGroup] = {}
        self._slot_names: list[str] = []
        self._slot_client: list[int] = []
        self._cells: dict[int, Frame] = {}
        self._inferred_frames = 0
        self._stored_frames = 0
        self._given_up_frames = 0
        self._no_state_frames = 0
        self._without_cell_frames = 0
        self._is_out: dict[str, bool] = {}

    # --- the clock ---------------------------------------------------------------------

    def at(self, delay: float, what: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), what, args))

    def run(self) -> World:
        plan = self.plan
        for index, sizes in enumerate(plan.sessions):
            self._meet(index, sizes, Role.TRAIN)
        for index in range(plan.evaluators):
            self._meet(1000 + index, (2,), Role.EVAL)
        happenings = (
            (self._join, plan.joins),
            (self._leave, plan.leaves),
            (self._quit, plan.quits),
            (self._cut, plan.cuts),
            (self._hang, plan.hangs),
            (self._pause, plan.pauses),
        )
        for happening, times in happenings:
            for _ in range(times):
                self.at(min(plan.duration_s, 3.0) * (0.05 + 0.6 * self.timing.random()), happening)
        self.at(0.1, self._watch)
        self._advance()
        events = self._events
        while events and not self.faults and not self.ended_run:
            self.now, _, what, args = heapq.heappop(events)
            if self.now > plan.duration_s:
                break
            what(*args)
            if plan.max_learns and len(self.learned) >= plan.max_learns:
                break
        self._check_notices()
        self._check_discards()
        return self

    def _watch(self) -> None:
        """Look for deadlock and starvation from outside: it never calls the scheduler."""
        self.at(0.1, self._watch)
        slow = self.plan.slow
        awake = [c for c in self.clients if not c.is_gone and c.hung_until <= self.now]
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

    def fault(self, text: str) -> None:
        self.faults.append(f"t={self.now:.4f}: {text}")

    # --- the server's side of the world -----------------------------------------------

    def _advance(self) -> None:
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
        self._advance()

    def _carry_out(self, command: Command) -> None:
        match command:
            case Infer():
                self._infer(command)
            case Answer(group=group):
                if self._is_rested:
                    self.fault("a silent request answered at rest")
                self._answer(group, None, [])
            case Learn():
                self._learn(command)
            case Notice():
                self.notices.append(command)
            case EndSession(member=member):
                self.timeouts += 1
                self._timed_out(member)
            case EndRun(message=message):
                self.ended_run = message
            case Rested():
                self._rested()

    def _apply(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Record():
                    self._record(effect)
                case Bridge(cells=cells, successors=successors):
                    for cell, successor in zip(cells.tolist(), successors.tolist(), strict=True):
                        after = self._cells[successor]
                        if after.is_complete:
                            self.fault("bridged to a frame that is complete")
                        self._value(cell, after.slot, after.observation)
                case Bootstrap(request=request, rows=rows, cells=cells):
                    sent: Sent = request.payload
                    for row, cell in zip(rows.tolist(), cells.tolist(), strict=True):
                        shown = sent.observations[row]
                        self._value(cell, sent.start + row, shown)

    def _record(self, record: Record) -> None:
        sent: Sent = record.request.payload
        ended = record.request.ended.tolist()
        rows, cells = record.rows.tolist(), record.cells.tolist()
        for row, cell, finished in zip(rows, cells, record.finished.tolist(), strict=True):
            frame = self._cells[cell]
            if frame is not sent.frames[row]:
                self.fault(f"an outcome of slot {sent.start + row} went to another frame")
            if frame.is_complete:
                self.fault(f"frame {frame.slot}/{frame.ordinal} stored twice")
            if finished:
                frame.is_complete = True
                frame.ended = ended[row]
                self._stored_frames += 1
                self.stored_by_client[self._slot_client[frame.slot]] += 1

    def _value(self, cell: int, slot: int, observation: int) -> None:
        """A frame gets the value of an observation as its successor's."""
        frame = self._cells.get(cell)
        if frame is None:
            self.fault(f"a value for cell {cell}, which holds no frame")
            return
        if not frame.is_complete or frame.ended:
            self.fault(f"frame {frame.slot}/{frame.ordinal} needs no successor value")
        if frame.slot != slot or frame.observation + 1 != observation:
            self.fault(f"frame {frame.slot}/{frame.ordinal} got the value of another observation")
        frame.has_value = True

    def _infer(self, batch: Infer) -> None:
        if self._is_busy or self._is_rested:
            self.fault("inference while learning, inferring or at rest")
        self._apply(batch.effects)
        self._check_batch(batch)
        frames = self._reserve(batch)
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
            tainted = self._by_group[item.group].is_tainted
            expected = [not batch.evaluation and not tainted[row] for row in item.rows.tolist()]
            if item.learner.tolist() != expected:
                self.fault("a cell for a row that is not to be trained on, or none for one that is")
        if batch.evaluation:
            self.evaluated_rows += rows
            self.evaluated_while_closed += not self.scheduler.is_open
        ledger = self.scheduler.ledger
        before = ledger.num_complete + ledger.num_reserved - len(batch.cells)
        if len(batch.cells) and before >= self.plan.target:
            self.fault(f"learner rows inferred while closed ({before} of {self.plan.target})")

    def _reserve(self, batch: Infer) -> list[list[Frame | None]]:
        ledger = self.scheduler.ledger
        made: list[list[Frame | None]] = []
        pairs = zip(
            batch.cells.tolist(), batch.cell_slots.tolist(), batch.ordinals.tolist(), strict=True
        )
        for item in batch.items:
            sent: Sent = item.request.payload
            row_frames: list[Frame | None] = []
            for row, learner in zip(item.rows.tolist(), item.learner.tolist(), strict=True):
                if not learner:
                    row_frames.append(None)
                    continue
                cell, slot, ordinal = next(pairs)
                if slot != sent.start + row:
                    self.fault("cells and rows of a batch are out of step")
                frame = Frame(slot, ordinal, sent.observations[row], ledger.version)
                self._forget(cell)
                self._cells[cell] = frame
                self._inferred_frames += 1
                row_frames.append(frame)
            made.append(row_frames)
        in_storage = ledger.num_complete + ledger.num_reserved
        self.max_in_storage = max(self.max_in_storage, in_storage)
        if in_storage >= self.plan.target + self.max_slots_in_use:
            self.fault(f"{in_storage} frames in storage")
        return made

    def _forget(self, cell: int) -> None:
        """A cell is used anew: its frame must have been given up."""
        old = self._cells.pop(cell, None)
        if old is not None:
            self._given_up_frames += 1
            if old.is_complete:
                self.fault(f"frame {old.slot}/{old.ordinal} overwritten before it was learned from")

    def _inferred(self, batch: Infer, frames: list[list[Frame | None]]) -> None:
        self._is_busy = False
        self.scheduler.inferred(self.now)
        for item, made in zip(batch.items, frames, strict=True):
            self._answer(item.group, item, made)
        self._advance()

    def _learn(self, command: Learn) -> None:
        if self._is_busy or self._is_rested:
            self.fault("learning while learning, inferring or at rest")
        self._apply(command.effects)
        self._check_books()
        cells = command.cells.tolist()
        if len(cells) < self.plan.target:
            self.fault(f"learning from {len(cells)} of {self.plan.target} frames")
        if cells != sorted(c for c, frame in self._cells.items() if frame.is_complete):
            self.fault("learning from other cells than the complete ones")
        frames = [self._cells[cell] for cell in cells]
        self._check_frames(frames)
        self.learned.append([(self._slot_names[f.slot], f.ordinal) for f in frames])
        self.learned_at.append(self.now)
        self._cells.clear()
        self._last_progress = self.now
        self._is_busy = True
        self.at(self.plan.learn_s, self._learned)

    def _check_books(self) -> None:
        ledger = self.scheduler.ledger
        if ledger.num_reserved:
            self.fault(f"learning with {ledger.num_reserved} cells reserved")
        if ledger.conservation_error:
            self.fault(f"{ledger.conservation_error} frames unaccounted for")
        self._given_up_frames += sum(not frame.is_complete for frame in self._cells.values())
        books = (
            (ledger.reserved_total, self._inferred_frames, "reserved"),
            (ledger.stored_total, self._stored_frames, "stored"),
            (ledger.discarded_total, self._given_up_frames, "given up"),
            (ledger.no_state_total, self._no_state_frames, "without state"),
            (ledger.without_cell_total, self._without_cell_frames, "without cell"),
        )
        for got, expected, what in books:
            if got != expected:
                self.fault(f"{got} frames {what}, the world counted {expected}")

    def _check_frames(self, frames: Sequence[Frame]) -> None:
        shown = {(frame.slot, frame.ordinal): frame.observation for frame in frames}
        version = self.scheduler.ledger.version
        for frame in frames:
            if frame.version != version:
                self.fault(f"learning version {version} from a frame of {frame.version}")
            follower = shown.get((frame.slot, frame.ordinal + 1))
            is_followed = follower == frame.observation + 1
            if not (is_followed or frame.ended or frame.has_value):
                self.fault(f"frame {frame.slot}/{frame.ordinal} has no successor value")

    def _learned(self) -> None:
        self._is_busy = False
        self._last_progress = self.now
        version = self.scheduler.ledger.version + 1
        self.scheduler.learned(self.now, version=version, target=self.plan.target)
        self._advance()

    def _check_notices(self) -> None:
        for notice in self.notices:
            if notice.kind not in ("quorum", "revoked", "dispatch") or not notice.message:
                self.fault(f"an odd notice: {notice}")
            if notice.kind == "quorum":
                name = notice.message.split(" ", 1)[0]
                is_out = "no longer" in notice.message
                if self._is_out.get(name, False) == is_out:
                    self.fault(f"{name} changed to what it was: {notice.message}")
                self._is_out[name] = is_out

    def _check_discards(self) -> None:
        given_up = self.scheduler.ledger.given_up
        if given_up[Discard.STALE] or given_up[Discard.BUFFER_FULL]:
            self.fault("stale or without room: zero by construction")
        discarded = {reason.value for reason, count in given_up.items() if count}
        if self.plan.is_calm and not self.ended_run and not discarded <= {"cut"}:
            self.fault(f"frames discarded as {sorted(discarded)} though nothing went wrong")

    # --- what happens to a run ----------------------------------------------------------

    def _meet(self, index: int, sizes: tuple[int, ...], role: Role, *, mid: bool = False) -> None:
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
            cg.frames = [None] * size
            cg.observations = [0] * size
            client.groups.append(cg)
            self._by_group[cg.group] = cg
            self._slot_names += [f"{index}.{k}.{row}" for row in range(size)]
            self._slot_client += [index] * size
            if not (self.plan.silent_group and index == 0 and k == 1):
                self.at(self.timing.random() * 0.01, self._step, cg)
        self.clients.append(client)
        in_use = self.scheduler.slots_in_use
        self.max_slots_in_use = max(self.max_slots_in_use, in_use)

    def _living(self) -> list[Client]:
        return [
            c for c in self.clients if not c.is_gone and not c.is_leaving and c.role is Role.TRAIN
        ]

    def _join(self) -> None:
        self._meet(len(self.clients) + 10, (2,) * self.timing.choice((1, 2)), Role.TRAIN)
        self._advance()

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
            self._come_back(client, 0.3 * self.timing.random())

    def _come_back(self, client: Client, delay: float) -> None:
        self.at(delay, self._rejoin, client.index + 100, client.sizes)

    def _rejoin(self, index: int, sizes: tuple[int, ...]) -> None:
        self._meet(index, sizes, Role.TRAIN, mid=True)
        self._advance()

    def _hang(self) -> None:
        if self._living():
            client = self.timing.choice(self._living())
            client.hung_until = self.now + self.timing.random() * 1.5

    def _pause(self) -> None:
        if self._rest_asked_at is None:
            self._rest_asked_at = self.now
            self.scheduler.rest(self.now)
            self._advance()

    def _rested(self) -> None:
        self.rests += 1
        self._is_rested = True
        if self.scheduler.ledger.num_reserved:
            self.fault("at rest with reserved cells")
        assert self._rest_asked_at is not None
        waited = self.now - self._rest_asked_at >= self.plan.config.close_wait_s
        here = all(
            group.waiting is not None or not group.entered
            for client in self.clients
            if not client.is_gone and client.role is Role.TRAIN
            for group in client.member.groups
        )
        if not here and (self.plan.config.deterministic or not waited):
            self.fault("at rest without everybody's request")
        self.at(0.1, self._resume)

    def _resume(self) -> None:
        self._rest_asked_at = None
        self._is_rested = False
        self._last_progress = self.now
        self.scheduler.resume(self.now)
        self._advance()

    def _gone(self, client: Client) -> None:
        client.is_gone = True
        self.scheduler.leave(client.member, self.now)
        self._advance()

    def _timed_out(self, member: Member) -> None:
        client = next(c for c in self.clients if c.member is member)
        client.is_gone = True
        if client.role is Role.TRAIN and not self.plan.silent_group:
            self._come_back(client, max(0.0, client.hung_until - self.now) + 0.1)

    # --- the clients' side ---------------------------------------------------------------

    def _step(self, cg: ClientGroup) -> None:
        client = cg.client
        if client.is_gone:
            return
        if client.hung_until > self.now:
            self.at(client.hung_until - self.now, self._step, cg)
            return
        request = self._closing_request(cg) if client.is_leaving else self._request(cg)
        cg.owes_answer = True
        self.at(self.timing.random() * self.plan.jitter_s, self._arrive, cg, request)

    def _request(self, cg: ClientGroup) -> Request:
        """What the environments show after the last actions."""
        has_feedback = cg.number > 0 or any(cg.is_open)
        rows = [self._row(cg, row, first=cg.number == 0) for row in range(cg.size)]
        return self._made(cg, [a for a, _ in rows], [e for _, e in rows], has_feedback)

    def _closing_request(self, cg: ClientGroup) -> Request:
        """The last step before goodbye: every open row truncated, nobody asks."""
        return self._made(cg, [False] * cg.size, list(cg.is_open), cg.number > 0 or any(cg.is_open))

    def _row(self, cg: ClientGroup, row: int, *, first: bool) -> tuple[bool, bool]:
        """Whether the row asks, and whether its episode ended."""
        plan, chance = self.plan, cg.chance
        if cg.is_resetting[row]:
            cg.is_resetting[row] = False
            return True, False
        if not cg.is_open[row]:
            is_out = plan.mode == "turn" and first and chance.random() < 0.3
            return not is_out, False
        ended = chance.random() < plan.end_probability
        if plan.mode == "next" and ended:
            cg.is_resetting[row] = True
            return False, True
        if plan.mode == "turn" and not ended:
            return chance.random() < 0.5, False
        return True, ended

    def _made(
        self, cg: ClientGroup, asks: list[bool], ended: list[bool], has_feedback: bool
    ) -> Request:
        bad_feedback, bad_observation = self._nonfinite(cg, asks, ended)
        sent = Sent(cg.group.start, list(cg.frames), [], 0, 0)
        for row in range(cg.size):
            if cg.is_open[row] and (asks[row] or ended[row]):
                sent.no_state += cg.is_unknown[row]
                sent.without_cell += cg.frames[row] is None and not cg.is_unknown[row]
                cg.is_open[row] = cg.is_unknown[row] = False
                cg.frames[row] = None
            if asks[row]:
                cg.observations[row] += NEW_EPISODE if ended[row] or not cg.number else 1
            elif ended[row]:
                cg.observations[row] += 1
        sent.observations = list(cg.observations)
        cg.number += 1
        request = Request(
            number=cg.number,
            asks=np.array(asks),
            ended=np.array(ended),
            has_feedback=has_feedback,
            payload=sent,
        )
        if any(bad_feedback) or any(bad_observation):
            request.invalid_feedback = np.array(bad_feedback)
            request.invalid_observation = np.array(bad_observation)
        return request

    def _nonfinite(
        self, cg: ClientGroup, asks: list[bool], ended: list[bool]
    ) -> tuple[list[bool], list[bool]]:
        often = self.plan.invalid_probability
        feedback = [
            bool(often) and is_open and cg.chance.random() < often for is_open in cg.is_open
        ]
        observation = [bool(often) and ask and cg.chance.random() < often for ask in asks]
        return feedback, observation

    def _arrive(self, cg: ClientGroup, request: Request) -> None:
        if cg.client.is_gone:
            return
        if cg.group.waiting is not None:
            self.fault("two requests of one group at the server")
        self._expect(cg, request)
        self.requests += 1
        self.scheduler.request(cg.group, request, self.now)
        self._advance()

    def _expect(self, cg: ClientGroup, request: Request) -> None:
        """Keep the world's own books of what this request must count for."""
        if cg.client.role is Role.EVAL:
            return
        sent: Sent = request.payload
        self._no_state_frames += sent.no_state
        self._without_cell_frames += sent.without_cell
        feedback, observation = request.invalid_feedback, request.invalid_observation
        for row in range(cg.size):
            bad_feedback = feedback is not None and bool(feedback[row])
            bad_observation = observation is not None and bool(observation[row])
            if request.ended[row]:
                cg.is_tainted[row] = bad_observation
            elif bad_feedback or bad_observation:
                cg.is_tainted[row] = True

    def _answer(self, group: Group, item: InferItem | None, frames: list[Frame | None]) -> None:
        cg = self._by_group[group]
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
        self.at(self.timing.uniform(low, high) * slowness, self._step, cg)
