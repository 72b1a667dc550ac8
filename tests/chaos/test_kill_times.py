"""Killed at any moment, again and again, a run loses nothing it has called saved (case H15)."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from algorithms.ppo.metrics import METRICS
from checkpoints import CheckpointNotFoundError, newest, read_manifest
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.run.records import read_records
from royale_server.tools.comparing import differences, history
from tests.system.processes import Processes, Program

pytestmark = pytest.mark.chaos

KEYS = deterministic_keys(declared(METRICS))
ITERATIONS, FRAMES = 40, 64
FLAGS = (
    *("--inline", "CartPole-v1", "--inline-num-envs", 4, "--seed", 3),
    *("--algo.frames-per-iteration", FRAMES, "--algo.num-epochs", 1),
    *("--until-timesteps", ITERATIONS * FRAMES),
)
SAVED = re.compile(r"saved the checkpoint of step ([\d,]+)")


@dataclass
class Killed:
    """A run that is killed and resumed, and what it has said."""

    processes: Processes
    name: str
    flags: tuple[object, ...]
    kills: int = 0
    attempts: int = 0
    reported: int = 0
    """Step of the last checkpoint that it has reported as saved."""

    @property
    def run(self) -> Path:
        return next((self.processes.directory / "runs").glob(f"*/*/{self.name}"))

    def newest(self) -> int:
        """Step of the newest whole checkpoint; 0 if there is none."""
        try:
            return read_manifest(newest(self.run)[0]).step
        except (CheckpointNotFoundError, StopIteration):
            return 0

    def start(self) -> Program:
        """Start it, or go on with it."""
        how = "--resume" if self.newest() else "--overwrite"
        self.attempts += 1
        return self.processes.try_server(*self.flags, "--exp-name", self.name, how)

    def note(self, server: Program) -> None:
        """Compare what it said with what is there."""
        told = [int(step.replace(",", "")) for step in SAVED.findall(server.output)]
        self.reported = max([self.reported, *told])
        assert self.newest() >= self.reported, server.output

    def rows(self) -> dict:
        return history(read_records(self.run / "metrics.jsonl")[0])


@pytest.fixture
def uninterrupted(processes: Processes) -> dict:
    """Rows of a run that nobody killed."""
    run = Killed(processes, "uninterrupted", (*FLAGS, "--save-every", 5))
    assert run.start().wait() == 0
    return run.rows()


def killed_runs(processes: Processes, flags) -> Iterator[Killed]:
    number = 0
    while True:
        yield Killed(processes, f"killed-{number}", flags)
        number += 1


def test_a_hundred_kills_at_random_times_change_nothing(processes: Processes, uninterrupted):
    draw = random.Random(15)
    kills, finished = 0, []
    for run in killed_runs(processes, (*FLAGS, "--save-every", 5)):
        while True:
            server = run.start()
            if kills < 100:
                if draw.random() < 0.7:  # the others may die while they start
                    server.wait_for(r"collected|ended:|the run is finished")
                time.sleep(draw.uniform(0.0, 1.0))
                if server.is_running():
                    server.end()
                    kills, run.kills = kills + 1, run.kills + 1
            code = server.wait()
            run.note(server)
            # Killed between its last checkpoint and its end, it has nothing left to do.
            if code == 0 or (code == 2 and server.count("the run is finished")):
                break
            assert code == -9, server.output
        assert differences(uninterrupted, run.rows(), KEYS, last_iteration=ITERATIONS) == []
        finished.append((run.kills, run.attempts))
        if kills == 100:
            break
    print(f"{kills} kills; kills and starts of each run: {finished}")


def test_fifty_kills_during_saves_leave_what_was_reported_as_saved(processes: Processes):
    # Large layers and a checkpoint of every iteration: most of the time a save is under way.
    flags = (
        *("--inline", "CartPole-v1", "--inline-num-envs", 4, "--algo.frames-per-iteration", 16),
        *("--algo.num-epochs", 1, "--policy.hidden-sizes", 512, 512, "--save-every", 1),
        *("--until-timesteps", 10**9),
    )
    draw = random.Random(51)
    run = Killed(processes, "run", flags)
    unfinished = 0
    for _ in range(50):
        server = run.start()
        server.wait_for(SAVED.pattern, times=draw.randint(1, 3))
        time.sleep(draw.uniform(0.0, 0.1))
        server.end()
        assert server.wait() == -9
        run.note(server)
        unfinished += bool(list(run.run.glob(".tmp-*")))
    print(f"{unfinished} of 50 kills hit a save")
    assert unfinished >= 10, "most kills were to hit a save"
