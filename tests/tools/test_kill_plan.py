"""Where ``royale verify-resume`` places its kill."""

from __future__ import annotations

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.tools.kill_plan import KillPlan, parse_kill

# 96 frames in batches of 6 rows are 16 batches an iteration, one iteration a second.
ROWS = {
    i: {"run/frames": 96, "throughput/rows_per_batch": 6.0, "wall": 1000.0 + i}
    for i in range(1, 11)
}


def plan(point, count=None, seed=0):
    return KillPlan(point=point, count=count, save_every=3, seed=seed)


def test_a_batch_is_chosen_from_the_middle_of_an_iteration_between_two_checkpoints():
    # With checkpoints at 3, 6 and 9 that is iteration 8: 7 * 16 batches before it and half of 16.
    assert plan("collect").iteration(ROWS) == 8
    assert plan("infer").text(ROWS) == "infer:120"


@pytest.mark.parametrize("point", ["learn", "row"])
def test_what_happens_once_an_iteration_is_killed_in_the_same_one(point):
    assert (plan(point).iteration(ROWS), plan(point).text(ROWS)) == (8, f"{point}:8")
    assert (plan(point, 4).iteration(ROWS), plan(point, 4).text(ROWS)) == (4, f"{point}:4")


@pytest.mark.parametrize("point", ["save:rng.json", "publish", "link"])
def test_a_save_is_killed_the_second_time(point):
    assert (plan(point).iteration(ROWS), plan(point).text(ROWS)) == (6, f"{point}:2")
    assert plan(point, 3).iteration(ROWS) == 9


def test_a_chosen_batch_is_found_in_the_rows_or_not_yet():
    assert plan("collect", 33).iteration(ROWS) == 3
    assert plan("collect", 161).iteration(ROWS) is None


def test_a_stop_is_asked_for_between_two_checkpoints():
    stop = plan("stop")
    assert (stop.by, stop.iteration(ROWS), stop.text(ROWS)) == ("stop", 8, "stop:1")


def test_a_random_moment_lies_within_one_save_interval_and_follows_its_seed():
    delays = {plan("random", seed=seed).delay_s(ROWS) for seed in range(50)}
    assert 0.0 <= min(delays) < 0.5
    assert 2.5 < max(delays) <= 3.0
    assert plan("random", seed=7).delay_s(ROWS) == plan("random", seed=7).delay_s(ROWS)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("learn", ("learn", None)),
        ("learn:4", ("learn", 4)),
        ("save:state.json", ("save:state.json", None)),
        ("save:state.json:2", ("save:state.json", 2)),
        ("random", ("random", None)),
    ],
)
def test_a_point_is_read_with_or_without_its_count(text, read):
    assert parse_kill(text) == read


@pytest.mark.parametrize("text", ["lern", "save:", "learn:0", "learn:-1", "save:FILE", ""])
def test_what_is_no_point_is_refused(text):
    with pytest.raises(ConfigError):
        parse_kill(text)
