"""SIGTERM is heard in every phase of a run, and what is saved then can be resumed (case H40)."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from checkpoints import load, newest
from royale_client.envs.gymnasium_envs import GymConfig, make_driver
from tests.system import records
from tests.system.processes import CARTPOLE, Processes, Program, Server
from tests.system.test_pings import dial, join_as_onlooker

EXIT_LIMIT_S = 10.0
STALLS = Path(__file__).with_name("stalls.py")
FRAMES, ENVS = 64, 4
BATCHES = FRAMES // ENVS
"""Inferences of an iteration."""
FLAGS = (
    *("--algo.frames-per-iteration", FRAMES, "--algo.num-epochs", 1, "--exp-name", "run"),
    *("--save-every", 2, "--keep-last", 100, "--plugin", STALLS),
)
SULKY = ("gym", "--env-id", "tests.system.envs:Sulky-v0", "--env-kwargs", '{"sulks_s": 30}')


def start(processes: Processes, *flags: object, held_at: str | None = None) -> Server:
    environment = {} if held_at is None else {"STALL_AT": held_at, "GATE": str(gate(processes))}
    # What is held in a batch is the model thread, as by a policy that takes long.
    flags = ("--short-inference", 0, *flags)
    return processes.server(*FLAGS, *flags, environment=environment)


def gate(processes: Processes) -> Path:
    return processes.directory / "gate"


def terminate(server: Server) -> int:
    """Send SIGTERM; return the exit code, and see that it came in time."""
    started = time.monotonic()
    server.program.signal(signal.SIGTERM)
    code = server.wait()
    assert time.monotonic() - started < EXIT_LIMIT_S
    return code


def processes_of(program: Program) -> list[int]:
    """Numbers of the running processes of a command: it leads a session of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == program.pid:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def assert_nothing_is_left(server: Server) -> None:
    assert processes_of(server.program) == []
    with socket.create_server((server.host, server.port)):
        pass


def assert_whole(server: Server) -> int:
    """The newest checkpoint is whole, and the only kind there is. Returns its step."""
    path, torn = newest(server.run)
    assert torn == []
    assert list(server.run.glob(".tmp-*")) == []
    return load(path).step


def assert_resumes(processes: Processes, step: int) -> None:
    """The run goes on from that step, with one more iteration at least."""
    server = start(processes, "--resume", "--until-timesteps", step + FRAMES)
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="only")
    assert (server.wait(), client.wait()) == (0, 0)
    (resumed,) = records.events(server.run, "resumed")
    assert resumed["step"] == step
    assert records.metrics(server.run)[-1]["run/step"] >= step + FRAMES


def test_while_waiting_for_the_first_client_nothing_is_saved_and_nothing_left(
    processes: Processes,
):
    server = start(processes)
    assert terminate(server) == 130
    assert list(server.runs.rglob("run.json")) == []
    assert_nothing_is_left(server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("inline", [(), ("--inline", "CartPole-v1")], ids=["server", "inline"])
def test_before_it_listens_the_start_is_undone(processes: Processes, number, inline):
    environment = {"STALL_AT": "assemble", "GATE": str(gate(processes))}
    server = processes.try_server(*FLAGS, *inline, environment=environment)
    server.wait_for("held at assemble")
    assert processes.run.is_dir()
    server.signal(number)
    gate(processes).touch()
    assert server.wait(EXIT_LIMIT_S) == 130
    server.wait_for("nothing was changed or saved")
    assert list((processes.directory / "runs").rglob("run.json")) == []


@pytest.mark.parametrize("is_stuck", [False, True], ids=["slow", "stuck"])
def test_while_the_model_is_made_nothing_is_saved_and_nothing_left(processes: Processes, is_stuck):
    server = start(processes, held_at="build")
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS)
    server.wait_for("held at build")
    server.program.signal(signal.SIGTERM)
    server.wait_for("ended: SIGTERM received")
    if not is_stuck:
        gate(processes).touch()
    assert server.wait(EXIT_LIMIT_S) == 130
    assert client.wait() == 0
    assert list(server.runs.rglob("run.json")) == []
    assert_nothing_is_left(server)


def test_in_the_first_inference_nothing_is_saved_yet_and_it_says_so(processes: Processes):
    server = start(processes, held_at="infer:1")
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS)
    server.wait_for("held at infer")
    server.program.signal(signal.SIGTERM)
    server.wait_for("SIGTERM received")
    gate(processes).touch()
    assert server.wait() == 130
    server.wait_for("nothing was saved")
    assert client.wait() == 0
    assert records.steps(server.run) == []


