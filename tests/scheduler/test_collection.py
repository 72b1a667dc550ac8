"""Open or closed, when a learn step is due, how long late groups are waited for."""

import math

import pytest

from royale_server.scheduler.collection import Collection


def revoke_after(collected_s: float, *, in_quorum: bool, close_wait_s: float = 1.0) -> float:
    """Seconds from the first closing of an iteration that took so long to collect."""
    collection = Collection(target=10, close_wait_s=close_wait_s)
    collection.note_opened(1000.0)
    collection.note_closed(1000.0 + collected_s)
    return collection.revoke_at(in_quorum=in_quorum) - 1000.0 - collected_s


def test_collection_is_open_while_frames_stored_and_under_way_are_fewer_than_wanted() -> None:
    collection = Collection(target=10)
    assert collection.is_open(complete=4, reserved=5, stored_total=99)
    assert not collection.is_open(complete=4, reserved=6, stored_total=99)
    assert not collection.is_open(complete=13, reserved=0, stored_total=99)


def test_a_learn_step_is_due_when_collection_is_closed_and_nothing_under_way() -> None:
    collection = Collection(target=10)
    assert collection.is_learn_due(is_open=False, reserved=0, stored_total=10)
    assert not collection.is_learn_due(is_open=False, reserved=1, stored_total=10)
    assert not collection.is_learn_due(is_open=True, reserved=0, stored_total=10)
    collection.start_learning()
    assert not collection.is_learn_due(is_open=False, reserved=0, stored_total=10)


def test_groups_in_the_quorum_are_given_the_close_wait_whatever_the_collection_took() -> None:
    assert revoke_after(0.1, in_quorum=True) == pytest.approx(1.0)
    assert revoke_after(3600.0, in_quorum=True) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("collected_s", "wait_s"),
    [(0.1, 0.02), (0.4, 0.02), (2.0, 0.1), (10.0, 0.5), (20.0, 1.0), (600.0, 1.0)],
)
def test_groups_outside_are_given_a_twentieth_of_the_collection_from_20_ms_to_the_close_wait(
    collected_s: float, wait_s: float
) -> None:
    assert revoke_after(collected_s, in_quorum=False) == pytest.approx(wait_s)


def test_a_close_wait_below_20_ms_is_respected() -> None:
    assert revoke_after(5.0, in_quorum=False, close_wait_s=0.01) == pytest.approx(0.01)


def test_the_first_closing_counts_and_the_first_batch_begins_the_collection() -> None:
    collection = Collection(target=10)
    assert collection.revoke_at(in_quorum=True) == math.inf
    for now in (100.0, 101.0):
        collection.note_opened(now)
    for now in (110.0, 150.0):
        collection.note_closed(now)
    assert collection.revoke_at(in_quorum=True) == pytest.approx(111.0)
    assert collection.revoke_at(in_quorum=False) == pytest.approx(110.5)


def test_the_next_iteration_begins_with_its_own_target_and_clock() -> None:
    collection = Collection(target=10)
    collection.note_opened(100.0)
    collection.note_closed(110.0)
    collection.start_learning()
    collection.reopen(20)
    assert not collection.learning
    assert collection.is_open(complete=19, reserved=0, stored_total=0)
    assert collection.first_closed_at is None
    collection.note_opened(200.0)
    collection.note_closed(201.0)
    assert collection.revoke_at(in_quorum=False) == pytest.approx(201.05)


def test_off_policy_a_learn_step_is_due_for_every_block_and_rows_wait_above_the_largest_debt() -> (
    None
):
    collection = Collection(target=None, block=4, max_debt=2)

    def state(stored: int) -> tuple[bool, bool]:
        is_open = collection.is_open(complete=0, reserved=0, stored_total=stored)
        due = collection.is_learn_due(is_open=is_open, reserved=3, stored_total=stored)
        return is_open, due

    assert state(3) == (True, False)
    assert state(4) == (True, True)
    assert state(8) == (True, True)
    assert state(9) == (False, True)
    collection.reopen(None)  # one block of four is worked off
    assert state(9) == (True, True)
    assert state(7) == (True, False)
