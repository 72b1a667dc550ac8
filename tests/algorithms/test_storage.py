"""Rollout storage: cells, their outcome, views and packing."""

import numpy as np
import pytest

from algorithms.spaces import ArraySpec
from algorithms.storage import RolloutStorage, contiguous

F4, I8 = np.dtype(np.float32), np.dtype(np.int64)


def make_storage(capacity=8, *, mask_size=None):
    return RolloutStorage(
        capacity,
        (ArraySpec((3,), F4), ArraySpec((), I8)),
        {"action": ArraySpec((2,), F4), "value": ArraySpec((), F4)},
        mask_size,
    )


def ints(*numbers):
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("cells", [[4], [4, 5], [0, 1, 2, 3]])
def test_ascending_neighbours_become_a_slice(cells):
    assert contiguous(ints(*cells)) == slice(cells[0], cells[-1] + 1)


@pytest.mark.parametrize("cells", [[], [4, 6], [5, 4], [3, 3], [0, 2, 1, 3], [1, 1, 3, 4], [2, 0]])
def test_other_cells_stay_an_index_array(cells):
    index = ints(*cells)
    assert contiguous(index) is index


def test_observations_of_neighbouring_cells_are_views_and_of_others_copies():
    storage = make_storage()
    storage.observations[0][:] = np.arange(24).reshape(8, 3)
    near, _ = storage.observations_of(ints(2, 3))
    far, _ = storage.observations_of(ints(5, 2))
    assert near.tolist() == [[6, 7, 8], [9, 10, 11]]
    assert far.tolist() == [[15, 16, 17], [6, 7, 8]]
    assert np.shares_memory(near, storage.observations[0])
    assert not np.shares_memory(far, storage.observations[0])


def test_assigned_cells_know_their_frame_and_start_with_an_empty_outcome():
    storage = make_storage()
    cells = ints(6, 1)
    storage.assign(cells, ints(10, 11), ints(3, 4))
    storage.add_rewards(cells, np.array([1.0, 2.0]))
    storage.finish(cells, np.array([True, False]), np.array([False, True]))
    storage.set_bootstrap(cells, np.array([0.5, 0.25], np.float32))

    storage.assign(ints(6), ints(12), ints(0))

    assert storage.slots[[6, 1]].tolist() == [12, 11]
    assert storage.ordinals[[6, 1]].tolist() == [0, 4]
    assert storage.rewards[[6, 1]].tolist() == [0.0, 2.0]
    assert storage.terminated[[6, 1]].tolist() == [False, False]
    assert storage.truncated[[6, 1]].tolist() == [False, True]
    assert np.isnan(storage.bootstrap[6])
    assert storage.bootstrap[1] == 0.25


def test_rewards_add_up_without_losing_digits():
    storage = make_storage()
    for reward in (1e8, 1.0, -1e8):
        storage.add_rewards(ints(2, 5), np.array([reward, reward]))
    # In float32, 1e8 + 1 is 1e8 and the sum would be 0.
    assert storage.rewards[[2, 5]].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("cells", [[3, 4], [6, 0]])
def test_masks_come_back_as_they_were_written(cells):
    storage = make_storage(mask_size=11)
    masks = np.array([[True] * 5 + [False] * 6, [False] * 10 + [True]])
    storage.write_masks(ints(*cells), masks)
    assert storage.masks.shape == (8, 2)  # 11 bits need two bytes
    read = storage.read_masks(ints(*cells))
    assert read.dtype == np.bool_
    assert read.tolist() == masks.tolist()


def test_masks_of_another_width_and_unexpected_masks_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 11\), got \(1, 10\)"):
        make_storage(mask_size=11).write_masks(ints(0), np.ones((1, 10), np.bool_))
    with pytest.raises(ValueError, match="without a mask_size"):
        make_storage().write_masks(ints(0), np.ones((1, 11), np.bool_))
    assert make_storage().read_masks(ints(0)) is None


def test_step_state_lies_beside_the_frame_under_exactly_the_declared_names():
    storage = make_storage()
    action, value = np.array([[1.0, 2.0]], np.float32), np.array([7.0], np.float32)
    storage.write_step_state(ints(4), {"value": value, "action": action})
    assert storage.step_state["action"][4].tolist() == [1.0, 2.0]
    assert storage.step_state["value"][4] == 7.0
    with pytest.raises(ValueError, match=r"declared \['action', 'value'\] and delivered \['val"):
        storage.write_step_state(ints(4), {"value": value})


def test_memory_is_what_the_arrays_take():
    # Observations 3 * 4 + 8, step state 2 * 4 + 4, mask 2, rewards 8, flags 2, bootstrap 4,
    # slot and ordinal 16: 64 bytes a cell.
    assert make_storage(10, mask_size=11).nbytes == 640
    assert make_storage(10).nbytes == 620


def test_a_storage_without_cells_is_refused():
    with pytest.raises(ValueError, match="capacity must be positive, got 0"):
        make_storage(0)
