"""Generalised advantage estimation against hand-worked numbers, and advantage scaling."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithms.advantages import compute_gae, scale_advantages
from algorithms.sequences import next_values, order_frames
from algorithms.spaces import ArraySpec
from algorithms.storage import RolloutStorage

NAN = float("nan")


def make_storage(capacity):
    return RolloutStorage(capacity, [], {"value": ArraySpec((), np.dtype(np.float32))}, None)


def store_slot(rewards, values, *, terminated=(), truncated=(), bootstraps):
    """One slot's frames in the cells 0, 1, …; ``bootstraps`` maps time to value."""
    num_frames = len(rewards)
    storage, cells = make_storage(num_frames), np.arange(num_frames)
    storage.assign(cells, np.zeros(num_frames, np.int64), cells)
    storage.write_step_state(cells, {"value": np.array(values, np.float32)})
    storage.add_rewards(cells, np.array(rewards, np.float64))
    storage.finish(cells, np.isin(cells, terminated), np.isin(cells, truncated))
    for time, value in bootstraps.items():
        storage.set_bootstrap(np.array([time]), np.array([value], np.float32))
    return storage


def estimate(storage, cells, *, gamma=0.99, gae_lambda=0.95):
    """What a learner does: cells in order, advantages and targets, usable rows only."""
    sequences = order_frames(storage, cells)
    values = storage.step_state["value"][sequences.cells].astype(np.float64)
    following = next_values(storage, sequences, values)
    keep = following.usable
    advantages = compute_gae(
        sequences.rewards[keep],
        values[keep],
        following.values[keep],
        following.continues[keep],
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    return sequences.cells[keep], advantages, advantages + values[keep]


def test_truncation_in_the_middle_bootstraps_from_the_final_observation_and_stops():
    # Case H01. g = 0.99, l = 0.95, gl = 0.9405; the episode is cut off at t = 2.
    # d4 = 1 + 0.99 * 0.2 - 0.3 = 0.898            A4 = 0.898
    # d3 = 1 + 0.99 * 0.3 - 0.4 = 0.897            A3 = 0.897 + 0.9405 * 0.898 = 1.741569
    # d2 = 1 + 0.99 * 0.9 - 0.7 = 1.191            A2 = 1.191, nothing flows in
    # d1 = 1 + 0.99 * 0.7 - 0.6 = 1.093            A1 = 1.093 + 0.9405 * 1.191 = 2.2131355
    # d0 = 1 + 0.99 * 0.6 - 0.5 = 1.094            A0 = 1.094 + 0.9405 * A1 = 3.17545394
    storage = store_slot(
        [1, 1, 1, 1, 1],
        [0.5, 0.6, 0.7, 0.4, 0.3],
        truncated=[2],
        bootstraps={2: 0.9, 4: 0.2},
    )
    _, advantages, targets = estimate(storage, np.arange(5))
    assert advantages == pytest.approx([3.17545394, 2.2131355, 1.191, 1.741569, 0.898], abs=1e-6)
    assert targets == pytest.approx([3.67545394, 2.8131355, 1.891, 2.141569, 1.198], abs=1e-6)

    mistakes = {
        "a time limit taken for death": [2.387329, 1.37515, 0.3],
        "bootstrap from the next episode": [2.737607, 1.747588, 0.696],
        "estimate leaks across the end": [4.186435, 3.288076, 2.333946],
        "value before the action": [3.000315, 2.026917, 0.993],
    }
    for mistake, fingerprint in mistakes.items():
        assert np.abs(advantages[:3] - fingerprint).min() > 0.1, mistake


def test_a_flag_belongs_to_the_transition_that_its_action_caused():
    # Case H02. Terminated at t = 1 only.
    # d2 = 0.5 + 0.99 * 48 - 50 = -1.98            A2 = -1.98
    # d1 = -1 - 3 = -4                             A1 = -4
    # d0 = 0 + 0.99 * 3 - 3 = -0.03                A0 = -0.03 - 0.9405 * 4 = -3.792
    # Read one step late, the middle entry would be 43.63781.
    storage = store_slot([0, -1, 0.5], [3, 3, 50], terminated=[1], bootstraps={2: 48})
    _, advantages, _ = estimate(storage, np.arange(3))
    assert advantages == pytest.approx([-3.792, -4.0, -1.98], abs=1e-6)
    assert advantages[1] < 0


def test_termination_wins_over_truncation():
    # Case H03. Both flags at t = 2; the value 5 of the final observation is not used.
    # A2 = -10 - 0.8 = -10.8
    # A1 = 0.99 * 0.8 - 1.2 - 0.9405 * 10.8 = -0.408 - 10.1574 = -10.5654
    # A0 = 0.99 * 1.2 - 1 - 0.9405 * 10.5654 = 0.188 - 9.9367587 = -9.7487587
    storage = store_slot(
        [0, 0, -10], [1, 1.2, 0.8], terminated=[2], truncated=[2], bootstraps={2: 5.0}
    )
    _, advantages, _ = estimate(storage, np.arange(3))
    assert advantages == pytest.approx([-9.7487587, -10.5654, -10.8], abs=1e-6)


def test_an_unusable_frame_is_left_out_and_nothing_flows_through_it():
    # Frame 1 was cut off without a final observation. gamma 0.5, lambda 1, rewards 1, values 2.
    # A0 = 1 + 0.5 * 2 - 2 = 0 (bootstraps from frame 1's value), A2 = 1 + 0.5 * 4 - 2 = 1.
    storage = store_slot([1, 1, 1], [2, 2, 2], truncated=[1], bootstraps={2: 4.0})
    cells, advantages, targets = estimate(storage, np.arange(3), gamma=0.5, gae_lambda=1.0)
    assert cells.tolist() == [0, 2]
    assert advantages.tolist() == [0.0, 1.0]
    assert targets.tolist() == [2.0, 3.0]


def test_lambda_zero_is_the_one_step_error_and_lambda_one_the_discounted_return():
    storage = store_slot([1, 2, 4], [1, 1, 1], bootstraps={2: 8.0})
    # gamma 0.5. One step: 1 + 0.5 - 1, 2 + 0.5 - 1, 4 + 4 - 1.
    _, advantages, _ = estimate(storage, np.arange(3), gamma=0.5, gae_lambda=0.0)
    assert advantages.tolist() == [0.5, 1.5, 7.0]
    # Returns: 4 + 4 = 8, 2 + 4 = 6, 1 + 3 = 4.
    _, advantages, targets = estimate(storage, np.arange(3), gamma=0.5, gae_lambda=1.0)
    assert targets.tolist() == [4.0, 6.0, 8.0]
    assert advantages.tolist() == [3.0, 5.0, 7.0]


def reference_advantages(storage, cells, gamma, gae_lambda):
    """One segment after the other, by the forward sum of discounted one-step errors."""
    frames = {(int(storage.slots[c]), int(storage.ordinals[c])): c for c in cells}

    def next_value(slot, ordinal, cell):
        if storage.terminated[cell]:
            return 0.0
        if storage.truncated[cell] or (slot, ordinal + 1) not in frames:
            return float(storage.bootstrap[cell])
        return float(storage.step_state["value"][frames[slot, ordinal + 1]])

    deltas = {
        frame: float(storage.rewards[cell])
        + gamma * next_value(*frame, cell)
        - float(storage.step_state["value"][cell])
        for frame, cell in frames.items()
    }
    advantages = {}
    for (slot, ordinal), cell in frames.items():
        total, weight, at = 0.0, 1.0, ordinal
        while np.isfinite(deltas.get((slot, at), NAN)):
            total += weight * deltas[slot, at]
            weight *= gamma * gae_lambda
            here = frames[slot, at]
            if storage.terminated[here] or storage.truncated[here]:
                break
            at += 1
        if np.isfinite(deltas[slot, ordinal]):
            advantages[int(cell)] = total
    return advantages


@given(
    seed=st.integers(0, 2**32 - 1),
    num_slots=st.integers(1, 4),
    num_steps=st.integers(1, 60),
    hole_share=st.sampled_from([0.0, 0.1, 0.5]),
    gae_lambda=st.sampled_from([0.0, 0.7, 1.0]),
)
def test_random_holes_in_a_long_trajectory_equal_a_slow_reference_per_segment(
    seed, num_slots, num_steps, hole_share, gae_lambda
):
    rng = np.random.default_rng(seed)
    total = num_slots * num_steps
    storage, cells = make_storage(total), rng.permutation(total)
    slots = np.repeat(rng.permutation(100)[:num_slots], num_steps)
    storage.assign(cells, slots, np.tile(np.arange(num_steps), num_slots))
    storage.write_step_state(cells, {"value": rng.normal(size=total).astype(np.float32)})
    storage.add_rewards(cells, rng.normal(size=total))
    storage.finish(cells, rng.random(total) < 0.1, rng.random(total) < 0.1)
    bootstraps = np.where(rng.random(total) < 0.8, rng.normal(size=total), NAN)
    storage.set_bootstrap(cells, bootstraps)
    kept = rng.permutation(cells[rng.random(total) >= hole_share])

    got_cells, advantages, _ = estimate(storage, kept, gamma=0.97, gae_lambda=gae_lambda)

    expected = reference_advantages(storage, kept, 0.97, gae_lambda)
    assert dict(zip(got_cells.tolist(), advantages.tolist(), strict=True)) == pytest.approx(
        expected, rel=1e-9, abs=1e-9
    )


def test_one_slot_with_thousands_of_frames_is_exact():
    # Reward 1 and value 0 throughout, gamma 1, lambda 1: A[t] = frames left.
    num_frames = 5000
    storage = store_slot(np.ones(num_frames), np.zeros(num_frames), bootstraps={4999: 0.0})
    _, advantages, _ = estimate(storage, np.arange(num_frames), gamma=1.0, gae_lambda=1.0)
    assert advantages.tolist() == list(range(num_frames, 0, -1))


def test_no_frames_have_no_advantages():
    empty = np.zeros(0)
    nothing = compute_gae(empty, empty, empty, empty.astype(bool), gamma=0.9, gae_lambda=0.9)
    assert nothing.shape == (0,)


def test_inputs_that_would_poison_the_estimate_are_refused():
    one, no, bad = np.ones(2), np.zeros(2, np.bool_), np.array([1.0, np.inf])
    with pytest.raises(ValueError, match=r"all inputs must be \(M,\)"):
        compute_gae(one, one[:, None], one, no, gamma=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match=r"row 1 is not finite \(reward inf, value inf"):
        compute_gae(bad, bad, one, no, gamma=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 1\.1"):
        compute_gae(one, one, one, no, gamma=1.1, gae_lambda=0.9)


def test_scaling_uses_the_sample_deviation():
    # Case H04. Mean 2.5, squared deviations 2.25 + 0.25 + 0.25 + 2.25 = 5, sample variance 5 / 3,
    # deviation 1.29099445: 1.5 / 1.29099445 = 1.16189500, 0.5 / 1.29099445 = 0.38729833.
    scaled = scale_advantages(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    expected = [-1.16189499, -0.38729833, 0.38729833, 1.16189499]
    assert scaled.tolist() == pytest.approx(expected, abs=1e-5)


def test_one_advantage_is_left_unscaled():
    assert scale_advantages(torch.tensor([2.5])).tolist() == [2.5]
    assert scale_advantages(torch.tensor([])).shape == (0,)


@pytest.mark.parametrize("value", [3.0, 0.1, -1e-3, 1e30])
def test_equal_advantages_become_zeros(value):
    # 0.1 is no float32, so the mean of many may miss it by a rounding error.
    for count in (2, 4, 1001):
        scaled = scale_advantages(torch.full((count,), value))
        assert scaled.tolist() == [0.0] * count


def test_scaling_keeps_dtype_and_order():
    scaled = scale_advantages(torch.tensor([5.0, -1.0, 2.0], dtype=torch.float64))
    assert scaled.dtype == torch.float64
    assert scaled.argsort().tolist() == [1, 2, 0]
