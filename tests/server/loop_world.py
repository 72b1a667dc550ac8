"""The server's core with real sessions, scheduler, engine and storage, but no socket and no thread.

Clients are scripted by the tests; the model is a table: the value of an observation is the number
it holds. What the learner is given is copied, so that tests can look at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from algorithms.advantages import compute_gae
from algorithms.base import Inference, Learner, Policy
from algorithms.config import LearnerConfig
from algorithms.noise import Noise, Purpose
from algorithms.sequences import next_values, order_frames
from algorithms.spaces import ArraySpec, Spaces
from algorithms.storage import RolloutStorage
from royale_client.session import Answered, ClientSession, Faulted, ServerBusy, Stopped, Welcomed
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves, mask_size
from royale_server.config import Pair, ServerConfig
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.hub import Hub
from royale_server.model.engine import Engine, Inferred
from royale_server.model.opponents import Opponents
from royale_server.model.worker import InlineWorker
from royale_server.scheduler import Group, Learn, Scheduler

OBSERVATION = BoxSpec(-1e6, 1e6, (1,), "float32")
ACTION = DiscreteSpec(4)
GAMMA, GAE_LAMBDA = 0.99, 0.95


class TablePolicy(Policy):
    """Values an observation by the number it holds; acts by keyed noise alone."""

    uid = "table-policy"

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.spaces = spaces
        self.step_state = {
            "action": ArraySpec((), np.dtype(np.int64)),
            "value": ArraySpec((), np.dtype(np.float32)),
        }
        self.seen: list[np.ndarray] = []
        self.keep_seen = True

    def act(self, observations, masks, noise: Noise, deterministic=False) -> Inference:
        if self.keep_seen:
            self.seen.append(observations[0].copy())
        scores = noise.uniform(Purpose.ACTION, 4)
        if masks is not None:
            scores = np.where(masks, scores, -1.0)
        actions = scores.argmax(axis=1)
        return Inference((actions,), {"action": actions, "value": self.values(observations)})

    def values(self, observations):
        return observations[0][:, 0].astype(np.float32)


@dataclass(frozen=True)
class Lesson:
    """What one learn step was given, in sequence order."""

    slots: list[int]
    ordinals: list[int]
    observations: list[float]
    rewards: list[float]
    actions: list[int]
    terminated: list[bool]
    truncated: list[bool]
    usable: list[bool]
    advantages: list[float]
    version: int


class NotingLearner(Learner):
    """Notes what it is given and learns nothing."""

    uid = "noting"

    def __init__(self, policy: Policy, target: int) -> None:
        config = LearnerConfigForTests(frames_per_iteration=target)
        super().__init__(config, policy, seed=0)
        self.lessons: list[Lesson] = []

    def learn(self, storage, cells, *, should_abort, progress) -> dict[str, float]:
        frames = order_frames(storage, cells)
        values = storage.step_state["value"][frames.cells]
        successors = next_values(storage, frames, values)
        keep = successors.usable
        advantages = np.full(len(cells), np.nan)
        advantages[keep] = compute_gae(
            frames.rewards[keep],
            values[keep],
            successors.values[keep],
            successors.continues[keep],
            gamma=GAMMA,
            gae_lambda=GAE_LAMBDA,
        )
        self.lessons.append(
            Lesson(
                slots=frames.slots.tolist(),
                ordinals=frames.ordinals.tolist(),
                observations=storage.observations[0][frames.cells, 0].tolist(),
                rewards=frames.rewards.tolist(),
                actions=storage.step_state["action"][frames.cells].tolist(),
                terminated=frames.terminated.tolist(),
                truncated=frames.truncated.tolist(),
                usable=keep.tolist(),
                advantages=advantages.tolist(),
                version=self.policy_version,
            )
        )
        self.policy_version += 1
        return {}

    def state(self):
        raise AssertionError("these tests save nothing")

    def load_state(self, state, restore="all") -> None:
        raise AssertionError("these tests restore nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfigForTests(LearnerConfig):
    uid = "noting"


@dataclass
class ListeningRun:
    """The hub's listener: learns at once and keeps what it is told."""

    events: list[tuple[str, str]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    waiting: list[list[str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    hold_learning: bool = False
    due: list[Learn] = field(default_factory=list)
    rests: list[Any] = field(default_factory=list)
    sessions: list[Any] = field(default_factory=list)
    rounds: list[Any] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    world: Any = None

    def client_joined(self, peer, hello) -> None:
        self.events.append(("joined", peer.name))

    def probed(self, report) -> None:
        self.reports.append(report)

    def client_left(self, peer, why) -> None:
        self.left.append(f"{peer.name}: {why}")

    def episodes_ended(self, rows, *, request, first_slot, evaluation) -> None:
        self.episodes.extend({**row, "evaluation": evaluation} for row in rows)

    def inferred(self, result: Inferred) -> None:
        pass

    def learn_due(self, command: Learn) -> None:
        self.due.append(command)
        if not self.hold_learning:
            self.world.learn()

    def rested(self, effects: Any) -> None:
        self.rests.append(effects)

    def gathered(self, sessions: Any) -> None:
        self.sessions.append(sessions)

    def event(self, kind, message, **facts) -> None:
        self.events.append((kind, message))

    def evaluated(self, round_, *, is_last) -> None:
        self.rounds.append((round_, is_last))

    def queue_waiting(self, groups: list[Group], since) -> None:
        self.waiting.append([f"{g.member.name}/{g.index}" for g in groups])

    def must_stop(self, message) -> None:
        self.stopped.append(message)

    def failed(self, error) -> None:
        self.errors.append(error)


class ScriptedClient:
    """A client whose every message a test chooses."""

    def __init__(
        self,
        world: LoopWorld,
        hello: Hello,
        address: str = "test:1",
        earlier: ClientSession | None = None,
    ) -> None:
        self.world = world
        self.session = ClientSession(hello, earlier=earlier)
        self.sent: list[bytes] = []
        self.address = address
        self.inbox: list[bytes] = []
        self.closed: str | None = None
        self.events: list[Any] = []
        self.turns = [0] * len(hello.groups)
        self.peer = world.hub.opened(self)

    # the hub's side of the wire
    def send(self, data: bytes) -> None:
        self.inbox.append(data)

    def close(self, reason: str) -> None:
        self.closed = reason

    # the test's side
    def greet(self) -> ScriptedClient:
        self.send_raw(self.session.start())
        return self

    def send_raw(self, data: bytes) -> None:
        self.sent.append(data)
        self.world.hub.received(self.peer, data)
        self.world.run()

    def may_step(self, group: int = 0) -> bool:
        """Whether the group's last request is answered."""
        self.read()
        return self.session.outstanding(group) is None

    def step(self, group: int = 0, *, rejoined: bool = False, **fields: Any) -> list[Any]:
        """Send a step; rows are given as plain lists. Returns the events it led to.

        The first step of a group carries no outcome (there was no action) unless the client
        ``rejoined`` in the middle of its episodes.
        """
        self.read()
        if self.turns[group] == 0 and not rejoined:
            fields.pop("rewards", None)
        self.turns[group] += 1
        self.send_raw(self.session.step(group, **step_arrays(**fields)))
        return self.read()

    def step_into_nothing(self, group: int = 0, **fields: Any) -> None:
        """Send a step that never arrives."""
        self.read()
        self.session.step(group, **step_arrays(**fields))

    def come_back(self) -> ScriptedClient:
        """Connect again, to go on with the session if the server agrees."""
        other = ScriptedClient(self.world, self.session.hello, earlier=self.session)
        other.turns = list(self.turns)
        other.greet().read()
        return other

    def step_again(self, group: int = 0, **fields: Any) -> list[Any]:
        """Send the last step once more, which has no answer."""
        if self.session.outstanding(group) == 1:
            fields.pop("rewards", None)
        self.send_raw(self.session.step(group, **step_arrays(**fields)))
        return self.read()

    def read(self) -> list[Any]:
        """Take everything the server has sent."""
        inbox, self.inbox = self.inbox, []
        events = [event for data in inbox for event in self.session.receive(data)]
        self.events += events
        return events

    def goodbye(self) -> None:
        self.send_raw(self.session.goodbye("done"))

    def vanish(self) -> None:
        self.world.hub.closed(self.peer, "connection lost")
        self.world.run()

    def actions(self) -> list[int]:
        """Actions of the last answer."""
        return self.all_actions()[-1]

    def all_actions(self) -> list[list[int]]:
        """Actions of every answer so far."""
        self.read()
        return [e.actions[0].tolist() for e in self.events if isinstance(e, Answered)]

    def faults(self) -> list[str]:
        self.read()
        return [f"{e.fault.code}: {e.fault.message}" for e in self.events if isinstance(e, Faulted)]

    def busies(self) -> list[Any]:
        self.read()
        return [e.busy for e in self.events if isinstance(e, ServerBusy)]

    def welcome(self) -> Any:
        self.read()
        return next(e.welcome for e in self.events if isinstance(e, Welcomed))

    def is_stopped(self) -> bool:
        self.read()
        return any(isinstance(e, Stopped) for e in self.events)


class LoopWorld:
    """Hub, scheduler, engine and clients on one thread and a clock that tests turn."""

    def __init__(
        self,
        target: int,
        *,
        masks: bool = False,
        worker: InlineWorker | None = None,
        policy: type[TablePolicy] = TablePolicy,
        **settings: Any,
    ) -> None:
        self.now = 100.0
        self._policy = policy
        algo = LearnerConfigForTests(frames_per_iteration=target)
        pair = Pair(policy="table", policy_variant="-", algo="noting", algo_variant="-")
        self.config = ServerConfig(pair=pair, policy=None, algo=algo, max_slots=512, **settings)
        self.worker = worker or InlineWorker()
        self.listener = ListeningRun(world=self)
        self.admission = Admission(
            self.config, run_id="id", run_name="name", on_first_spaces=self._build
        )
        self.hub = Hub(
            config=self.config,
            limits=Limits(),
            admission=self.admission,
            model=self.worker,
            listener=self.listener,
            clock=lambda: self.now,
        )
        self.target = target
        self.masks = masks
        self.engine: Engine
        self.learner: NotingLearner

    def _build(self, spaces: Spaces) -> None:
        policy = self._policy(spaces)
        self.learner = NotingLearner(policy, self.target)
        storage = RolloutStorage(
            self.target + self.config.max_slots,
            leaves(spaces.observation),
            policy.step_state,
            mask_size(spaces.action) if spaces.masks else None,
        )
        is_passing = self.config.on_nonfinite == "pass"
        opponents = Opponents(lambda: type(policy)(spaces))
        self.engine = Engine(policy, self.learner, storage, opponents, may_be_nonfinite=is_passing)
        scheduler = Scheduler(self.config.scheduler(), target=self.target)
        self.worker.submit(
            lambda: None, lambda _: self.hub.attach(self.engine, scheduler), self.listener.failed
        )

    def client(
        self, name: str = "a", groups: Sequence[int] = (1,), **changes: Any
    ) -> ScriptedClient:
        hello = Hello(
            client_name=name,
            process_id="p",
            env_id="Table-v0",
            observation_space=OBSERVATION,
            action_space=ACTION,
            groups=tuple(groups),
            masks=self.masks,
        )
        return ScriptedClient(self, replace(hello, **changes)).greet()

    def run(self) -> None:
        """Run jobs until none is left; a raised error is the test's."""
        while self.worker.run_pending():
            pass
        if self.listener.errors:
            raise self.listener.errors[0]

    def learn(self) -> None:
        """Run the learn step that is due."""
        command = self.listener.due.pop(0)
        job = partial(
            self.engine.learn,
            command,
            version=self.hub.scheduler.ledger.version,
            may_have_gaps=True,
            returns=[],
            discards={},
            should_abort=lambda: False,
            progress=lambda *_: None,
        )
        self.worker.submit(job, self._learned, self.listener.failed)

    def _learned(self, result: Any) -> None:
        self.hub.learned(
            version=result.policy_version,
            target=result.frames_wanted,
            duration_s=result.duration_s,
        )

    def wait(self, seconds: float) -> None:
        """Let time pass in ticks of 100 ms."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.hub.tick()
            self.run()

    @property
    def lessons(self) -> list[Lesson]:
        return self.learner.lessons


def step_arrays(
    *,
    obs: Sequence[float],
    asks: Sequence[bool] | None = None,
    rewards: Sequence[float] | None = None,
    terminated: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
    final: Sequence[float] | None = None,
    masks: Sequence[Sequence[bool]] | None = None,
    episodes: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Turn plain lists into the arguments of ``ClientSession.step``."""
    if rewards is not None:
        terminated = [False] * len(rewards) if terminated is None else terminated
        truncated = [False] * len(rewards) if truncated is None else truncated
    as_bools = partial(np.array, dtype=np.bool_)
    return {
        "asks": None if asks is None else as_bools(asks),
        "observations": (np.array(obs, np.float32).reshape(-1, 1),),
        "masks": None if masks is None else as_bools(masks),
        "rewards": None if rewards is None else np.array(rewards, np.float64),
        "terminated": None if terminated is None else as_bools(terminated),
        "truncated": None if truncated is None else as_bools(truncated),
        "final_observations": None
        if final is None
        else (np.array(final, np.float32).reshape(-1, 1),),
        "episodes": tuple(episodes),
        "env_time_s": 0.0,
    }
