"""Processes of a measurement: started, answered, and always ended."""

import sys

import pytest

from royale_server.bench.plan import BenchError
from royale_server.bench.stage import Process, Stage

ENDLESS = [sys.executable, "-c", "import time; time.sleep(600)"]
OPTIONS = {"rows": 2, "leaves": [["<f4", [4]]], "mask_size": 9}


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def test_a_yardstick_answers_from_a_process_of_its_own(stage):
    with stage:
        figures = stage.work("arena", {**OPTIONS, "seconds": 0})
    # A row: four float32 and two bytes of mask.
    assert figures["tensor_bytes"] == 18


def test_a_yardstick_that_fails_is_shown_with_its_last_lines(stage):
    with stage, pytest.raises(BenchError, match=r"(?s)exit code 1.*TypeError"):
        stage.work("arena", {"rows": 2})


def two_endless(stage):
    return [stage.start(ENDLESS, name) for name in ("first", "second")]


def test_whatever_runs_is_ended_on_the_way_out(stage):
    children = []

    def interrupted():
        with stage:
            children.extend(two_endless(stage))
            assert [child.code for child in children] == [None, None]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [child.code for child in children] == [-9, -9]


def test_another_interruption_does_not_leave_a_process_behind(stage, monkeypatch):
    kill, calls, children = Process.kill, [], []

    def interrupted_once(child):
        calls.append(child)
        if len(calls) == 1:
            raise KeyboardInterrupt
        kill(child)

    monkeypatch.setattr(Process, "kill", interrupted_once)

    def play():
        with stage:
            children.extend(two_endless(stage))

    with pytest.raises(KeyboardInterrupt):
        play()
    assert [child.code for child in children] == [-9, -9]


def test_a_process_that_ends_too_early_is_noticed(stage):
    with stage:
        child = stage.start([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], "x")
        with pytest.raises(BenchError, match=r"(?s)exit code 3 before it spoke.*no luck"):
            stage.wait_for(lambda: False, child, "it spoke")


def test_an_interpreter_of_its_own_finds_our_packages_and_nothing_beside_them(tmp_path):
    stage = Stage(tmp_path, {"sb3": sys.executable + "3"})
    with stage:
        assert stage.python_of("sb3") == sys.executable + "3"
        assert stage.python_of("rllib") == sys.executable
        packages = stage._own_packages()
    assert sorted(path.name for path in packages.iterdir()) == ["royale_client", "royale_server"]
