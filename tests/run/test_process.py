"""What became of a recorded process is said with its evidence, or not claimed at all."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from royale_server.run.process import ProcessMark, evidence, this_process

HERE = this_process()

needs_proc = pytest.mark.skipif(HERE.start_ticks is None, reason="needs /proc")


def gone(**changes):
    """A process that has ended, with some of its marks changed."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return replace(HERE, **{"pid": process.pid, "start_ticks": 1, **changes})


@needs_proc
def test_a_process_that_runs_is_alive():
    assert evidence(HERE).fate == "alive"
    assert evidence(HERE).sentence == f"process {os.getpid()} still runs"


@needs_proc
def test_a_process_that_is_not_there_is_gone():
    assert evidence(gone()).fate == "gone"
    assert "there is no process" in evidence(gone()).sentence


@needs_proc
def test_a_process_number_that_was_given_to_another_process_proves_the_end():
    found = evidence(replace(HERE, start_ticks=1))
    assert found.fate == "gone"
    assert "is another one now" in found.sentence


@needs_proc
def test_after_a_restart_of_the_machine_no_process_is_left():
    found = evidence(replace(HERE, boot_id="another"))
    assert found.fate == "gone"
    assert "started anew" in found.sentence


@needs_proc
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"host": "elsewhere"}, "it ran on elsewhere, which cannot be asked from here"),
        ({"host": "elsewhere", "boot_id": "another"}, "cannot be asked from here"),
        ({"pid_namespace": "pid:[1]"}, "another container"),
        ({"start_ticks": None}, "does not tell one process from another"),
        ({"boot_id": None}, "does not tell one process from another"),
    ],
    ids=str,
)
def test_what_cannot_be_known_from_here_is_not_called_a_crash(changes, says):
    found = evidence(gone(**changes))
    assert found.fate == "unknown"
    assert says in found.sentence
    assert found.sentence.endswith("so how it ended is unknown")
    assert "crash" not in found.sentence


def test_a_system_that_says_nothing_about_processes_proves_nothing():
    bare = ProcessMark(pid=1, host="box")
    assert evidence(bare, bare).fate == "unknown"
