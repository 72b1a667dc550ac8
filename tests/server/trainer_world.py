"""Attempts of a real run in memory: trainer, saver, hub and PPO, with a writer that writes at once.

No socket, no thread; the clock moves only when a test says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import checkpoints
from algorithms.base import Learner
from algorithms.config import LearnerConfig
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from checkpoints import CheckpointContents
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello
from royale_client.wire.snapshots import RESTART, SNAPSHOT
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import AlarmSet
from royale_server.alarms.keeper import AlarmKeeper
from royale_server.config import Pair, ServerConfig
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.hub import Hub
from royale_server.exit_codes import ExitCode
from royale_server.model.build import Components
from royale_server.model.worker import InlineWorker
from royale_server.monitoring.console import Console
from royale_server.run.judge import AlarmJudge, DiskGauge
from royale_server.run.layout import RunLayout
from royale_server.run.records import plain_record
from royale_server.run.writer import WriterHealth
from royale_server.saved_run import from_contents
from royale_server.saver import Mark
from royale_server.trainer import End, Start, Trainer
from royale_server.watch import Surroundings, Watch
from tests.server.loop_world import ACTION, OBSERVATION
from tests.server.resume_world import EnvClient

PAIR = Pair(policy="mlp-policy", policy_variant="default", algo="ppo", algo_variant="default")
FRAMES = 64
IDLE_ROUNDS = 20
OF_THE_ATTEMPT = ("time/", "throughput/", "server/", "client/", "run/attempt", "health/")
"""Prefixes of metrics that tell of one attempt and its machine, not of the run."""


class InstantWriter:
    """Keeps rows; writes checkpoints when it is handed them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rows: list[dict[str, Any]] = []
        self.events: list[Mapping[str, Any]] = []
        self.steps: list[int] = []
        self.maps: list[Mapping[str, Any]] = []
        self.alarms_of_rows: AlarmKeeper | None = None
        self.alarm_records: list[Mapping[str, Any]] = []
        self.busy_s = 0.0

    def metrics(self, row: dict[str, Any], step: int) -> None:
        self.rows.append(row)
        assert self.alarms_of_rows is not None
        self.alarm_records += self.alarms_of_rows.written(plain_record(row))

    def alarms(self, rows: Any) -> None:
        self.alarm_records += rows

    def task(self, task: Callable[[], None]) -> None:
        task()

    def health(self) -> WriterHealth:
        return WriterHealth(
            queued=0,
            unwritten=0,
            dropped=0,
            last_seq=len(self.rows),
            busy_s=self.busy_s,
            trackers=(),
        )

    def episodes(self, rows: Any) -> None:
        """Not looked at."""

    def heat_maps(self, row: Mapping[str, Any]) -> None:
        self.maps.append(row)

    def event(self, row: Mapping[str, Any]) -> None:
        self.events.append(row)

    def checkpoint(self, contents: CheckpointContents, done: Callable[[Any], None]) -> None:
        self.steps.append(contents.step)
        assert self.alarms_of_rows is not None
        contents = AlarmJudge(self.alarms_of_rows, DiskGauge(self.directory)).completed(contents)
        done(checkpoints.save(self.directory, contents).path)


