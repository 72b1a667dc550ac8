"""A server that is saved and started again, and clients with environments that can be saved.

The checkpoint goes to disk and back by the product's own code. Environments are arithmetic: what
they do is decided by their seeds and the actions they get, so that one exchanged action or one
forgotten step changes everything after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import checkpoints
from algorithms.base import LearnerState
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.session import Answered, RestoreAsked, SnapshotAsked, Welcomed
from royale_client.wire.messages import Hello
from royale_client.wire.snapshots import RESTART, SNAPSHOT
from royale_client.wire.spaces import SpaceSpec, leaves, mask_size
from royale_server.model.engine import Engine
from royale_server.model.opponents import Opponents
from royale_server.saved_run import RunCounters, SavedRun, Sessions, from_contents, to_contents
from royale_server.scheduler import Scheduler
from tests.server.loop_world import (
    ACTION,
    OBSERVATION,
    LoopWorld,
    NotingLearner,
    ScriptedClient,
    TablePolicy,
)

MODULUS = 89
IDLE_ROUNDS = 50
"""Rounds without a message after which nothing is going to happen by itself."""


class SavingLearner(NotingLearner):
    """Its counters are all there is to save."""

    def state(self) -> LearnerState:
        return LearnerState(model={}, optimizer={}, counters=self._counters())

    def load_state(self, state: LearnerState, restore: str = "all") -> None:
        self._load_counters(state.counters)


class FirstNumberPolicy(TablePolicy):
    """Values an observation by the first number of its first leaf."""

    def values(self, observations):
        return observations[0].reshape(len(observations[0]), -1)[:, 0].astype(np.float32)


class Slots:
    """Environments of one group; a row whose episode ended is silent once."""

    def __init__(self, space: SpaceSpec, *, masks: bool, seeds: np.ndarray) -> None:
        self._leaves = leaves(space)
        self._masks = masks
        self.x = (seeds % MODULUS).astype(np.int64)
        self.t = np.zeros(len(seeds), np.int64)
        self.total = np.zeros(len(seeds))
        self.is_resetting = np.zeros(len(seeds), np.bool_)

    @property
    def asks(self) -> np.ndarray:
        return ~self.is_resetting

    def first(self) -> dict[str, Any]:
        return {"observations": self._shown(self.asks), "masks": self._legal()}

    def step(self, actions: np.ndarray) -> dict[str, Any]:
        was_resetting, acting = self.is_resetting, self.asks
        self.x[acting] = (3 * self.x[acting] + actions + 1) % MODULUS
        self.t[acting] += 1
        rewards = np.where(acting, self.x / 8, 0.0)
        self.total += rewards
        ended = acting & (self.t >= 5 + self.x % 4)
        terminated = ended & (self.x % 2 == 0)
        fields = {
            "rewards": rewards,
            "terminated": terminated,
            "truncated": ended & ~terminated,
            "final_observations": self._shown(ended) if ended.any() else None,
            "episodes": tuple(self._record(row) for row in np.flatnonzero(ended).tolist()),
        }
        self.x[was_resetting] = (7 * self.x[was_resetting] + 11) % MODULUS
        self.t[was_resetting] = 0
        self.total[ended] = 0.0
        self.is_resetting = ended
        return {**fields, **self.first(), "asks": self.asks}

    def _record(self, row: int) -> dict[str, Any]:
        return {
            "row": row,
            "return": float(self.total[row]),
            "length": int(self.t[row]),
            "time_s": 0.5,
        }

    def snapshot(self) -> bytes:
        state = (self.x, self.t, self.total, self.is_resetting)
        return json.dumps([array.tolist() for array in state]).encode()

    def restore(self, state: np.ndarray) -> None:
        x, t, total, resetting = json.loads(state.tobytes())
        self.x, self.t = np.array(x), np.array(t)
        self.total, self.is_resetting = np.array(total, np.float64), np.array(resetting, np.bool_)

    def _shown(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Leaf j shows x + j, as far as it is a number of its type."""
        shown = []
        for j, leaf in enumerate(self._leaves):
            value = (self.x[rows] + j) % (2 if leaf.dtype == np.int8 else MODULUS)
            per_row = value.reshape(-1, *[1] * len(leaf.shape))
            full = np.broadcast_to(per_row, (len(value), *leaf.shape))
            shown.append(np.ascontiguousarray(full, leaf.dtype))
        return tuple(shown)

    def _legal(self) -> np.ndarray | None:
        if not self._masks:
            return None
        return np.arange(4) != (self.x[self.asks] % 4)[:, None]


