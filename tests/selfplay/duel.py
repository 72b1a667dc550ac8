"""Battles of two seats for tests: a driver that follows assignments, and a server that deals them.

Observations say who plays the row and how far the episode is: learners' are below 1000. Actions say
which policy chose them: four times its version plus a number from the row's noise.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from algorithms.base import Inference
from algorithms.noise import Noise, Purpose
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.driver import Leaves, Turn, farewell
from royale_client.hello import make_hello
from royale_client.loop import EnvLoop
from royale_client.transport import ConnectionLostError
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.seating import (
    Player,
    SeatAssignment,
    read_assignments,
    write_assignments,
)
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves, mask_size
from royale_server.model.engine import Engine
from royale_server.model.opponents import Opponents
from royale_server.saved_run import SavedRun
from royale_server.scheduler import Scheduler
from royale_server.selfplay.config import SelfPlayConfig
from tests.server.loop_world import TablePolicy
from tests.server.resume_world import ResumableWorld, SavingLearner

OBSERVATION = BoxSpec(-1e6, 1e6, (1,), "float32")
ACTION = DiscreteSpec(400)
CODES = {Player.LEARNER: 0, Player.SNAPSHOT: 1000, Player.SCRIPTED: 2000}
LEARNER = SeatAssignment(slot=0, episode=0, player=Player.LEARNER)
MODULUS = 89
IDLE_ROUNDS = 200


class Duel:
    """A group of battles; a row whose episode ended is reset at once."""

    num_seats = 2
    has_masks = False
    observation_space = OBSERVATION
    action_space = ACTION
    episode_metrics: tuple[EpisodeMetric, ...] = (EpisodeMetric("spots", "1", "all", "categories"),)
    snapshot_obstacle: str | None = None

    def __init__(self, num_battles: int, bots: Sequence[str] = ("left", "right")) -> None:
        self.num_slots = 2 * num_battles
        self.bots = tuple(bots)
        self.queues: list[deque[SeatAssignment]] = [deque() for _ in range(self.num_slots)]
        self.seats = [LEARNER] * self.num_slots
        self.x = np.zeros(num_battles, np.int64)
        self.t = np.zeros(num_battles, np.int64)
        self.played: list[tuple[SeatAssignment, SeatAssignment]] = []
        """Who sat where in each battle that began, in order."""
        self.answers: list[tuple[SeatAssignment, int]] = []
        """Every action from the server, and for whom."""
        self.resets = 0
        self.ran_dry = False
        """Whether an episode ever began unassigned."""
        self._turn: Turn | None = None

    def assign(self, assignments: Sequence[SeatAssignment], *, afresh: bool) -> None:
        if afresh:
            self.queues = [deque() for _ in range(self.num_slots)]
        for assignment in assignments:
            assert assignment.name in ("", *self.bots) or assignment.player is Player.SNAPSHOT
            self.queues[assignment.slot].append(assignment)

    def reset(self, seeds: np.ndarray) -> Turn:
        self.resets += 1
        self.x = (seeds[::2] % MODULUS).astype(np.int64)
        self.t[:] = 0
        for battle in range(len(self.x)):
            self._begin(battle)
        observations = self._shown(self._asks())
        turn = Turn.first(observations, None)
        self._turn = turn._replace(asks=self._asks())
        return self._turn

    def step(self, actions: Leaves) -> Turn:
        asked = self._asks()
        chosen = np.array([len(s.name) for s in self.seats])  # what bots do
        chosen[asked] = actions[0]
        self.answers += [(self.seats[s], int(chosen[s])) for s in np.flatnonzero(asked)]
        first, second = chosen[::2], chosen[1::2]
        self.x = (3 * self.x + first + 2 * second + 1) % MODULUS
        self.t += 1
        rewards = np.repeat((first - second) / 8, 2) * np.tile([1.0, -1.0], len(self.x))
        over = self.t >= 3 + self.x % 3
        ended = np.repeat(over, 2)
        finals = self._shown(ended) if over.any() else None
        records = tuple(
            {"row": row, "return": float(rewards[row]), "length": int(self.t[row // 2])}
            | {"time_s": 0.0, "metrics": {"spots": [int(self.x[row // 2])]}}
            for row in np.flatnonzero(ended).tolist()
        )
        for battle in np.flatnonzero(over).tolist():
            self.x[battle] = (7 * self.x[battle] + 11) % MODULUS
            self.t[battle] = 0
            self._begin(battle)
        asks = self._asks()
        self._turn = Turn(
            asks=asks,
            observations=self._shown(asks),
            masks=None,
            rewards=rewards,
            terminated=ended,
            truncated=np.zeros(self.num_slots, np.bool_),
            final_observations=finals,
            episodes=records,
            frames=int(asked.sum()),
        )
        return self._turn

    def last_turn(self) -> Turn | None:
        if self._turn is None or self._turn.rewards is None:
            return None
        is_open = ~self._turn.terminated  # every seat of a battle that goes on
        return farewell(self._turn, is_open, self._shown(np.ones(self.num_slots, np.bool_)))

    def snapshot(self) -> bytes:
        turn = self._turn
        assert turn is not None
        arrays = {
            name: None if value is None else np.asarray(value).tolist()
            for name, value in zip(turn._fields, turn, strict=True)
            if name in ("asks", "rewards", "terminated", "truncated")
        }
        shown = [turn.observations[0].tolist()]
        shown.append(
            None if turn.final_observations is None else turn.final_observations[0].tolist()
        )
        queues = [write_assignments(queue) for queue in self.queues]
        seats = [write_assignments([seat]) for seat in self.seats]
        state = [self.x.tolist(), self.t.tolist(), queues, seats, arrays, shown]
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> Turn:
        x, t, queues, seats, arrays, (observations, finals) = json.loads(state)
        self.x, self.t = np.array(x), np.array(t)
        self.queues = [deque(read_assignments(queue, self.num_slots)) for queue in queues]
        self.seats = [read_assignments(seat, self.num_slots)[0] for seat in seats]
        bools = {
            name: None if arrays[name] is None else np.array(arrays[name], np.bool_)
            for name in ("asks", "terminated", "truncated")
        }
        self._turn = Turn(
            **bools,
            observations=(np.array(observations, np.float32).reshape(-1, 1),),
            masks=None,
            rewards=None if arrays["rewards"] is None else np.array(arrays["rewards"]),
            final_observations=None
            if finals is None
            else (np.array(finals, np.float32).reshape(-1, 1),),
        )
        return self._turn

    def close(self) -> None:
        pass

    def _begin(self, battle: int) -> None:
        for slot in (2 * battle, 2 * battle + 1):
            queue = self.queues[slot]
            self.ran_dry |= not queue
            self.seats[slot] = queue.popleft() if queue else LEARNER
        self.played.append((self.seats[2 * battle], self.seats[2 * battle + 1]))

    def _asks(self) -> np.ndarray:
        return np.array([seat.player is not Player.SCRIPTED for seat in self.seats])

    def _shown(self, rows: np.ndarray) -> Leaves:
        codes = np.array([CODES[seat.player] for seat in self.seats])
        values = codes + np.repeat(10 * self.x + self.t, 2)
        return (values[rows].astype(np.float32).reshape(-1, 1),)


class MarkedPolicy(TablePolicy):
    """Its actions say which version it is."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__(spaces)
        self.keep_seen = False
        self.mark = nn.Parameter(torch.zeros(()))

    def act(self, observations, masks, noise: Noise, deterministic=False) -> Inference:
        choice = noise.uniform(Purpose.ACTION, 4).argmax(axis=1)
        actions = choice + 4 * int(self.mark)
        return Inference((actions,), {"action": actions, "value": self.values(observations)})


