"""How ``royale verify-resume`` judges the servers it started, with scripts in their place."""

from __future__ import annotations

import sys

import pytest

from royale_server.tools import verified_run
from royale_server.tools.children import Child
from royale_server.tools.verified_run import CheckFailedError, VerifiedRun

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a run whose server is a script; it has said «up» by then or has ended."""
    runs = []

    def started(script, *, clients=(), silence_s=30.0):
        words = ["sh", "-c", script]
        monkeypatch.setattr(verified_run, "Child", lambda _, log, env=None: Child(words, log, env))
        run = VerifiedRun(
            "a", [], clients, folder=tmp_path, silence_s=silence_s, say=lambda line: None
        )
        runs.append(run)
        run.start()
        while "up" not in run.server.tail and not run.server.wait(0.01):
            pass
        return run

    yield started
    for run in runs:
        run.close()


def until_term(reaction):
    return f"trap '{reaction}' TERM; echo up; while :; do sleep 600 & wait $!; done"


def test_a_server_that_ends_as_asked_is_accepted(start):
    run = start(until_term("exit 3"))
    run.stop()
    assert run.server.code == 3


def test_a_server_that_had_finished_by_itself_is_accepted(start):
    run = start("exit 0")
    assert run.server.wait(30)
    run.stop()


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_server_that_answers_a_request_to_end_with_another_code_fails_the_check(start, code):
    run = start(until_term(f"echo no disk; exit {code}"))
    with pytest.raises(
        CheckFailedError, match=rf"exit code {code}, and 3 was expected; .*a\.server"
    ):
        run.stop()


def test_a_server_that_had_crashed_before_it_was_asked_fails_the_check(start):
    run = start("echo broken; exit 1")
    assert run.server.wait(30)
    with pytest.raises(CheckFailedError, match=r"exit code 1, and 0 was expected[\s\S]*\| broken"):
        run.stop()


def test_a_server_that_does_not_end_when_asked_fails_the_check(start):
    run = start(until_term(":"), silence_s=0.05)
    with pytest.raises(CheckFailedError, match=r"was told to end and still runs after 0\.05 s"):
        run.stop()


def test_a_server_that_never_listens_fails_the_check(start):
    with pytest.raises(CheckFailedError, match=r"does not listen after 0\.05 s"):
        start(until_term(":"), clients=["never started"], silence_s=0.05)


@pytest.mark.parametrize(("end", "is_kill"), [("kill -KILL $$", True), ("kill -SEGV $$", False)])
def test_only_sigkill_counts_as_the_planned_kill(start, end, is_kill):
    run = start(f"ulimit -c 0; {end}")
    assert run.server.wait(30)
    if is_kill:
        run.check_killed("learn:7")
    else:
        with pytest.raises(CheckFailedError, match="exit code -11 and was to be killed at learn:7"):
            run.check_killed("learn:7")