class EnvClient(ScriptedClient):
    """Steps environments and does what it is told, one message at a time.

    Args:
        world: The server.
        hello: Who it is.
        refuses: Why it cannot bring its environments back, if it is to say so.
        cannot_save: Why it has no snapshot, if it is to say so.
        answers_snapshots: Whether it answers when it is asked for one.
        answers_restores: Whether it does what a restore tells it.
    """

    def __init__(
        self,
        world: LoopWorld,
        hello: Hello,
        *,
        refuses: str | None = None,
        cannot_save: str | None = None,
        answers_snapshots: bool = True,
        answers_restores: bool = True,
    ) -> None:
        super().__init__(world, hello)
        self.hello = hello
        self.envs: list[Slots] = []
        self.heard: list[str] = []
        """Kinds of the messages that concern its environments, in order."""
        self.snapshots: list[tuple[bytes, ...]] = []
        self.brought_back: tuple[bytes, ...] = ()
        """The states it restored."""
        self.answers: dict[tuple[int, int], bytes] = {}
        """Bytes of the actions, by group and request."""
        self.first_requests: list[int] = []
        self._refuses, self._cannot_save = refuses, cannot_save
        self._answers_snapshots, self._answers_restores = answers_snapshots, answers_restores

    def read(self) -> list[Any]:
        """Handle what has arrived so far."""
        before = len(self.events)
        for _ in range(len(self.inbox)):
            self.pump()
        return self.events[before:]

    def pump(self) -> bool:
        """Handle one message; False if there is none."""
        if not self.inbox:
            return False
        for event in self.session.receive(self.inbox.pop(0)):
            self.events.append(event)
            self._handle(event)
        return True

    def _handle(self, event: Any) -> None:
        match event:
            case Welcomed(welcome=welcome):
                self._reset(welcome.seeds)
                if not welcome.restores:
                    self._begin()
            case RestoreAsked(states=states):
                self.heard.append("restore")
                if self._answers_restores:
                    self._restore(states)
            case SnapshotAsked(number=number):
                self.heard.append("snapshot")
                if self._answers_snapshots:
                    self._snapshot(number)
            case Answered(group=group, request=request, actions=actions):
                self.answers[group, request] = b"".join(a.tobytes() for a in actions)
                self._send_step(group, self.envs[group].step(actions[0]))

    def _reset(self, seeds: np.ndarray) -> None:
        stops = np.cumsum(self.hello.groups)
        space, masks = self.hello.observation_space, self.hello.masks
        parts = np.split(seeds, stops[:-1])
        self.envs = [Slots(space, masks=masks, seeds=part) for part in parts]

    def _begin(self) -> None:
        for group, envs in enumerate(self.envs):
            self._send_step(group, envs.first())
            self.first_requests.append(self.session.outstanding(group) or 0)

    def _restore(self, states: Sequence[np.ndarray]) -> None:
        if not states or self._refuses is not None:
            self.send_raw(self.session.restored(self._refuses if states else None))
            self._begin()
            return
        self.brought_back = tuple(state.tobytes() for state in states)
        for envs, state in zip(self.envs, states, strict=True):
            envs.restore(state)
        asking = [int(np.count_nonzero(envs.asks)) for envs in self.envs]
        self.send_raw(self.session.restored(asking=asking))

    def _snapshot(self, number: int) -> None:
        if self._cannot_save is not None:
            self.send_raw(self.session.snapshotted(number, failure=self._cannot_save))
            return
        states = tuple(envs.snapshot() for envs in self.envs)
        self.snapshots.append(states)
        self.send_raw(self.session.snapshotted(number, states))

    def _send_step(self, group: int, fields: dict[str, Any]) -> None:
        self.send_raw(self.session.step(group, **fields))

    @property
    def last_requests(self) -> tuple[int, ...]:
        return self.welcome().last_requests


