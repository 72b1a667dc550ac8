"""A planned crash happens at its point and its time, and else nothing does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from royale_server import crash_points
for number in range(1, 4):
    crash_points.reach("infer")
    crash_points.reach("learn", lambda: print("half", end="", flush=True))
    print(number, end="", flush=True)
"""


def play(plan):
    environment = {"PYTHONPATH": str(ROOT)} | ({} if plan is None else {"ROYALE_CRASH_AT": plan})
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("plan", [None, "learn:4", "row"])
def test_without_a_plan_or_before_its_time_nothing_happens(plan):
    played = play(plan)
    assert (played.returncode, played.stdout) == (0, "123")


def test_it_dies_at_the_point_for_the_time_given_after_its_last_act():
    played = play("learn:2")
    assert (played.returncode, played.stdout) == (-signal.SIGKILL, "1half")


def test_without_a_count_the_first_time_counts():
    played = play("infer")
    assert (played.returncode, played.stdout) == (-signal.SIGKILL, "")


def test_a_plan_that_names_no_point_is_refused():
    played = play("lern:2")
    assert played.returncode == 1
    assert "ROYALE_CRASH_AT: 'lern:2' is no crash point" in played.stderr
