"""Every alarm is seen on both sides: firing on a fault, silent on healthy runs and at its limit."""

from __future__ import annotations

import pytest

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import AlarmSet
from tests.alarms.live_faults import FAULTS
from tests.alarms.planted import PLANTED
from tests.alarms.validation import (
    LIMITS,
    SPOKEN,
    asked,
    fires_at,
    healthy_runs,
    longest_streak,
    raised,
    spoke,
)

FIRST_ALARMS = [
    "illegal_actions",
    "ratio_invariant",
    "nonfinite",
    "buffer_overflow",
    "elixir_count_inexact",
    "seat_bias",
    "worker_failures",
    "worker_failures_persistent",
    "vram_spilling",
    "capacity_ratio",
    "clip_pinned",
    "kl_high",
    "kl_dead",
    "ev_negative",
    "noop_collapse",
    "noop_collapse_severe",
    "noop_entropy_floor",
    "tile_spam",
    "artefact_exploit",
    "draw_equilibrium",
    "reward_clipped",
    "shaping_dominates",
    "transitivity",
    "gate_starved",
    "actor_handoff",
    "critic_unready",
]
HALTS = {
    "illegal_actions": 1,
    "ratio_invariant": 1,
    "nonfinite": 1,
    "buffer_overflow": 1,
    "worker_failures_persistent": 3,
    "clip_pinned": 3,
    "noop_collapse_severe": 5,
    "frames_not_conserved": 1,
}
"""Alarms that stop a run, and after how many rows."""
MARGIN = 0.5
"""Share of its patience for which a condition may hold on a healthy run."""

by_name = pytest.mark.parametrize("alarm", BUILT_IN_ALARMS, ids=lambda alarm: alarm.name)


def test_the_table_has_these_alarms_and_these_halt():
    names = [alarm.name for alarm in BUILT_IN_ALARMS]
    assert names[: len(FIRST_ALARMS)] == FIRST_ALARMS
    assert set(PLANTED) == set(names)
    assert set(FAULTS) <= set(names)
    assert {a.name: a.patience for a in BUILT_IN_ALARMS if a.severity == "halt"} == HALTS


@by_name
def test_an_alarm_fires_exactly_when_its_patience_is_over(alarm: Alarm):
    lead = 1 if alarm.name == "vram_spilling" else 0  # the first row is its best
    assert fires_at(alarm, PLANTED[alarm.name]) == alarm.patience + lead


@by_name
def test_an_alarm_is_silent_just_inside_its_limit(alarm: Alarm):
    alarms = AlarmSet([alarm], LIMITS)
    for row in PLANTED[alarm.name].good * (2 * alarm.patience):
        assert alarms.evaluate(row, 1, alarm.source) == []


def test_the_healthy_runs_are_long_enough():
    runs = healthy_runs()
    assert set(runs) == {"arena", "cartpole"}
    assert all(len(rows) >= 200 for rows in runs.values())


@by_name
def test_an_alarm_is_silent_with_margin_on_recorded_healthy_runs(alarm: Alarm):
    for name, rows in healthy_runs().items():
        is_spoken = name == "arena" and alarm.name in SPOKEN
        assert (alarm.name in spoke(name)) == is_spoken, name
        if not asked(alarm, rows):
            continue
        if is_spoken:
            assert raised(alarm, rows), "it is silent now: take it out of SPOKEN"
            continue
        assert raised(alarm, rows) == [], name
        streak = longest_streak(alarm, rows)
        assert streak <= MARGIN * alarm.patience, f"{name}: {streak} rows running"
