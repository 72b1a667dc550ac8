"""Alarms over rows: patience, missing keys, numbers that are not finite, and going on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.conditions import Condition, Reading, above
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import AlarmSet, configured
from royale_server.alarms.words import rule_text

LIMITS = {**AlarmConfig().limits(), "save_every": 10}


def named(name: str, /, **changes: object) -> Alarm:
    (alarm,) = (alarm for alarm in BUILT_IN_ALARMS if alarm.name == name)
    return replace(alarm, **changes)


def kinds(alarms: AlarmSet, rows: list[dict[str, object]]) -> list[str]:
    """What changes at each row: "" for nothing."""
    return [
        " ".join(change.kind for change in alarms.evaluate(row, i))
        for i, row in enumerate(rows, start=1)
    ]


def test_an_alarm_speaks_once_after_its_patience_and_is_over_after_as_many_good_rows():
    alarms = AlarmSet([named("kl_high")], LIMITS)  # above 0.05, patience 3
    rows = [{"ppo/kl": kl} for kl in (0.06, 0.07, 0.08, 0.09, 0.05, 0.05, 0.05, 0.05)]
    assert kinds(alarms, rows) == ["", "", "raise", "", "", "", "clear", ""]
    assert alarms.open == []


def test_one_good_row_breaks_the_count():
    alarms = AlarmSet([named("kl_high")], LIMITS)
    rows = [{"ppo/kl": kl} for kl in (0.06, 0.06, 0.01, 0.06, 0.06)]
    assert kinds(alarms, rows) == [""] * 5


@pytest.mark.parametrize("alarm", BUILT_IN_ALARMS, ids=lambda alarm: alarm.name)
def test_a_missing_key_never_fires_and_leaves_the_count_as_it_is(alarm: Alarm):
    alarms = AlarmSet([alarm], LIMITS)
    before = alarms.state()
    for _ in range(60):
        assert alarms.evaluate({"run/iteration": 1}, 1, alarm.source) == [] or (
            alarm.keys == ("row/nonfinite",)
        )
    if alarm.keys != ("row/nonfinite",):
        assert alarms.state() == before


def test_rows_without_the_key_neither_count_nor_break_the_count():
    alarms = AlarmSet([named("kl_high")], LIMITS)
    rows = [{"ppo/kl": 0.06}, {}, {"ppo/kl": 0.06}, {}, {"ppo/kl": 0.06}]
    assert kinds(alarms, rows) == ["", "", "", "", "raise"]


def test_a_number_that_is_not_finite_is_named_and_fires_nothing_else():
    alarms = AlarmSet([named("kl_high", patience=1), named("nonfinite_metric")], LIMITS)
    row = {"ppo/kl": None, "nonfinite": {"ppo/kl": "nan"}, "run/iteration": 7}
    (change,) = alarms.evaluate(row, 7)
    assert change.alarm.name == "nonfinite_metric"
    assert change.record()["values"] == {"row/nonfinite": 1.0, "ppo/kl": "nan"}


def test_a_count_goes_on_where_a_checkpoint_left_it():
    first = AlarmSet([named("kl_high")], LIMITS)
    assert kinds(first, [{"ppo/kl": 0.06}] * 2) == ["", ""]
    state = json.loads(json.dumps(first.state()))  # as it lies in a checkpoint
    second = AlarmSet([named("kl_high")], LIMITS)
    second.load_state(state)
    assert kinds(second, [{"ppo/kl": 0.06}]) == ["raise"]


def test_an_open_warning_stays_open_over_a_resume_and_is_not_raised_again():
    first = AlarmSet([named("kl_high")], LIMITS)
    kinds(first, [{"ppo/kl": 0.06}] * 3)
    second = AlarmSet([named("kl_high")], LIMITS)
    second.load_state(first.state())
    assert second.open == ["kl_high"]
    assert kinds(second, [{"ppo/kl": kl} for kl in (0.06, 0.01, 0.01, 0.01)]) == [
        "",
        "",
        "",
        "clear",
    ]


def test_what_stopped_a_run_stops_it_again_at_once_unless_it_is_cured():
    first = AlarmSet([named("clip_pinned")], LIMITS)
    kinds(first, [{"ppo/clip_fraction": 0.9}] * 3)
    for rows, expected in (
        ([0.9], ["raise"]),
        ([0.1, 0.9, 0.9, 0.9], ["", "", "", "raise"]),
    ):
        resumed = AlarmSet([named("clip_pinned")], LIMITS)
        resumed.load_state(first.state())
        assert kinds(resumed, [{"ppo/clip_fraction": value} for value in rows]) == expected


def test_a_counter_is_held_against_the_row_before_and_begins_anew_with_every_attempt():
    alarms = AlarmSet([named("worker_failures")], LIMITS)
    key = "health/worker_restarts"
    rows = [
        {key: value, "run/attempt": attempt}
        for value, attempt in ((0, 1), (1, 1), (1, 1), (1, 2), (1, 2), (0, 3))
    ]
    # 1 in the first row of the second attempt is one more loss, 0 in the third is none.
    assert kinds(alarms, rows) == ["", "raise", "clear", "raise", "clear", ""]


def test_the_best_update_is_kept_for_each_state_of_the_actor():
    alarms = AlarmSet([named("vram_spilling", patience=1)], LIMITS)

    def row(seconds: float, frozen: int, free_mb: float) -> dict[str, object]:
        return {
            "time/update": seconds,
            "ppo/actor_frozen": frozen,
            "health/vram_driver_free_mb": free_mb,
        }

    # Frozen updates take 1 s, others 4 s: 4 s is no multiple of their own best.
    rows = [row(1, 1, 50), row(4, 0, 50), row(4.2, 0, 50), row(8, 0, 500), row(8, 0, 50)]
    assert kinds(alarms, rows) == ["", "", "", "", "raise"]
    saved = AlarmSet([named("vram_spilling", patience=1)], LIMITS)
    saved.load_state(alarms.state())
    assert kinds(saved, [row(1.9, 1, 50), row(2, 1, 50)]) == ["clear", "raise"]


def test_a_slow_row_does_not_raise_the_bar_it_is_held_against():
    alarms = AlarmSet([named("vram_spilling", patience=1)], LIMITS)
    rows = [
        {"time/update": seconds, "health/vram_driver_free_mb": 50.0}
        for seconds in (9.0, 4.0, 7.9, 8.0)
    ]
    assert kinds(alarms, rows) == ["", "", "", "raise"]


def test_the_whole_table_is_asked_also_where_the_first_alarm_halts():
    alarms = AlarmSet(BUILT_IN_ALARMS, LIMITS)
    row = {"env/illegal_action_rate": 0.1, "health/nan_guard_trips": 2, "ppo/reward_clip_frac": 0.1}
    changes = alarms.evaluate(row, 1)
    assert [change.alarm.name for change in changes] == [
        "illegal_actions",
        "nonfinite",
        "reward_clipped",
    ]
    assert [change.is_halt for change in changes] == [True, True, False]


def test_settings_make_an_alarm_quieter_louder_or_silent():
    config = AlarmConfig(
        patience_overrides=("kl_high=5",),
        severity_overrides=("kl_high=halt", "clip_pinned=warn"),
        disabled=("kl_dead",),
        kl_high=0.5,
    )
    chosen = {alarm.name: alarm for alarm in configured(BUILT_IN_ALARMS, config)}
    assert "kl_dead" not in chosen
    assert (chosen["kl_high"].patience, chosen["kl_high"].severity) == (5, "halt")
    assert (chosen["clip_pinned"].patience, chosen["clip_pinned"].severity) == (3, "warn")
    assert config.limits()["kl_high"] == 0.5
    assert configured(BUILT_IN_ALARMS, AlarmConfig(enabled=False)) == []


class _Broken(Condition):
    keys = ("ppo/kl",)
    limits = ()

    def holds(self, reading: Reading) -> bool:
        raise ZeroDivisionError

    def words(self) -> str:
        return ""


def test_a_condition_that_raises_is_left_out_and_the_others_are_asked(caplog):
    broken = named("kl_high", name="broken", when=_Broken(), patience=1)
    alarms = AlarmSet([broken, named("kl_high", patience=1)], LIMITS)
    assert kinds(alarms, [{"ppo/kl": 0.06}, {"ppo/kl": 0.06}]) == ["raise", ""]
    assert caplog.text.count("alarm broken cannot be asked") == 1


def test_every_alarm_says_what_it_reads_and_every_limit_is_a_setting():
    names = [alarm.name for alarm in BUILT_IN_ALARMS]
    assert len(set(names)) == len(names)
    for alarm in BUILT_IN_ALARMS:
        assert alarm.keys
        text = rule_text(alarm, LIMITS)
        assert "{" not in text, alarm.name
        assert all(f"`{key}`" in text for key in alarm.keys), alarm.name
        assert alarm.population
        assert alarm.meaning.endswith(".")
        assert alarm.remedy.endswith(".")
    used = {limit for alarm in BUILT_IN_ALARMS for limit in alarm.when.limits}
    assert set(AlarmConfig().limits()) == used - {0.0, 1.0, "save_every"}


@pytest.mark.parametrize(
    "changes", [{"name": "No Name"}, {"patience": 0}, {"severity": "loud"}], ids=str
)
def test_a_declaration_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match=r"expected|not warn or halt"):
        named("kl_high", **changes)


def test_a_condition_may_hold_a_number_of_its_own():
    alarms = AlarmSet([named("kl_high", when=above("ppo/kl", 1.0), patience=1)], {})
    assert kinds(alarms, [{"ppo/kl": 0.9}, {"ppo/kl": 1.1}]) == ["", "raise"]