class MarkingLearner(SavingLearner):
    """Changes its policy's mark with each version."""

    def learn(self, storage, cells, *, should_abort, progress) -> dict[str, float]:
        metrics = super().learn(storage, cells, should_abort=should_abort, progress=progress)
        self._mark()
        return metrics

    def load_state(self, state, restore="all") -> None:
        super().load_state(state, restore)
        self._mark()

    def _mark(self) -> None:
        with torch.no_grad():
            self.policy.mark.fill_(self.policy_version)


class SelfPlayWorld(ResumableWorld):
    """A server that deals battles."""

    policy_class: type[TablePolicy] = MarkedPolicy
    learner_class: type[SavingLearner] = MarkingLearner

    def __init__(
        self,
        target: int = 40,
        *,
        selfplay: SelfPlayConfig,
        resumed: SavedRun | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(target, resumed=resumed, selfplay=selfplay, **settings)

    def _build(self, spaces: Spaces) -> None:
        policy = self.policy_class(spaces)
        self.learner = self.learner_class(policy, self.target)
        storage = RolloutStorage(
            self.target + self.config.max_slots,
            leaves(spaces.observation),
            policy.step_state,
            mask_size(spaces.action) if spaces.masks else None,
        )
        opponents = Opponents(lambda: self.policy_class(spaces))
        self.engine = Engine(policy, self.learner, storage, opponents)
        scheduler = Scheduler(self.config.scheduler(), target=self.target)
        self.spaces = spaces
        saved, sessions = self.resumed, None
        if saved is not None:
            sessions = saved.sessions
            opponents.load(saved.opponents)
            self.learner.load_state(saved.learner)
            self.engine.load_frames(saved.frames)
            self.hub.expect_episodes(saved.counters.next_episodes)
        attach = lambda _: self.hub.attach(self.engine, scheduler, sessions)  # noqa: E731
        self.worker.submit(lambda: None, attach, self.listener.failed)

    def _learned(self, result: Any) -> None:
        assert self.hub.scheduler.ledger.conservation_error == 0
        self.hub.snapshot_if_due(result.policy_version)
        super()._learned(result)


class EndOfTestError(Exception):
    """The test has seen enough."""


class Wire:
    """The transport of a client's loop into a world in the same thread.

    Args:
        world: The server.
        look: Called before each message is taken; raises to end the conversation.
    """

    address = "test:1"

    def __init__(self, world: SelfPlayWorld, look: Callable[[], None]) -> None:
        self._world = world
        self._look = look
        self._inbox: deque[bytes] = deque()
        self._is_closed = False
        self._idle = 0
        self.peer = world.hub.opened(_FromServer(self))

    def send(self, data: bytes) -> None:
        self._world.hub.received(self.peer, data)
        self._world.run()

    def receive(self, timeout_s: float | None) -> bytes | None:
        del timeout_s
        self._look()
        if self._inbox:
            self._idle = 0
            return self._inbox.popleft()
        if self._is_closed:
            raise ConnectionLostError("the server closed", retry=False)
        if any([client.pump() for client in self._world.clients]):
            return None
        self._idle += 1
        assert self._idle < IDLE_ROUNDS, "nothing moves any more"
        self._world.wait(0.1)
        return None

    def close(self, code: int = 1000, reason: str = "") -> None:
        del code
        self._world.hub.closed(self.peer, reason)
        self._world.run()

    def deliver(self, data: bytes) -> None:
        self._inbox.append(data)

    def end(self) -> None:
        self._is_closed = True


class _FromServer:
    """The hub's view of the client."""

    address = "test:1"

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, data: bytes) -> None:
        self._wire.deliver(data)

    def close(self, reason: str) -> None:
        del reason
        self._wire.end()


def play(
    world: SelfPlayWorld,
    drivers: Sequence[Any],
    until: Callable[[], bool],
    *,
    name: str = "a",
    role: str = "train",
    loop: EnvLoop | None = None,
) -> EnvLoop:
    """Let a client play until then, and vanish."""

    def look() -> None:
        if until():
            raise EndOfTestError

    hello = make_hello(drivers, client_name=name, env_id="Duel-v0", role=role)
    loop = loop or EnvLoop(drivers, hello, clock=lambda: world.now)
    try:
        loop.converse(Wire(world, look))
    except EndOfTestError:
        return loop
    return loop
