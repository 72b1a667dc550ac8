"""Children of a check: what they started does not outlive them, however their end is noticed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from operator import methodcaller

import pytest

from royale_server.tools.children import Child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are of POSIX")

LEADER = 'exec 3>"$1"; sleep 600 & echo "$$ $!" >&3; exit 3'
"""Ends at once and leaves a worker behind, which holds the pipe open for as long as it lives."""


@pytest.fixture
def orphaned(tmp_path):
    """A child that has ended, which nobody has noticed, and a pipe that its worker holds open."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    child = Child(["sh", "-c", LEADER, "sh", str(fifo)], tmp_path / "log")
    select.select([pipe], [], [], 30)
    leader, worker = map(int, os.read(pipe, 100).split())
    os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
    yield child, pipe
    os.close(pipe)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    child.wait(30)


def is_closed(pipe):
    """Whether the pipe's last writer goes away; SIGKILL takes effect soon, not at once."""
    return bool(select.select([pipe], [], [], 5)[0]) and os.read(pipe, 1) == b""


@pytest.mark.parametrize(
    "notice",
    [
        methodcaller("kill"),
        methodcaller("end"),
        methodcaller("terminate"),
        methodcaller("wait", 30.0),
        lambda child: child.code,
    ],
    ids=["kill", "end", "terminate", "wait", "code"],
)
def test_the_workers_of_a_child_that_ended_by_itself_are_killed(orphaned, notice):
    child, pipe = orphaned
    notice(child)
    assert is_closed(pipe)
    assert child.code == 3


def test_a_child_that_runs_is_killed_together_with_its_workers(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = 'exec 3>"$1"; sleep 600 & echo up >&3; wait'
    child = Child(["sh", "-c", script, "sh", str(fifo)], tmp_path / "log")
    select.select([pipe], [], [], 30)
    assert os.read(pipe, 10) == b"up\n"
    assert child.code is None
    assert not child.wait(0.01)
    child.kill()
    assert is_closed(pipe)
    assert child.code == -signal.SIGKILL
    child.kill()  # once more does nothing
    os.close(pipe)


def test_a_child_that_is_asked_to_end_may_choose_its_code(tmp_path):
    child = Child(["sh", "-c", "trap 'exit 7' TERM; echo up; sleep 600 & wait"], tmp_path / "log")
    while child.tail != ["up"]:
        assert not child.wait(0.01)
    child.end()
    assert child.code == 7