class Attempt:
    """One process of the run in ``directory``; it resumes from the newest checkpoint there."""

    def __init__(
        self,
        directory: Path,
        *,
        alarms: Sequence[Alarm] = (),
        learner: type[Learner] = PPO,
        algo: LearnerConfig | None = None,
        **settings: Any,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.now = 100.0
        self.learn_poll_s = 0.0
        """How much time passes between two looks at the clock in a learn step."""
        self.exit_code: ExitCode | None = None
        self.writer = InstantWriter(directory)
        self.posted: deque[Callable[[], None]] = deque()
        self.worker = InlineWorker()
        self.clients: list[EnvClient] = []
        algo = algo or PPOConfig(
            frames_per_iteration=FRAMES,
            total_timesteps=64 * FRAMES,
            num_epochs=3,
            minibatch_size=16,
        )
        # Wide enough for products to round by their shape, as they do in runs.
        policy = MLPPolicyConfig(hidden_sizes=(64, 64), normalize_observations=True)
        config = ServerConfig(pair=PAIR, policy=policy, algo=algo, max_slots=64, **settings)
        start = _start(directory)
        keeper = self.writer.alarms_of_rows = AlarmKeeper(
            AlarmSet(alarms, {**AlarmConfig().limits(), "save_every": config.save_every}),
            attempt=start.attempt,
        )
        if start.resumed is not None:
            newest = checkpoints.load(checkpoints.newest(directory)[0])
            keeper.resume(newest.documents["state"]["alarms"], start.resumed.counters.iteration)
        keeper.on_change = lambda changes: self.posted.append(
            partial(self.trainer.alarmed, changes)
        )
        self.layout = RunLayout(base=directory / "base", algorithm="a", policy="p", name="run")
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        watch = Watch(
            alarms=keeper,
            writer=self.writer,
            surroundings=Surroundings(layout=self.layout, seed=config.seed, resume_command="again"),
            feedback_wait_timeout_s=config.feedback_wait_timeout,
            clock=self._clock,
            post=self.posted.append,
        )
        self.trainer = Trainer(
            config=config,
            components=Components(policy=MLPPolicy, learner=learner),
            start=start,
            model=self.worker,
            writer=self.writer,
            console=create_autospec(Console, instance=True),
            watch=watch,
            clock=self._clock,
            post=self.posted.append,
            on_begin=lambda: None,
            row_marks=dict,
            on_end=self._ended,
        )
        admission = Admission(
            config, run_id="id", run_name="name", on_first_spaces=self.trainer.spaces_known
        )
        self.hub = Hub(
            config=config,
            limits=Limits(),
            admission=admission,
            model=self.worker,
            listener=self.trainer,
            clock=self._clock,
        )
        self.trainer.hub = self.hub
        resumed = self.trainer._start.resumed
        if resumed is not None:
            admission.spaces = resumed.spaces
            self.trainer.spaces_known(resumed.spaces)
            self.run()

    def _clock(self) -> float:
        if self.learn_poll_s and self.trainer.is_learning:
            self.now += self.learn_poll_s
        return self.now

    def _ended(self, code: ExitCode) -> None:
        self.exit_code = code

    def join(
        self,
        name: str = "a",
        groups: tuple[int, ...] = (4,),
        metrics: tuple[EpisodeMetric, ...] = (),
    ) -> EnvClient:
        hello = Hello(
            client_name=name,
            process_id="p",
            env_id="Toy-v0",
            observation_space=OBSERVATION,
            action_space=ACTION,
            groups=groups,
            episode_metrics=metrics,
            features=(SNAPSHOT, RESTART),
        )
        client = EnvClient(self, hello)
        self.clients.append(client)
        client.send_raw(client.session.start())
        return client

    def run(self) -> None:
        """Run jobs and callbacks, but stop before a learn step whose begin somebody waits for."""
        while not self.is_held() and (self.posted or self.worker.run_pending()):
            while self.posted:
                self.posted.popleft()()

    hold_learning = False

    def is_held(self) -> bool:
        return self.hold_learning and self.trainer.is_learning

    def play(self, until: Callable[[], bool] = lambda: False) -> None:
        idle = 0
        while not until() and idle < IDLE_ROUNDS and not self.is_held():
            moved = [client.pump() for client in self.clients if client.closed is None]
            idle = 0 if any(moved) else idle + 1
            self.now += 0.001
            self.hub.tick()
            self.trainer.tick()
            self.run()

    def play_rows(self, count: int) -> None:
        self.play(lambda: len(self.writer.rows) >= count)
        assert len(self.writer.rows) >= count

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.trainer.signalled(End.OPERATOR, "SIGINT received")
        self.run()

    def end(self) -> None:
        """Wait for the end that was asked for."""
        self.play(lambda: self.exit_code is not None)
        assert self.exit_code is not None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the run, whichever attempts it takes, says of itself; comparable."""
        return [
            {key: repr(n) for key, n in row.items() if not key.startswith(OF_THE_ATTEMPT)}
            for row in self.writer.rows
        ]

    @property
    def engine(self) -> Any:
        """Policy, learner and storage, to be looked at and spoiled."""
        assert self.trainer._built is not None
        return self.trainer._built.engine

    def model(self) -> dict[str, bytes]:
        """The bytes of weights, statistics and optimizer."""
        state = self.engine.learner.state()
        tensors = {**state.model, **{f"optimizer/{n}": t for n, t in state.optimizer.items()}}
        return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def _start(directory: Path) -> Start:
    if not any(directory.iterdir()):
        return Start(attempt=1, directory=directory)
    contents = checkpoints.load(checkpoints.newest(directory)[0])
    return Start(
        attempt=2,
        directory=directory,
        resumed=from_contents(contents),
        resumed_from=Mark.of(contents),
    )
