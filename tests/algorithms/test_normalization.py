"""Running statistics, observation and reward normalisation."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.normalization import ObservationNormalizer, ReturnNormalizer, RunningStatistics
from algorithms.spaces import ArraySpec

NAN, INF = float("nan"), float("inf")


def floats(*numbers):
    return np.array(numbers, np.float64)


def through_a_file(state):
    """The state as another process would read it."""
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file) as loaded:
        return dict(loaded)


def test_saved_statistics_go_on_as_if_nothing_had_happened():
    # Case H10. [1, 2, 3, 4], then [10, 20, 30]: sum 70, mean 10; squared deviations
    # 81 + 64 + 49 + 36 + 0 + 100 + 400 = 730, population variance 730 / 7 = 104.28571429.
    first = RunningStatistics()
    first.update(floats(1, 2, 3, 4))
    resumed = RunningStatistics()
    resumed.load_state(through_a_file(first.state()))
    resumed.update(floats(10, 20, 30))

    assert resumed.mean == pytest.approx(10.0, abs=1e-12)
    assert resumed.var == pytest.approx(104.28571429, abs=1e-8)
    assert resumed.count == 7
    # (5 - 10) / sqrt(104.28571429) = -0.48961825; with the count lost it would be -1.83694.
    assert resumed.normalize(floats(5), clip=1.0)[0] == pytest.approx(-0.48961825, abs=1e-8)


def test_before_any_frame_numbers_pass_unchanged_and_unclipped():
    x = floats(5.0, -1e6)
    assert RunningStatistics().normalize(x, clip=1.0).tolist() == [5.0, -1e6]


def test_normalised_numbers_are_clipped_on_both_sides():
    statistics = RunningStatistics()
    statistics.update(floats(-1, 1))  # mean 0, variance 1
    got = statistics.normalize(floats(-9, 0.5, 9), clip=3.0)
    assert got == pytest.approx([-3.0, 0.5, 3.0], abs=1e-6)


def test_normalising_changes_neither_statistics_nor_input():
    statistics = RunningStatistics()
    statistics.update(floats(1, 3))
    before, x = statistics.state(), floats(7)
    statistics.normalize(x, clip=1.0)
    assert x.tolist() == [7.0]
    assert all(np.array_equal(before[name], now) for name, now in statistics.state().items())


def test_a_number_that_is_not_finite_is_left_out_alone():
    statistics = RunningStatistics((2,))
    statistics.update(np.array([[1.0, NAN], [3.0, 4.0], [INF, 8.0], [-INF, 1e200]]))
    # Element 0 sees 1, 3; element 1 sees 4, 8; 1e200 has no finite square.
    assert statistics.mean.tolist() == [2.0, 6.0]
    assert statistics.var.tolist() == [1.0, 4.0]
    assert statistics.count.tolist() == [2, 2]


def test_a_batch_without_a_finite_number_changes_nothing():
    statistics = RunningStatistics()
    statistics.update(floats(NAN, INF))
    statistics.update(floats())
    assert (statistics.mean, statistics.var, statistics.count) == (0.0, 1.0, 0)


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), max_size=20), max_size=6),
    st.sampled_from([0.0, 1e6]),
)
def test_merged_batches_equal_the_statistics_of_all_numbers(batches, offset):
    statistics = RunningStatistics()
    for batch in batches:
        statistics.update(np.array(batch) + offset)
    everything = np.array([x for batch in batches for x in batch]) + offset
    assert statistics.count == len(everything)
    if len(everything):
        assert statistics.mean == pytest.approx(everything.mean(), rel=1e-12, abs=1e-9)
        assert statistics.var == pytest.approx(everything.var(), rel=1e-9, abs=1e-6)


def test_a_long_batch_taken_in_blocks_equals_one_calculation():
    x = np.sin(np.arange(10_000.0)) + 1e3
    statistics = RunningStatistics()
    statistics.update(x)
    assert statistics.mean == pytest.approx(x.mean(), rel=1e-12)
    assert statistics.var == pytest.approx(x.var(), rel=1e-9)


def test_small_deviations_around_a_big_mean_survive():
    statistics = RunningStatistics()
    statistics.update(floats(1e6 - 0.1, 1e6 + 0.1))
    # In float32 neighbouring numbers near 1e6 lie 0.0625 apart.
    assert statistics.normalize(floats(1e6 + 0.05), clip=9.0)[0] == pytest.approx(0.5, abs=1e-5)


def test_samples_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"samples must be \(2,\), got \(3,\)"):
        RunningStatistics((2,)).update(np.zeros((5, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": floats(1, 2)}, r"shape \(\)"),
        ({"var": np.array(-1.0)}, "cannot be"),
        ({"mean": np.array(NAN)}, "cannot be"),
        ({"count": np.array(-1)}, "negative count"),
        ({"more": np.array(0)}, r"unexpected \['more'\]"),
    ],
)
def test_saved_statistics_that_cannot_be_are_refused(change, message):
    statistics = RunningStatistics()
    with pytest.raises(ValueError, match=message):
        statistics.load_state(statistics.state() | change)


LEAVES = (
    ArraySpec((2,), np.dtype(np.float32)),
    ArraySpec((2, 2), np.dtype(np.uint8)),
    ArraySpec((), np.dtype(np.float64)),
    ArraySpec((), np.dtype(np.int64)),
)


def observations(first, last):
    num = len(first)
    image, number = np.full((num, 2, 2), 200, np.uint8), np.full(num, 3)
    return np.array(first, np.float32), image, np.array(last, np.float64), number


def test_only_float_leaves_are_normalised_and_come_out_as_float32():
    normalizer = ObservationNormalizer(LEAVES, clip=2.0)
    normalizer.update(observations([[0, 10], [2, 30]], [5.0, 7.0]))
    seen = observations([[3, 20], [1, 90]], [6.0, 7.0])

    vector, image, scalar, number = normalizer.normalize(seen)

    # Leaf 0: means 1 and 20, deviations 1 and 10; (90 - 20) / 10 is clipped. Leaf 2: 6 and 1.
    assert vector == pytest.approx(np.array([[2.0, 0.0], [0.0, 2.0]]), abs=1e-6)
    assert scalar == pytest.approx([0.0, 1.0], abs=1e-6)
    assert vector.dtype == scalar.dtype == np.float32
    assert image is seen[1]
    assert number is seen[3]


def test_before_the_first_update_observations_pass_unchanged():
    seen = observations([[3, 20], [1, 90]], [6.0, 7.0])
    vector, _, scalar, _ = ObservationNormalizer(LEAVES, clip=2.0).normalize(seen)
    assert vector.tolist() == [[3, 20], [1, 90]]
    assert scalar.tolist() == [6.0, 7.0]
    assert scalar.dtype == np.float32


def test_a_row_is_normalised_alike_alone_and_in_a_batch():
    normalizer = ObservationNormalizer(LEAVES)
    normalizer.update(observations(np.sin(np.arange(22.0)).reshape(11, 2), np.arange(11.0)))
    whole = observations(np.cos(np.arange(26.0)).reshape(13, 2), np.arange(13.0))
    vectors = normalizer.normalize(whole)[0]
    for row in range(13):
        alone = tuple(leaf[row : row + 1] for leaf in whole)
        assert np.array_equal(normalizer.normalize(alone)[0], vectors[row : row + 1])


def test_observation_statistics_survive_saving():
    normalizer, resumed = ObservationNormalizer(LEAVES), ObservationNormalizer(LEAVES)
    normalizer.update(observations([[0, 10], [2, 30]], [5.0, 7.0]))
    state = through_a_file(normalizer.state())
    assert sorted(state) == ["0/count", "0/mean", "0/var", "2/count", "2/mean", "2/var"]
    resumed.load_state(state)
    more = observations([[4, 50]], [9.0])
    for each in (normalizer, resumed):
        each.update(more)
    assert all(np.array_equal(a, resumed.state()[n]) for n, a in normalizer.state().items())


def test_statistics_of_another_observation_space_are_refused():
    state = ObservationNormalizer(LEAVES[:2]).state()
    with pytest.raises(ValueError, match=r"missing \['2/count', '2/mean', '2/var'\]"):
        ObservationNormalizer(LEAVES).load_state(state)


def update_returns(normalizer, rewards, *, slots=None, first_ordinal=0, ended=()):
    """Frames of slot 0, unless told otherwise, at consecutive ordinals."""
    num = len(rewards)
    slots = np.zeros(num, np.int64) if slots is None else np.array(slots)
    position = np.arange(num)
    ordinals = first_ordinal + position - np.searchsorted(slots, slots)
    rewards = np.array(rewards, np.float64)
    normalizer.update(slots, ordinals, rewards, np.isin(position, ended))


def seen_returns(normalizer):
    """Count, mean and variance of the running returns so far."""
    state = normalizer.state()
    return state["count"].item(), state["mean"].item(), state["var"].item()


def summary(*returns):
    return pytest.approx((len(returns), np.mean(returns), np.var(returns)), abs=1e-9)


def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return():
    normalizer = ReturnNormalizer(gamma=0.5, clip=None)
    update_returns(normalizer, [2, 0, 0])
    # Running returns 2, 1, 0.5: mean 7 / 6, variance (4 + 1 + 0.25) / 3 - 49 / 36 = 0.38888889,
    # deviation 0.62360956. Rewards are divided, not shifted.
    assert seen_returns(normalizer) == summary(2, 1, 0.5)
    scaled = normalizer.scale(floats(0.0, 1.0, -2.0))
    assert scaled == pytest.approx([0.0, 1 / 0.62360956, -2 / 0.62360956], abs=1e-6)


def test_scaled_rewards_are_clipped_where_asked():
    normalizer = ReturnNormalizer(gamma=0.5, clip=1.5)
    update_returns(normalizer, [2, 0, 0])
    assert normalizer.scale(floats(-9.0, 9.0)).tolist() == [-1.5, 1.5]


def test_rewards_at_the_limit_are_told_as_cut():
    normalizer = ReturnNormalizer(gamma=0.5, clip=1.5)
    update_returns(normalizer, [2, 0, 0])  # deviation 0.62, so 0.9 becomes 1.44 and 1 is cut
    scaled = normalizer.scale(floats(-9.0, 0.9, 1.0))
    assert normalizer.is_cut(scaled).tolist() == [True, False, True]


def test_rewards_stay_unscaled_and_uncut_until_returns_have_differed():
    normalizer = ReturnNormalizer(gamma=0.5, clip=1.0)
    for _ in range(2):
        scaled = normalizer.scale(floats(7.0))
        assert scaled.tolist() == [7.0]
        assert normalizer.is_cut(scaled).tolist() == [False]
        update_returns(normalizer, [0, 0, 0])


def test_a_running_return_goes_on_in_the_next_iteration():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, 4, 0, 0], slots=[3, 3, 8, 8])
    update_returns(normalizer, [0, 1, 0, 0], slots=[3, 3, 8, 8], first_ordinal=2)
    # Slot 3: 4, 6 | 3, 2.5; slot 8 stays at 0.
    assert seen_returns(normalizer) == summary(4, 6, 3, 2.5, 0, 0, 0, 0)


def test_a_running_return_starts_anew_behind_an_end_and_behind_a_hole():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, 2, 8], ended=[1])  # 4, 4 | 8: the episode ended at frame 1
    update_returns(normalizer, [2], first_ordinal=4)  # frame 3 was lost
    update_returns(normalizer, [6], first_ordinal=5, ended=[0])  # 6 + 0.5 * 2 = 7, and the end
    update_returns(normalizer, [1], first_ordinal=6)
    assert seen_returns(normalizer) == summary(4, 4, 8, 2, 7, 1)


def test_a_running_return_waits_for_a_slot_that_is_silent_for_a_while():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, 4], slots=[0, 1])
    update_returns(normalizer, [0], slots=[1], first_ordinal=1)
    update_returns(normalizer, [0, 0], slots=[0, 1], first_ordinal=1)
    # Slot 0: 4 | | 2; slot 1: 4 | 2 | 0, since its frame 1 came twice: that is no continuation.
    assert seen_returns(normalizer) == summary(4, 4, 2, 2, 0)


def test_a_slot_silent_for_long_is_forgotten():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, 4], slots=[0, 1])
    for iteration in range(65):
        update_returns(normalizer, [0], slots=[1], first_ordinal=1 + iteration)
    assert normalizer.state()["slots"].tolist() == [1]


def test_a_reward_that_is_not_finite_is_left_out_and_cuts_the_return():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, NAN, 2, INF])
    update_returns(normalizer, [2], first_ordinal=4)
    assert seen_returns(normalizer) == summary(4, 2, 2)


def test_an_iteration_without_frames_changes_nothing():
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4])
    update_returns(normalizer, [])
    update_returns(normalizer, [2], first_ordinal=1)
    assert seen_returns(normalizer) == summary(4, 4)


def test_running_returns_survive_saving():
    normalizer, resumed = ReturnNormalizer(gamma=0.5), ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4, 4, 1], slots=[3, 3, 8])
    resumed.load_state(through_a_file(normalizer.state()))
    for each in (normalizer, resumed):
        update_returns(each, [0, 1, 0], slots=[3, 3, 8], first_ordinal=2)
    assert all(np.array_equal(a, resumed.state()[n]) for n, a in normalizer.state().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"returns": floats(1, 2)}, "of one length"),
        ({"returns": floats(NAN)}, "not finite"),
        ({"count": np.array(-1)}, "negative count"),
    ],
)
def test_saved_running_returns_that_cannot_be_are_refused(change, message):
    normalizer = ReturnNormalizer(gamma=0.5)
    update_returns(normalizer, [4])
    with pytest.raises(ValueError, match=message):
        normalizer.load_state(normalizer.state() | change)


def test_settings_without_sense_are_refused():
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        ReturnNormalizer(gamma=1.5)
    with pytest.raises(ValueError, match="clip must be positive or None"):
        ReturnNormalizer(gamma=0.5, clip=0.0)
    with pytest.raises(ValueError, match="clip must be positive"):
        ObservationNormalizer(LEAVES, clip=NAN)
