"""Several processes under one command: independent of start order, ended together."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from royale_client import processes
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.leaving import LeaveRequest
from royale_client.processes import ChildIdentity
from tests.client.fake_server import FakeServer, SocketServer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the tests send POSIX signals")


def start(server, *flags, num_procs=2):
    # Slow enough that nobody ends by itself.
    command = [sys.executable, "-m", "royale_client", "dummy-v1", "--server-url", server.url]
    return subprocess.Popen(
        [*command, "--num-procs", str(num_procs), "--client-name", "N", "--step-ms", "5", *flags],
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def started():
    """Starts commands and makes sure that none outlives its test."""
    commands = []

    def run(*args, **kwargs):
        commands.append(start(*args, **kwargs))
        return commands[-1]

    yield run
    for command in commands:
        command.kill()
        command.communicate()


def working(server, count):
    """Wait until that many clients have sent a step."""
    server.wait_for(lambda: sum(bool(s.steps) for s in server.sessions) >= count, 60.0)


def by_name(server):
    return {session.hello.client_name: session for session in server.sessions}


def test_name_and_seed_of_a_child_follow_from_its_number():
    child = ChildIdentity(3)

    assert child.name("box") == "box-3"
    assert child.seed(100, 8) == 124
    assert child.seed(None, 8) is None


def test_children_have_their_own_names_and_seeds_and_end_in_order(started):
    with SocketServer() as server:
        flags = ["--seed", "40", "--num-envs", "3", "--num-episodes", "3", "--episode-length", "5"]
        command = started(server, *flags)

        assert command.wait(60) == 0
        sessions = by_name(server)

    assert set(sessions) == {"N-0", "N-1"}
    # Child i, environment j is seeded with 40 + 3 * i + j, whoever connected first.
    for name, first_seed in (("N-0", 40), ("N-1", 43)):
        driver = DummyDriver(DummyConfig(episode_length=5), 3)
        turn = driver.reset(np.arange(first_seed, first_seed + 3, dtype=np.uint64))
        (sent,) = sessions[name].steps[0].observations
        assert np.array_equal(sent, turn.observations[0])
        assert sessions[name].goodbye.reason == "all episodes are complete"


def test_death_of_one_child_is_reported_and_ends_the_others_in_order(started):
    with SocketServer() as server:
        command = started(server, "--restarts", "0", num_procs=3)
        working(server, 3)
        victim = by_name(server)["N-1"].hello.pid
        os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        reported_s = None
        for line in command.stderr:
            if "process 1" in line:
                reported_s = time.monotonic() - killed_s
                break
        command.stderr.read()

        assert command.wait(60) == 128 + signal.SIGKILL
        server.wait_for(lambda: server.num_ended == 3)
        reasons = [s.goodbye and s.goodbye.reason for n, s in sorted(by_name(server).items())]

    assert f"process 1 (pid {victim}) ended with signal 9; ending the other 2" in line
    assert reported_s < 1.0
    assert reasons == ["the client was asked to leave", None, "the client was asked to leave"]


def lives(server, name):
    """The sessions of a client that has sent a step in each, oldest first."""
    return [s for s in server.sessions if s.steps and s.hello.client_name == name]


def test_a_killed_child_is_started_again_under_its_name_as_often_as_allowed(started):
    with SocketServer() as server:
        command = started(server, "--restarts", "1", num_procs=2)
        working(server, 2)
        for life in (1, 2):
            server.wait_for(lambda life=life: len(lives(server, "N-1")) == life, 60.0)
            os.kill(lives(server, "N-1")[-1].hello.pid, signal.SIGKILL)
        _, log = command.communicate(timeout=60)

    assert command.returncode == 128 + signal.SIGKILL
    first, second = [line for line in log.splitlines() if "process 1" in line]
    assert "ended with signal 9, and with it the episodes under way in 1 / 2" in first
    assert "(0 more times at most)" in first
    assert "ended with signal 9; ending the other 1" in second


def test_failure_of_one_child_becomes_the_exit_code(started):
    def refuse_one(server, step):
        if server.hello.client_name == "N-1":
            return [server.session.fault("contract", "not you")]
        return [server.answer(step)]

    with SocketServer(lambda: FakeServer(refuse_one)) as server:
        command = started(server)
        _, log = command.communicate(timeout=60)

    assert command.returncode == 2
    assert "[1] the server ended the session (contract): not you" in log


def test_interrupt_of_the_command_lets_every_child_leave_in_order(started):
    with SocketServer() as server:
        command = started(server)
        working(server, 2)
        command.send_signal(signal.SIGINT)

        assert command.wait(60) == 130
        server.wait_for(lambda: server.num_ended == 2)

    for session in server.sessions:
        assert session.goodbye.reason == "the client was asked to leave"
        assert session.steps[-1].asks.tolist() == [False]
        assert session.steps[-1].truncated.tolist() == [True]


def test_children_die_with_their_parent_even_if_it_is_killed(started):
    with SocketServer() as server:
        command = started(server)
        working(server, 2)
        command.send_signal(signal.SIGKILL)
        command.wait()
        killed_s = time.monotonic()
        server.wait_for(lambda: server.num_ended == 2, 10.0)

        assert time.monotonic() - killed_s < 2.0


def test_pipe_from_the_parent_asks_to_leave_and_its_end_ends_the_process(monkeypatch):
    codes = []
    monkeypatch.setattr(processes.os, "_exit", codes.append)
    read_end, write_end = os.pipe()
    leave = LeaveRequest()
    os.write(write_end, b"q")
    os.close(write_end)

    processes._obey(read_end, leave)
    os.close(read_end)

    assert leave()
    assert codes == [1]


def test_interrupt_of_a_single_client_ends_with_code_130():
    with SocketServer() as server:
        command = start(server, num_procs=1)
        working(server, 1)
        command.send_signal(signal.SIGINT)
        _, log = command.communicate(timeout=60)
        server.wait_for(lambda: server.num_ended == 1)

    assert command.returncode == 130
    assert "in all" in log
    assert server.sessions[0].steps[-1].truncated.tolist() == [True]