class ResumableWorld(LoopWorld):
    """One attempt of a run.

    Args:
        target: Frames of an iteration.
        resumed: What it begins with.
        settings: Of the server.
    """

    def __init__(
        self, target: int, *, resumed: SavedRun | None = None, masks: bool = False, **settings: Any
    ) -> None:
        self.resumed = resumed
        self.clients: list[EnvClient] = []
        super().__init__(target, masks=masks, **settings)
        if resumed is not None:
            self.admission.spaces = resumed.spaces
            self._build(resumed.spaces)
            self.run()

    def _build(self, spaces: Spaces) -> None:
        policy = FirstNumberPolicy(spaces)
        policy.keep_seen = False
        self.learner = SavingLearner(policy, self.target)
        storage = RolloutStorage(
            self.target + self.config.max_slots,
            leaves(spaces.observation),
            policy.step_state,
            mask_size(spaces.action) if spaces.masks else None,
        )
        opponents = Opponents(lambda: FirstNumberPolicy(spaces))
        self.engine = Engine(policy, self.learner, storage, opponents)
        scheduler = Scheduler(self.config.scheduler(), target=self.target)
        self.spaces = spaces
        saved = self.resumed
        if saved is not None:
            self.learner.load_state(saved.learner)
            self.engine.load_frames(saved.frames)
            self.hub.expect_episodes(saved.counters.next_episodes)
        sessions = None if saved is None else saved.sessions
        attach = lambda _: self.hub.attach(self.engine, scheduler, sessions)  # noqa: E731
        self.worker.submit(lambda: None, attach, self.listener.failed)

    def join(
        self,
        name: str = "a",
        groups: Sequence[int] = (2,),
        *,
        features: Sequence[str] = (SNAPSHOT, RESTART),
        behaviour: dict[str, Any] | None = None,
        **changes: Any,
    ) -> EnvClient:
        hello = Hello(
            client_name=name,
            process_id="p",
            env_id="Toy-v0",
            observation_space=OBSERVATION,
            action_space=ACTION,
            groups=tuple(groups),
            masks=self.masks,
            features=tuple(features),
        )
        client = EnvClient(self, replace(hello, **changes), **(behaviour or {}))
        self.clients.append(client)
        client.send_raw(client.session.start())
        return client

    def play(self, until: Callable[[], bool]) -> None:
        """Let the clients handle one message each in turn, until then or until nothing moves."""
        idle = 0
        while not until() and idle < IDLE_ROUNDS:
            moved = [client.pump() for client in self.clients if client.closed is None]
            idle = 0 if any(moved) else idle + 1
            self.now += 0.001
            self.hub.tick()
            self.run()

    def play_lessons(self, count: int) -> None:
        self.play(lambda: len(self.lessons) >= count)
        assert len(self.lessons) >= count

    def play_frames(self, count: int) -> None:
        """Until so many frames are stored by this attempt."""
        self.play(lambda: self.hub.scheduler.ledger.stored_total >= count)
        assert self.hub.scheduler.ledger.stored_total >= count

    def settle(self) -> None:
        """Until nothing moves any more."""
        self.play(lambda: False)

    def rest(self) -> None:
        """Come to rest; snapshots are asked for and given."""
        before = len(self.listener.sessions)
        self.hub.rest()
        self.run()
        self.play(lambda: len(self.listener.sessions) > before)

    def save(self, directory: Path) -> SavedRun:
        """Come to rest and write a checkpoint; returns what another process reads of it."""
        self.rest()
        return self.write(directory, self.listener.sessions[-1])

    def write(self, directory: Path, sessions: Sessions) -> SavedRun:
        """Write the run, which is at rest, and read it back."""
        cells = self.hub.scheduler.ledger.complete_cells()
        snapshot = self.engine.snapshot(cells, self.listener.rests[-1])
        counters = RunCounters(
            iteration=self.learner.policy_version,
            env_steps=0,
            attempt=1,
            episodes_total=0,
            recent_returns=[],
            next_episodes=self.hub.next_episodes(),
        )
        contents = to_contents(
            snapshot, counters=counters, spaces=self.spaces, sessions=sessions, facts={}
        )
        directory.mkdir(exist_ok=True)
        path = checkpoints.save(directory, contents).path
        return from_contents(checkpoints.load(path))

    def events(self, kind: str) -> list[str]:
        return [message for k, message in self.listener.events if k == kind]