@pytest.mark.parametrize(
    "point",
    [
        f"infer:{2 * BATCHES + 5}",  # of the third iteration
        "learn:3",
        pytest.param("row:3", marks=pytest.mark.chaos),
        "save:model.safetensors:1",  # of the checkpoint of iteration 2
        pytest.param("publish:1", marks=pytest.mark.chaos),
    ],
)
def test_in_each_phase_one_whole_checkpoint_is_saved_and_the_run_resumes(
    processes: Processes, point
):
    server = start(processes, held_at=point)
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="only")
    server.wait_for("held at")
    server.program.signal(signal.SIGTERM)
    server.wait_for("SIGTERM received")
    gate(processes).touch()
    assert server.wait() == 3
    assert client.wait() == 0
    client.wait_for(r"the server stopped \(stopping\): SIGTERM received")
    assert_nothing_is_left(server)
    step = assert_whole(server)
    last = records.metrics(server.run)[-1]
    # The frames of the open iteration are in it; no row describes them yet.
    assert last["run/step"] <= step <= last["run/step"] + FRAMES + ENVS
    assert_resumes(processes, step)


def test_just_before_the_end_the_run_ends_as_finished(processes: Processes):
    limit = ("--until-timesteps", 2 * FRAMES)
    server = start(processes, *limit, held_at="stop")
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="only")
    server.wait_for("held at stop")
    server.program.signal(signal.SIGTERM)
    gate(processes).touch()
    assert server.wait() == 0
    assert client.wait() == 0
    client.wait_for(r"the server stopped \(finished\)")
    assert assert_whole(server) == 2 * FRAMES
    assert_resumes(processes, 2 * FRAMES)


def test_a_second_signal_does_not_cut_short_a_checkpoint_that_is_being_written(
    processes: Processes,
):
    server = start(processes, held_at="save:optimizer.safetensors:1")
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="only")
    server.wait_for("held at save:optimizer")
    server.program.signal(signal.SIGTERM)
    server.wait_for("SIGTERM received")
    server.interrupt()
    time.sleep(0.3)  # there is nothing to see: it goes on waiting
    assert server.program.is_running()
    gate(processes).touch()
    assert server.wait() == 3
    assert client.wait() == 0
    assert assert_whole(server) >= records.metrics(server.run)[-1]["run/step"]


@pytest.mark.chaos
@pytest.mark.parametrize(
    "mode", [(), ("--deterministic", "--min-clients", 1)], ids=["free", "exact"]
)
def test_while_a_client_does_not_answer_a_snapshot_its_environments_are_left_out(
    processes: Processes, mode
):
    server = start(processes, *mode)
    client = processes.client(server, *SULKY, "--num-envs", ENVS, name="only")
    server.wait_for("iteration 2:")
    assert terminate(server) == 3
    step = assert_whole(server)
    assert step == records.metrics(server.run)[-1]["run/step"]
    (event,) = records.events(server.run, "no_snapshot")
    assert event["client"] == "only"
    client.end()


@pytest.mark.parametrize(
    ("mode", "presses"),
    [
        pytest.param((), 1, marks=pytest.mark.chaos),
        pytest.param((), 2, marks=pytest.mark.chaos),
        pytest.param(("--deterministic",), 1, marks=pytest.mark.chaos),
        (("--deterministic",), 2),
    ],
    ids=["free, once", "free, twice", "exact, once", "exact, twice"],
)
def test_stuck_and_silent_clients_do_not_delay_the_exit(processes: Processes, mode, presses):
    server = start(processes, *mode, "--min-clients", 5)
    idle = [
        processes.client(server, *CARTPOLE, "--num-envs", ENVS, name=f"idle{i}") for i in range(4)
    ]
    stuck = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="stuck")
    with socket.create_connection((server.host, server.port)), dial(server) as onlooker:
        server.wait_for("saved the checkpoint")
        join_as_onlooker(onlooker, make_driver(GymConfig(env_id="CartPole-v1"), 1))
        stuck.signal(signal.SIGSTOP)
        started = time.monotonic()
        server.interrupt()
        if presses == 2:
            time.sleep(0.2)  # as the case has it
            server.program.signal(signal.SIGTERM)
        assert server.wait() == 0
        took_s = time.monotonic() - started
    print(f"ended after {took_s:.1f} s")
    assert took_s < EXIT_LIMIT_S
    for client in idle:
        assert client.wait() == 0
        client.wait_for(r"the server stopped \(stopping\): SIGINT received")
    assert_nothing_is_left(server)
    assert assert_whole(server) >= records.metrics(server.run)[-1]["run/step"]


@pytest.mark.chaos
def test_a_dead_tracker_delays_the_end_by_five_seconds_at_most(processes: Processes):
    tracked = ("--track.enabled", "--track.tracker", "dead")
    server = start(processes, *tracked)
    client = processes.client(server, *CARTPOLE, "--num-envs", ENVS, name="only")
    server.wait_for("saved the checkpoint")
    server.program.signal(signal.SIGTERM)
    server.wait_for("ended: SIGTERM received")
    ended = time.monotonic()
    assert server.wait() == 3
    # The bound is five seconds; what is beyond it is the end of the process on a busy machine.
    assert time.monotonic() - ended < 5 + 1.5
    server.wait_for("tracker dead did not finish in time")
    assert client.wait() == 0
    assert_whole(server)
