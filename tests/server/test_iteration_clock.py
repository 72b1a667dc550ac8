"""Where the time of an iteration goes: every second in one part, and both waits side by side."""

from types import SimpleNamespace

import pytest

from algorithms.metric_spec import MetricSpec
from royale_server.iteration_clock import (
    BOOTSTRAP,
    CHECKS,
    PARTS,
    THROUGHPUT,
    TIME,
    UPDATE,
    WAITS,
    IterationClock,
)

LEARNING = {BOOTSTRAP: 0.25, CHECKS: 0.25, UPDATE: 3.0}
NOTHING_LEARNT = {BOOTSTRAP: 0.0, CHECKS: 0.0, UPDATE: 0.0}
DECLARED = {spec.key for spec in (*TIME, *THROUGHPUT, *WAITS)}


def group(waiting_since=None):
    waiting = None if waiting_since is None else SimpleNamespace(received_at=waiting_since)
    return SimpleNamespace(waiting=waiting)


def batch(*received_at, rows=8, evaluation=False):
    items = [SimpleNamespace(request=SimpleNamespace(received_at=at)) for at in received_at]
    return SimpleNamespace(items=items, slots=range(rows), evaluation=evaluation)


def numbers(clock, now, *, groups=(), learning=NOTHING_LEARNT, storage_s=0.0, collected=100):
    return clock.numbers(
        now=now, collected=collected, storage_s=storage_s, learning=learning, groups=groups
    )


@pytest.fixture
def told():
    """Ten seconds: 5 of collecting (2 of inference, 1 of writing), 3.5 of learning, 1.5 of else."""
    clock = IterationClock(100.0)
    clock.inferred(batch(100.0, 100.5), 1.0, 102.0)
    clock.inferred(batch(103.0, 102.5), 1.0, 104.0)
    clock.closed(105.0)
    groups = [group(waiting_since=104.5), group()]
    return numbers(clock, 110.0, groups=groups, learning=LEARNING, storage_s=1.0)


def test_every_second_is_in_one_part(told):
    assert told["time/iteration"] == 10.0
    assert {part: told[f"time/{part}"] for part in PARTS} == {
        "inference": 2.0,
        "storage": 1.0,
        "wait_frames": 2.0,  # 5 of collecting less 2 and 1
        "rest": 0.0,
        "bootstrap": 0.25,
        "checks": 0.25,
        "update": 3.0,
        "residual": 1.5,  # 10 less 5 of collecting less 3.5 of learning
    }
    assert sum(told[f"time/{part}"] for part in PARTS) == told["time/iteration"]
    assert told["time/collection"] == 5.0


def test_who_waits_for_whom_is_said_of_both(told):
    assert told["throughput/learner_wait_frac"] == 0.2  # 2 of 10 s
    # Answered: 2, 1.5, 1 and 1.5 s after they came; one request waits since 5.5 s. Two groups.
    assert told["client/wait_frac"] == pytest.approx((2 + 1.5 + 1 + 1.5 + 5.5) / (2 * 10))
    assert told["client/wait_mean"] == 1.5
    assert told["throughput/rollout_capacity_ratio"] == 1.5  # 3 s of learning to 2 of waiting


@pytest.mark.parametrize(
    ("learning", "inferred_s"),
    [(NOTHING_LEARNT, 1.0), ({**LEARNING, UPDATE: 0.99}, 1.0), (LEARNING, 5.0)],
    ids=["nothing learnt", "learnt in no time", "never waited"],
)
def test_the_supply_is_not_judged_where_there_is_nothing_to_compare(learning, inferred_s):
    clock = IterationClock(0.0)
    clock.inferred(batch(0.0), inferred_s, 5.0)
    clock.closed(5.0)
    told = numbers(clock, 9.0, groups=[group()], learning=learning)
    assert "throughput/rollout_capacity_ratio" not in told


def test_a_request_parked_over_a_row_is_counted_to_each_iteration_with_its_share():
    clock = IterationClock(0.0)
    first = numbers(clock, 4.0, groups=[group(waiting_since=1.0)])
    assert first["client/wait_frac"] == 0.75
    clock.opened(4.0)
    clock.inferred(batch(1.0), 0.5, 6.0)
    second = numbers(clock, 8.0, groups=[group()])
    assert second["client/wait_frac"] == 0.5  # from 4 to 6 of 4 to 8
    assert second["client/wait_mean"] == 5.0  # its whole wait, from 1 to 6


def test_the_longest_gap_is_from_the_end_of_a_batch_to_the_begin_of_the_next(told):
    assert told["server/dispatch_gap_max"] == 1.0  # 100 to 101, and 102 to 103


def test_a_rest_is_neither_waiting_for_frames_nor_a_gap():
    clock = IterationClock(0.0)
    clock.inferred(batch(0.0), 1.0, 1.0)
    clock.rested(2.0)
    clock.inferred(batch(2.0), 1.0, 60.0)  # began at 59
    clock.closed(61.0)
    told = numbers(clock, 61.0)
    assert told["time/rest"] == 57.0
    assert told["time/wait_frames"] == 2.0  # 1 to 2, 60 to 61
    assert told["server/dispatch_gap_max"] == 0.0
    assert told["time/residual"] == 0.0


def test_evaluation_is_inference_but_no_wait_of_a_train_client():
    clock = IterationClock(0.0)
    clock.inferred(batch(0.0, evaluation=True), 1.0, 1.0)
    told = numbers(clock, 2.0, groups=[group()])
    assert told["time/inference"] == 1.0
    assert told["client/wait_frac"] == 0.0
    assert "client/wait_mean" not in told


def test_lag_of_the_event_loop_is_that_of_the_iteration():
    clock = IterationClock(0.0)
    assert not [key for key in numbers(clock, 1.0) if key.startswith("server/loop_lag")]
    for lag_s in (0.0, 0.1, 0.2):
        clock.lagged(lag_s)
    told = numbers(clock, 1.0)
    assert told["server/loop_lag_mean"] == pytest.approx(0.1)
    assert told["server/loop_lag_p99"] == pytest.approx(0.198)  # 0.98 of the way from 0.1 to 0.2
    assert told["server/loop_lag_max"] == 0.2
    clock.opened(1.0)
    assert "server/loop_lag_max" not in numbers(clock, 2.0)


def test_what_was_not_measured_is_absent():
    told = numbers(IterationClock(0.0), 1.0)
    absent = DECLARED - set(told)
    by_key = {spec.key: spec for spec in (*TIME, *THROUGHPUT, *WAITS)}
    assert absent == {key for key, spec in by_key.items() if spec.absent_when}
    assert set(told) <= DECLARED


def test_a_family_is_known_by_the_keys_it_stands_for():
    passes = MetricSpec(key="ppo/kl_epoch<n>", unit="nat", meaning="As it says.")
    assert passes.is_family
    assert passes.group == "ppo"
    assert passes.matches("ppo/kl_epoch12")
    assert not passes.matches("ppo/kl_epoch")
    assert not passes.matches("ppo/kl_epochs1")
    anything = MetricSpec(key="env/id/<id>/episodes", unit="1", meaning="As it says.")
    assert anything.matches("env/id/ALE/Pong-v5/episodes")
    assert not anything.matches("env/id//episodes")
