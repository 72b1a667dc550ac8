"""Ordering of stored frames, what each leads to (frame rule for bootstraps), and the scan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.sequences import discounted_sums, next_values, order_frames
from algorithms.spaces import ArraySpec
from algorithms.storage import UNUSED, RolloutStorage

NAN = float("nan")


def store(frames):
    """A storage with one frame per cell.

    A frame is (slot, ordinal) and optionally reward, terminated, truncated, bootstrap by name.
    """
    storage = RolloutStorage(
        max(len(frames), 1), [], {"value": ArraySpec((), np.dtype("f4"))}, None
    )
    for cell, (slot, ordinal, *rest) in enumerate(frames):
        outcome = rest[0] if rest else {}
        one = np.array([cell])
        storage.assign(one, np.array([slot]), np.array([ordinal]))
        storage.add_rewards(one, np.array([outcome.get("reward", 0.0)]))
        terminated, truncated = outcome.get("terminated", False), outcome.get("truncated", False)
        storage.finish(one, np.array([terminated]), np.array([truncated]))
        storage.set_bootstrap(one, np.array([outcome.get("bootstrap", NAN)]))
    return storage, np.arange(len(frames))


def successors(frames, values):
    """Next values of frames that are already in order."""
    storage, cells = store(frames)
    sequences = order_frames(storage, cells)
    assert sequences.cells.tolist() == cells.tolist()
    return next_values(storage, sequences, np.array(values, np.float32))


def test_frames_are_ordered_by_slot_and_ordinal_wherever_they_lie():
    storage, cells = store([(7, 1), (2, 5), (7, 0, {"reward": 3.0}), (2, 4, {"truncated": True})])
    sequences = order_frames(storage, cells)
    assert sequences.cells.tolist() == [3, 1, 2, 0]
    assert sequences.slots.tolist() == [2, 2, 7, 7]
    assert sequences.ordinals.tolist() == [4, 5, 0, 1]
    assert sequences.rewards.tolist() == [0.0, 0.0, 3.0, 0.0]
    assert sequences.truncated.tolist() == [True, False, False, False]
    # Slot 2: ended at ordinal 4. Slot 7: 1 follows 0, and nothing follows the last.
    assert sequences.has_successor.tolist() == [False, False, True, False]


def test_only_the_given_cells_count():
    storage, _ = store([(0, 0), (0, 1), (0, 2)])
    sequences = order_frames(storage, np.array([2, 0]))
    assert sequences.cells.tolist() == [0, 2]
    assert sequences.has_successor.tolist() == [False, False]


def test_holes_and_other_slots_are_no_successors():
    storage, cells = store([(0, 0), (0, 2), (1, 3), (2, 4)])
    assert not order_frames(storage, cells).has_successor.any()


def test_no_frames_make_no_sequences():
    storage, _ = store([])
    sequences = order_frames(storage, np.zeros(0, np.int64))
    assert len(sequences) == 0
    assert next_values(storage, sequences, np.zeros(0)).usable.shape == (0,)


def test_a_frame_in_two_cells_is_refused_by_name():
    storage, cells = store([(4, 9), (4, 8), (4, 9)])
    with pytest.raises(ValueError, match="frame 9 of slot 4 lies in two cells, 0 and 2"):
        order_frames(storage, cells)


def test_a_cell_without_a_frame_is_refused():
    storage, _ = store([(4, 9), (4, 8)])
    storage.slots[1] = storage.ordinals[1] = UNUSED
    with pytest.raises(ValueError, match="cell 1 holds no frame"):
        order_frames(storage, np.array([0, 1]))


def test_a_frame_leads_to_its_successor_and_the_last_one_to_its_bootstrap():
    result = successors([(0, 0), (0, 1), (0, 2, {"bootstrap": 9.0})], [1.0, 2.0, 3.0])
    assert result.values.tolist() == [2.0, 3.0, 9.0]
    assert result.usable.tolist() == [True, True, True]
    assert result.continues.tolist() == [True, True, False]


def test_a_successor_is_preferred_to_a_bootstrap():
    result = successors([(0, 0, {"bootstrap": 9.0}), (0, 1, {"bootstrap": 8.0})], [1.0, 2.0])
    assert result.values.tolist() == [2.0, 8.0]


def test_nothing_follows_a_termination_even_if_the_episode_was_cut_off_as_well():
    ended = {"terminated": True, "bootstrap": 5.0}
    result = successors([(0, 0, ended), (0, 1, ended | {"truncated": True})], [1.0, 2.0])
    assert result.values.tolist() == [0.0, 0.0]
    assert result.usable.tolist() == [True, True]
    assert not result.continues.any()


def test_a_truncated_frame_leads_to_the_final_observation_not_to_the_next_episode():
    cut = {"truncated": True, "bootstrap": 0.5}
    result = successors([(0, 0, cut), (0, 1, {"bootstrap": 4.0})], [1.0, 2.0])
    assert result.values.tolist() == [0.5, 4.0]
    assert result.continues.tolist() == [False, False]


def test_a_frame_before_a_hole_leads_to_its_bootstrap():
    given_up = {"bootstrap": 6.0}  # the value of the observation of the lost frame 1
    result = successors([(0, 0, given_up), (0, 2, {"bootstrap": 4.0})], [1.0, 2.0])
    assert result.values.tolist() == [6.0, 4.0]
    assert result.continues.tolist() == [False, False]


def test_a_frame_with_nothing_known_behind_it_is_not_usable_and_cuts_the_estimate():
    frames = [(0, 0), (0, 1), (1, 0), (1, 1, {"truncated": True}), (1, 2, {"terminated": True})]
    result = successors(frames, [1.0, 2.0, 3.0, 4.0, 5.0])
    # Slot 0 ends without a bootstrap; slot 1 was truncated without a final observation. The
    # frames before them still know the value of their successor.
    assert result.values.tolist() == [2.0, 0.0, 4.0, 0.0, 0.0]
    assert result.usable.tolist() == [True, False, True, False, True]
    assert not result.continues.any()


def test_rewards_and_values_that_are_not_finite_make_their_rows_unusable():
    frames = [
        (0, 0),
        (0, 1, {"reward": float("inf")}),
        (0, 2),
        (0, 3),
        (0, 4, {"bootstrap": 1.0}),
    ]
    result = successors(frames, [1.0, 2.0, 3.0, NAN, 5.0])
    # 1: its reward; 2: the value behind it; 3: its own value.
    assert result.usable.tolist() == [True, False, False, False, True]
    assert result.values.tolist() == [2.0, 0.0, 0.0, 0.0, 1.0]
    assert not result.continues.any()


def test_values_of_another_length_are_refused():
    storage, cells = store([(0, 0), (0, 1)])
    with pytest.raises(ValueError, match=r"values must be \(2,\), got \(2, 1\)"):
        next_values(storage, order_frames(storage, cells), np.zeros((2, 1)))


@given(st.lists(st.tuples(st.floats(-10, 10), st.sampled_from([0.0, 0.5, 0.9, 1.0])), max_size=70))
def test_the_scan_equals_the_recursion(rows):
    terms = np.array([term for term, _ in rows])
    carry = np.array([share for _, share in rows])
    carry[-1:] = 0.0
    expected, following = [], 0.0
    for term, share in zip(terms[::-1], carry[::-1], strict=True):
        following = term + share * following
        expected.append(following)
    assert discounted_sums(terms, carry) == pytest.approx(expected[::-1], rel=1e-12, abs=1e-12)


def test_the_scan_keeps_separate_sequences_apart_to_the_last_bit():
    terms = np.sin(np.arange(40.0))
    carry = np.full(40, 0.93)
    carry[[9, 39]] = 0.0
    whole = discounted_sums(terms, carry)
    assert np.array_equal(whole[:10], discounted_sums(terms[:10], carry[:10]))
    assert np.array_equal(whole[10:], discounted_sums(terms[10:], carry[10:]))


def test_the_scan_refuses_a_flow_from_beyond_the_end():
    with pytest.raises(ValueError, match=r"carries 0\.5"):
        discounted_sums(np.ones(2), np.array([0.0, 0.5]))
