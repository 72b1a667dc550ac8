"""Ctrl-C, SIGTERM and what they leave behind (case H39)."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpoints import load
from tests.system import records
from tests.system.processes import CARTPOLE, Processes, Program, Server

EXIT_LIMIT_S = 10.0
NAMED = ("--exp-name", "run")
QUICK = (*NAMED, "--algo.frames-per-iteration", 128, "--algo.num-epochs", 1)
HELD = ("--plugin", Path(__file__).with_name("held.py"))
HELD_PAIR = ("mlp-policy", "default", "held", "default")
UPDATING = "; updating$"
SLOW_ENV = ("gym", "--env-id", "tests.system.envs:Slow-v0")


def start(processes: Processes, *flags, clients=2) -> tuple[Server, list]:
    server = processes.server(*flags, "--min-clients", clients)
    started = [
        processes.client(server, *CARTPOLE, "--num-envs", 4, name=f"c{i}") for i in range(clients)
    ]
    return server, started


def assert_told_and_gone(clients, reason):
    for client in clients:
        assert client.wait() == 0
        client.wait_for(rf"the server stopped \({reason}")


@dataclass(frozen=True)
class HeldRun:
    """A run in the midst of its second learn step, which ends when the gate is there."""

    server: Server
    client: Program
    gate: Path

    def resume(self, processes: Processes, step: int, until: int | None = None) -> dict[str, Any]:
        """Resume the run, let it learn once more, and return the row of that.

        Args:
            processes: Starts the server, and a client unless ``until`` needs no further frame.
            step: Step of the checkpoint that it must resume from.
            until: Frames to go on to; the default wants one iteration more.
        """
        self.gate.touch()
        environment = {"HELD_UNTIL": str(self.gate)}
        limit = ("--resume", "--until-timesteps", until or step + 1)
        server = processes.server(*QUICK, *HELD, *limit, pair=HELD_PAIR, environment=environment)
        if until is None:
            client = processes.client(server, *CARTPOLE, "--num-envs", 4)
            assert client.wait() == 0
        assert server.wait() == 0
        (resumed,) = records.events(server.run, "resumed")
        assert resumed["step"] == step
        (row,) = [row for row in records.metrics(server.run) if row["attempt"] == 2]
        return row


@pytest.fixture
def learning(processes: Processes, request) -> HeldRun:
    """A run in its second learn step; its first is saved."""
    gate = processes.directory / "gate"
    environment = {"HELD_UNTIL": str(gate), **getattr(request, "param", {})}
    server = processes.server(
        *QUICK, *HELD, "--save-every", 1, pair=HELD_PAIR, environment=environment
    )
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    server.wait_for("saved the checkpoint")
    server.wait_for(UPDATING, times=2)
    return HeldRun(server, client, gate)


def test_ctrl_c_while_collecting_saves_and_the_run_resumes_from_there(processes: Processes):
    # The second collection lasts: from the 40th step on (32 make an iteration) each takes 0.4 s.
    slow = ("--env-kwargs", '{"step_s": 0.1, "slow_from": 40}')
    server = processes.server(*QUICK)
    client = processes.client(server, *SLOW_ENV, *slow, "--num-envs", 4)
    server.wait_for("iteration 1:")
    server.interrupt()
    assert server.wait() == 0
    assert_told_and_gone([client], r"stopping\): SIGINT received")
    (first,) = records.metrics(server.run)
    (saved,) = records.steps(server.run)
    assert saved >= first["run/step"]  # with the frames of the open iteration

    server = processes.server(*QUICK, "--resume", "--until-timesteps", first["run/step"] + 1)
    client = processes.client(server, *SLOW_ENV, *slow, "--num-envs", 4)
    assert (server.wait(), client.wait()) == (0, 0)
    assert records.events(server.run, "resumed")[0]["step"] == saved
    again, second = records.metrics(server.run)
    assert again == first
    assert (second["run/iteration"], second["run/policy_version"]) == (2, 2)
    assert second["run/step"] == first["run/step"] + second["run/frames"]


def test_ctrl_c_while_learning_waits_for_the_learn_step_and_saves_it(
    processes: Processes, learning: HeldRun
):
    server = learning.server
    server.interrupt()
    server.wait_for("SIGINT received; waiting up to 30 s for the learn step")
    assert server.program.is_running()
    learning.gate.touch()
    assert server.wait() == 0
    assert_told_and_gone([learning.client], r"stopping\): SIGINT received")
    first, second = records.metrics(server.run)
    assert records.steps(server.run) == [first["run/step"], second["run/step"]]
    assert learning.resume(processes, second["run/step"])["run/iteration"] == 3


def test_second_ctrl_c_gives_the_learn_step_up_and_keeps_its_frames(
    processes: Processes, learning: HeldRun
):
    server = learning.server
    server.interrupt()
    server.wait_for("waiting up to 30 s")
    server.interrupt()
    server.wait_for("the learn step was given up")
    assert server.wait() == 0
    assert_told_and_gone([learning.client], "stopping")
    (first,) = records.metrics(server.run)
    before, saved = records.steps(server.run)
    assert (before, saved) == (first["run/step"], first["run/step"] + 128)
    row = learning.resume(processes, saved, until=saved)
    # Learnt from the very frames: none was collected in between.
    assert (row["run/iteration"], row["run/step"], row["run/frames"]) == (2, saved, 128)


@pytest.mark.parametrize("learning", [{"HELD_DEAF": "1"}], indirect=True, ids=["deaf"])
def test_third_ctrl_c_exits_at_once_and_saved_checkpoints_stay_whole(learning: HeldRun):
    server = learning.server
    server.interrupt()
    server.wait_for("waiting up to 30 s")
    server.program.signal(signal.SIGTERM)  # of another kind: it cannot merge with its neighbours
    time.sleep(0.2)
    assert server.program.is_running()
    server.interrupt()
    assert server.wait(EXIT_LIMIT_S) == 130
    server.wait_for("third signal: leaving at once")
    (step,) = records.steps(server.run)
    assert load(server.run / str(step), verify=True).step == step


def test_two_ctrl_c_in_quick_succession_still_save(processes: Processes):
    server, clients = start(processes, *QUICK)
    server.wait_for("iteration 2:")
    server.interrupt()
    time.sleep(0.2)  # as the case has it: a person who presses twice
    if server.program.is_running():
        server.interrupt()
    assert server.wait() == 0
    assert_told_and_gone(clients, "stopping")
    newest = records.steps(server.run)[-1]
    assert newest >= records.metrics(server.run)[-1]["run/step"]
    assert load(server.run / str(newest), verify=True).step == newest


def test_sigterm_saves_and_ends_with_a_code_of_its_own(processes: Processes):
    server, clients = start(processes, *QUICK)
    server.wait_for("iteration 1:")
    server.program.signal(signal.SIGTERM)
    assert server.wait() == 3
    assert_told_and_gone(clients, r"stopping\): SIGTERM received")
    assert records.steps(server.run)[-1] >= records.metrics(server.run)[-1]["run/step"]


def test_ctrl_c_before_anything_was_learnt_says_that_nothing_is_saved(processes: Processes):
    server = processes.server(*NAMED, "--algo.frames-per-iteration", 100_000)
    client = processes.client(server, *CARTPOLE)
    server.wait_for("joined from")
    server.interrupt()
    assert server.wait() == 130
    server.wait_for("nothing was saved")
    assert_told_and_gone([client], "stopping")
    assert records.steps(server.run) == []


def test_ctrl_c_before_the_first_client_leaves_no_run_behind(processes: Processes):
    server = processes.server(*NAMED)
    server.interrupt()
    assert server.wait() == 130
    assert list(server.runs.rglob("run.json")) == []


def test_ctrl_c_ends_an_inline_run_with_a_checkpoint(processes: Processes):
    server = processes.try_server(*QUICK, "--inline", "CartPole-v1", "--save-every", 1000)
    server.wait_for("iteration 2:")
    server.interrupt()
    assert server.wait() == 0
    (saved,) = records.steps(processes.run)
    assert saved >= records.metrics(processes.run)[-1]["run/step"]
