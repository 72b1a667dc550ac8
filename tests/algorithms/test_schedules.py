"""Schedules over stored frames."""

import pytest

from algorithms.schedules import Constant, Cosine, Linear, make_schedule


def test_a_linear_rate_depends_on_frames_and_never_passes_its_end():
    # Case H12. 3e-4 to 0 over 1,000,000: at 400,000 six tenths are left.
    rate = Linear(3e-4, 0.0, 1_000_000)
    assert rate.value(0) == 3e-4
    assert rate.value(400_000) == pytest.approx(1.8e-4, rel=1e-12)
    assert rate.value(1_000_000) == 0.0
    assert rate.value(1_003_072) == 0.0  # unclamped: -9.216e-7
    assert rate.value(-5) == 3e-4


def test_a_longer_horizon_raises_the_rate_at_the_same_frame():
    # Case H12. 400,000 of 2,000,000: eight tenths are left.
    assert Linear(3e-4, 0.0, 2_000_000).value(400_000) == pytest.approx(2.4e-4, rel=1e-12)


def test_a_linear_schedule_may_rise_and_reaches_its_end_exactly():
    ramp = Linear(0.1, 0.7, 3)
    assert ramp.value(1) == pytest.approx(0.3)
    assert ramp.value(3) == 0.7
    assert ramp.value(10**12) == 0.7


def test_a_cosine_schedule_is_flat_at_both_ends_and_half_way_in_the_middle():
    wave = Cosine(2.0, 1.0, 1000)
    assert wave.value(0) == 2.0
    # 0.5 * (1 - cos(pi / 3)) = 0.25.
    assert wave.value(333) == pytest.approx(1.75, abs=2e-3)
    assert wave.value(500) == pytest.approx(1.5)
    assert wave.value(1000) == wave.value(2000) == 1.0


def test_a_constant_stays():
    assert Constant(0.5).value(0) == Constant(0.5).value(10**9) == 0.5


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("constant", Constant(2.0)), ("linear", Linear(2.0, 1.0, 9)), ("cosine", Cosine(2.0, 1.0, 9))],
)
def test_schedules_are_made_by_name(kind, expected):
    assert make_schedule(kind, 2.0, 1.0, 9) == expected


def test_unknown_names_and_senseless_ends_are_refused():
    with pytest.raises(ValueError, match="unknown schedule 'exponential'; known are constant, lin"):
        make_schedule("exponential", 1.0, 0.0, 10)
    with pytest.raises(ValueError, match="Linear: horizon_frames must be positive, got 0"):
        Linear(1.0, 0.0, 0)
    with pytest.raises(ValueError, match="Cosine: start and end must be finite"):
        Cosine(float("nan"), 0.0, 10)
