"""A discrete-event world around the real scheduler core: clients, links, a model, a clock.

Nothing sleeps and nothing is threaded: events lie on a heap, time jumps from one to the next,
and all chance comes from two seeds. ``seed`` decides what clients *do* (episodes, silent
rows); ``timing_seed`` decides when messages arrive. A deterministic run must not depend on
the second.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from royale_server.scheduler import (
    Answer,
    Bootstrap,
    Bridge,
    EndRun,
    EndSession,
    Infer,
    Learn,
    Notice,
    Record,
    Request,
    Rested,
    Role,
    Scheduler,
    SchedulerConfig,
)


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
    duration_s: float = 3.0
    max_learns: int | None = None
    joins: int = 0
    leaves: int = 0
    cuts: int = 0
    hangs: int = 0
    pauses: int = 0
    silent_group: bool = False
    """The second group of the first session never sends its first step."""
    evaluators: int = 0
    stall_s: float = 2.0
    """Nothing dispatched for so long with healthy sessions around is a deadlock."""


@dataclass(eq=False)
class ClientGroup:
    client: Client
    index: int
    size: int
    chance: random.Random
    number: int = 0
    has_action: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    resetting: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    group: Any = None


@dataclass(eq=False)
class Client:
    index: int
    sizes: tuple[int, ...]
    role: Role
    groups: list[ClientGroup] = field(default_factory=list)
    member: Any = None
    gone: bool = False
    hung_until: float = 0.0


class World:
    """Runs one plan; `faults` lists every broken promise."""

    def __init__(self, plan: Plan, *, seed: int, timing_seed: int | None = None) -> None:
        self.plan = plan
        self.seed = seed
        self.timing = random.Random(seed + 7 if timing_seed is None else timing_seed)
        self.now = 0.0
        self.faults: list[str] = []
        self.scheduler = Scheduler(plan.config, target=plan.target)
        self.clients: list[Client] = []
        self.learned: list[list[tuple[str, int]]] = []
        """For each learn step the frames as (client slot name, ordinal), in cell order."""
        self.ended_run: str | None = None
        self.max_in_storage = 0
        self.dispatched_rows = {"train": 0, "eval": 0}
        self.eval_while_closed = 0
        self.timeouts = 0
        self.rests = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._last_progress = 0.0
        self._slot_names: dict[int, str] = {}
        self._frames: dict[int, tuple[int, int]] = {}
        self._ended_cells: set[int] = set()
        self._known_values: set[int] = set()
        self._stored: set[tuple[int, int]] = set()
        self._busy_until = 0.0

    # --- the clock ---------------------------------------------------------------------

    def at(self, delay: float, what: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), what, args))

    def run(self) -> World:
        plan = self.plan
        for index, sizes in enumerate(plan.sessions):
            self._meet(index, sizes, Role.TRAIN)
        for index in range(plan.evaluators):
            self._meet(1000 + index, (2,), Role.EVAL)
        for happening, times in (
            (self._join, plan.joins),
            (self._leave, plan.leaves),
            (self._cut, plan.cuts),
            (self._hang, plan.hangs),
            (self._pause, plan.pauses),
        ):
            for _ in range(times):
                self.at(plan.duration_s * (0.05 + 0.6 * self.timing.random()), happening)
        self.at(0.05, self._tick)
        while self._events and self.now < plan.duration_s and not self.faults:
            self.now, _, what, args = heapq.heappop(self._events)
            what(*args)
            self._advance()
            if self.ended_run or (plan.max_learns and len(self.learned) >= plan.max_learns):
                break
        return self

    def _tick(self) -> None:
        self.at(0.05, self._tick)
        healthy = any(not c.gone and c.hung_until <= self.now for c in self.clients)
        if not healthy:
            self._last_progress = self.now
        elif self.now - self._last_progress > self.plan.stall_s:
            ledger = self.scheduler.ledger
            self.fault(
                f"deadlock: open={self.scheduler.is_open} reserved={ledger.num_reserved}"
                f" complete={ledger.num_complete}"
            )

    def fault(self, text: str) -> None:
        self.faults.append(f"t={self.now:.3f}: {text}")

    # --- the server's side of the world -----------------------------------------------

    def _advance(self) -> None:
        for command in self.scheduler.advance(self.now):
            match command:
                case Infer():
                    self._infer(command)
                case Learn():
                    self._learn(command)
                case Answer(group=group, request=request):
                    self._answer(group, np.zeros(group.size, bool), request)
                case EndSession(member=member):
                    self.timeouts += 1
                    self._ended(member)
                case EndRun(message=message):
                    self.ended_run = message
                case Rested():
                    self._rested()
                case Notice():
                    pass
        if self.scheduler.wake_at is not None:
            self.at(max(0.0, self.scheduler.wake_at - self.now) + 1e-6, lambda: None)

    def _apply(self, effects: Any) -> None:
        for effect in effects:
            match effect:
                case Record():
                    ended = effect.request.ended[effect.rows]
                    done = effect.cells[effect.finished]
                    for cell, is_end in zip(done, ended[effect.finished], strict=True):
                        if self._frames[cell] in self._stored:
                            self.fault(f"frame {self._frames[cell]} stored twice")
                        self._stored.add(self._frames[cell])
                        if is_end:
                            self._ended_cells.add(cell)
                case Bridge(cells=cells) | Bootstrap(cells=cells):
                    self._known_values.update(cells.tolist())

    def _infer(self, batch: Infer) -> None:
        self._apply(batch.effects)
        ledger, plan = self.scheduler.ledger, self.plan
        kind = "eval" if batch.evaluation else "train"
        self.dispatched_rows[kind] += sum(len(item.rows) for item in batch.items)
        if batch.evaluation and not self.scheduler.is_open:
            self.eval_while_closed += 1
        if len(batch.cells):
            before = ledger.num_complete + ledger.num_reserved - len(batch.cells)
            if before >= plan.target:
                self.fault(f"learner rows inferred while closed ({before} of {plan.target})")
        for cell, slot, ordinal in zip(batch.cells, batch.cell_slots, batch.ordinals, strict=True):
            self._frames[int(cell)] = (int(slot), int(ordinal))
            self._ended_cells.discard(int(cell))
            self._known_values.discard(int(cell))
        self.max_in_storage = max(self.max_in_storage, ledger.num_complete + ledger.num_reserved)
        self._last_progress = self.now
        self._check_starvation()
        self.at(plan.infer_s, self._inferred, batch)

    def _inferred(self, batch: Infer) -> None:
        self.scheduler.inferred(self.now)
        for item in batch.items:
            asked = np.zeros(item.group.size, bool)
            asked[item.rows] = True
            self._answer(item.group, asked, item.request)

    def _learn(self, command: Learn) -> None:
        self._apply(command.effects)
        ledger = self.scheduler.ledger
        if ledger.num_reserved:
            self.fault(f"learning with {ledger.num_reserved} cells reserved")
        if ledger.conservation_error:
            self.fault(f"{ledger.conservation_error} frames unaccounted for")
        if len(command.cells) < self.plan.target:
            self.fault(f"learning from {len(command.cells)} of {self.plan.target} frames")
        self._check_bootstraps(command.cells.tolist())
        frames = [self._frames[cell] for cell in command.cells]
        self.learned.append([(self._slot_names[slot], ordinal) for slot, ordinal in frames])
        self._last_progress = self.now
        self.at(self.plan.learn_s, self._learned)

    def _check_bootstraps(self, cells: list[int]) -> None:
        frames = {self._frames[cell] for cell in cells}
        for cell in cells:
            slot, ordinal = self._frames[cell]
            has_successor = (slot, ordinal + 1) in frames
            if not (has_successor or cell in self._ended_cells or cell in self._known_values):
                self.fault(f"frame {(slot, ordinal)} has no successor value")

    def _learned(self) -> None:
        self._last_progress = self.now
        version = self.scheduler.ledger.version + 1
        self.scheduler.learned(self.now, version=version, target=self.plan.target)

    def _check_starvation(self) -> None:
        for client in self.clients:
            for cg in client.groups:
                waiting = cg.group.waiting if cg.group is not None else None
                if waiting is not None and not client.gone and self.scheduler.is_open:
                    age = self.now - waiting.received_at
                    if age > 0.9 * self.plan.stall_s and self._rest_free():
                        self.fault(f"group {client.index}.{cg.index} starved for {age:.1f} s")

    def _rest_free(self) -> bool:
        return self.plan.pauses == 0

    # --- what happens to a run ----------------------------------------------------------

    def _meet(self, index: int, sizes: tuple[int, ...], role: Role, *, mid: bool = False) -> None:
        if role is Role.TRAIN and not self.scheduler.accepts_train_sessions:
            return
        client = Client(index=index, sizes=sizes, role=role)
        client.member = self.scheduler.join(f"client-{index}", role, sizes, self.now)
        for k, size in enumerate(sizes):
            cg = ClientGroup(client, k, size, random.Random(f"{self.seed}-{index}-{k}"))
            cg.group = client.member.groups[k]
            cg.has_action = np.full(size, mid)
            cg.resetting = np.zeros(size, bool)
            client.groups.append(cg)
            for row in range(size):
                self._slot_names[cg.group.start + row] = f"{index}.{k}.{row}"
            if not (self.plan.silent_group and index == 0 and k == 1):
                self.at(self.timing.random() * 0.01, self._step, cg)
        self.clients.append(client)

    def _living(self, role: Role = Role.TRAIN) -> list[Client]:
        return [c for c in self.clients if not c.gone and c.role is role]

    def _join(self) -> None:
        self._meet(len(self.clients) + 10, (2,) * self.timing.choice((1, 2)), Role.TRAIN)

    def _leave(self) -> None:
        if len(self._living()) > 1:
            self._gone(self.timing.choice(self._living()))

    def _cut(self) -> None:
        """A connection breaks and the client comes back later as a new session."""
        if self._living():
            client = self.timing.choice(self._living())
            self._gone(client)
            again = (client.index + 100, client.sizes, Role.TRAIN)
            self.at(0.3 * self.timing.random(), lambda: self._meet(*again, mid=True))

    def _hang(self) -> None:
        if self._living():
            client = self.timing.choice(self._living())
            client.hung_until = self.now + self.timing.random() * 1.5

    def _pause(self) -> None:
        self.scheduler.rest(self.now)

    def _rested(self) -> None:
        self.rests += 1
        if self.scheduler.ledger.num_reserved:
            self.fault("at rest with reserved cells")
        self.at(0.1, self._resume)

    def _resume(self) -> None:
        self._last_progress = self.now
        self.scheduler.resume(self.now)

    def _gone(self, client: Client) -> None:
        client.gone = True
        self.scheduler.leave(client.member, self.now)

    def _ended(self, member: Any) -> None:
        for client in self.clients:
            if client.member is member:
                client.gone = True

    # --- the clients' side ---------------------------------------------------------------

    def _step(self, cg: ClientGroup) -> None:
        client = cg.client
        if client.gone:
            return
        if client.hung_until > self.now:
            self.at(client.hung_until - self.now, self._step, cg)
            return
        first = cg.number == 0
        cg.number += 1
        asks = np.zeros(cg.size, bool)
        ended = np.zeros(cg.size, bool)
        for row in range(cg.size):
            asks[row], ended[row] = self._row(cg, row)
        request = Request(
            number=cg.number,
            asks=asks,
            ended=ended,
            has_feedback=not first or bool(cg.has_action.any()),
        )
        cg.has_action &= ~(asks | ended)
        self.at(self.timing.random() * self.plan.jitter_s, self._arrive, cg, request)

    def _row(self, cg: ClientGroup, row: int) -> tuple[bool, bool]:
        """Whether the row asks, and whether its episode ended."""
        if cg.resetting[row]:
            cg.resetting[row] = False
            return True, False
        if not cg.has_action[row]:
            return True, False
        ended = cg.chance.random() < self.plan.end_probability
        if self.plan.mode == "next" and ended:
            cg.resetting[row] = True
            return False, True
        if self.plan.mode == "turn" and not ended:
            return cg.chance.random() < 0.5, False
        return True, ended

    def _arrive(self, cg: ClientGroup, request: Request) -> None:
        if not cg.client.gone:
            self.scheduler.request(cg.group, request, self.now)

    def _answer(self, group: Any, asked: np.ndarray, request: Request) -> None:
        for client in self.clients:
            for cg in client.groups:
                if cg.group is group:
                    self.at(self.timing.random() * self.plan.jitter_s, self._acted, cg, asked)

    def _acted(self, cg: ClientGroup, asked: np.ndarray) -> None:
        cg.has_action |= asked
        low, high = self.plan.step_s
        slowness = self.plan.slow.get(cg.client.index, 1.0)
        self.at(self.timing.uniform(low, high) * slowness, self._step, cg)
