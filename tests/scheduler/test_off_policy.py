"""Rule 12: no target and no parking; a ring of cells, a learn step for every block stored."""

from __future__ import annotations

import numpy as np
import pytest

from royale_server.scheduler import Discard, Dispatch, FrameLedger, Role, Span
from royale_server.scheduler.collection import Collection
from tests.scheduler.clauses import assert_needed
from tests.scheduler.desk import Desk


def off_policy(capacity: int, *, block: int = 1, max_debt: int = 1, answers: bool = True) -> Desk:
    ring = {"capacity": capacity, "block": block, "max_debt": max_debt}
    return Desk(target=None, ring=ring, dispatch=Dispatch.DYNAMIC, answers=answers)


def ring_of(capacity: int, num_slots: int) -> FrameLedger:
    ledger = FrameLedger(capacity=capacity, ring=True)
    ledger.add_slots(num_slots)
    return ledger


def complete(ledger: FrameLedger, slot: int, *, ended: bool = False) -> None:
    asks, over = np.array([not ended]), np.array([ended])
    ledger.receive(Span(slot, slot + 1), asks, over, has_feedback=True)


def test_the_ring_overwrites_the_oldest_complete_cell() -> None:
    ledger = ring_of(3, 1)
    taken = []
    for _ in range(5):
        cells, _ordinals = ledger.reserve(np.array([0]))
        taken += cells.tolist()
        complete(ledger, 0)
    assert taken == [0, 1, 2, 0, 1]
    assert ledger.num_complete == 3
    assert ledger.stored_total == 5
    assert ledger.conservation_error == 0


def test_a_reserved_cell_is_passed_over_for_as_long_as_its_outcome_is_missing() -> None:
    ledger = ring_of(3, 2)
    ledger.reserve(np.array([0]))  # slot 0 hangs with cell 0
    taken = []
    for _ in range(4):
        cells, _ordinals = ledger.reserve(np.array([1]))
        taken += cells.tolist()
        complete(ledger, 1)
        assert 0 not in ledger.complete_cells()
    assert taken == [1, 2, 1, 2]
    complete(ledger, 0)
    assert ledger.complete_cells().tolist() == [0, 1, 2]
    assert ledger.conservation_error == 0


def test_one_batch_takes_the_free_cells_around_reserved_ones() -> None:
    ledger = ring_of(6, 6)
    ledger.reserve(np.array([0]))  # cell 0
    for slot in (1, 2):
        ledger.reserve(np.array([slot]))
        complete(ledger, slot)
    cells, _ordinals = ledger.reserve(np.array([1, 2, 3, 4]))  # 3 4 5, not 0, then 1
    assert cells.tolist() == [3, 4, 5, 1]
    assert ledger.num_complete == 1
    assert ledger.conservation_error == 0


def test_a_ring_in_which_every_cell_is_reserved_says_so() -> None:
    ledger = ring_of(2, 3)
    ledger.reserve(np.array([0, 1]))
    with pytest.raises(AssertionError, match="ring of 2 cells is all reserved: 1 wanted"):
        ledger.reserve(np.array([2]))


def test_a_frame_that_was_overwritten_is_nobody_s_predecessor() -> None:
    ledger = ring_of(2, 2)
    ledger.reserve(np.array([0]))
    complete(ledger, 0)  # cell 0 is slot 0's last frame
    for _ in range(2):
        ledger.reserve(np.array([1]))
        complete(ledger, 1)  # cells 1 and 0
    rows, cells = ledger.unfinished_tails(Span(0, 2), np.array([True, True]))
    assert (rows.tolist(), cells.tolist()) == ([1], [0])


def test_frames_of_older_versions_are_stored() -> None:
    ledger = ring_of(4, 1)
    ledger.reserve(np.array([0]))
    ledger.start_version(7)
    complete(ledger, 0)
    assert ledger.complete_cells().tolist() == [0]


def test_learn_cells_leave_out_the_reserved_ones() -> None:
    desk = off_policy(100, block=3)
    a, _b = desk.enter("a", 2), desk.enter("b", 2)  # cells 0 1 and 2 3
    desk.send(a.groups[0])  # 0 1 stored; 4 5 reserved
    desk.send(a.groups[0])  # 4 5 stored: four frames, a block of three is owed
    assert desk.learns == [[0, 1, 4, 5]]


def test_nothing_is_parked_and_a_learn_step_runs_for_every_block_stored() -> None:
    desk = off_policy(100, block=4)
    a = desk.enter("a", 2)
    for _ in range(6):
        desk.send(a.groups[0])
        if desk.scheduler.collection.learning:
            desk.learned()
    assert len(desk.batches) == 7
    assert len(desk.learns) == 3  # twelve frames stored
    assert desk.ledger.version == 3


def test_a_block_owed_while_others_wait_is_worked_off_between_inferences() -> None:
    desk = off_policy(100, block=1, max_debt=8, answers=False)
    desk.leave(desk.join("gone", 1))  # the order is not fixed: there was a second session
    a = desk.enter("a", 3)
    desk.answer()
    desk.send(a.groups[0])  # three frames stored: three blocks owed
    order = []
    for _ in range(4):
        if desk.scheduler.collection.learning:
            order.append("learn")
            desk.learned()
        else:
            order.append("infer")
            desk.answer()
    # The waiting request after the first block, and then the rest of the debt.
    assert order == ["learn", "infer", "learn", "learn"]


def test_learner_rows_wait_while_more_than_the_largest_debt_is_owed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = off_policy(100, block=1, max_debt=2)
        desk.leave(desk.join("gone", 1))
        a = desk.enter("a", 5)
        desk.send(a.groups[0])  # five blocks owed, two allowed
        for owed in (4, 3):
            desk.learned()
            assert len(desk.batches) == 1, owed
            assert desk.is_waiting(a.groups[0])
        desk.learned()  # two owed
        assert len(desk.batches) == 2

    def always(self: Collection, *, complete: int, reserved: int, stored_total: int) -> bool:
        return True

    assert_needed(check, monkeypatch, (Collection, "is_open", always))


def test_the_only_session_waits_until_every_block_is_learned_from() -> None:
    """Its frames would otherwise depend on how long a learn step takes."""
    desk = off_policy(100, block=1, max_debt=8)
    a = desk.enter("a", 3)
    desk.send(a.groups[0])
    for _ in range(3):
        assert len(desk.batches) == 1
        desk.learned()
    assert len(desk.batches) == 2


def test_evaluation_is_served_between_learn_steps() -> None:
    desk = off_policy(100, block=1, max_debt=1)
    desk.leave(desk.join("gone", 1))
    a = desk.enter("a", 4)
    desk.send(a.groups[0])  # four blocks owed
    desk.enter("e", 1, role=Role.EVAL)
    desk.learned()
    assert desk.batches[-1] == ["e/0"]
    assert len(desk.learns) == 2  # and on it goes


def test_a_session_lost_off_policy_frees_its_cells_and_keeps_the_books() -> None:
    desk = off_policy(4, block=100)
    a, b = desk.enter("a", 2), desk.enter("b", 2)
    desk.leave(b)
    for _ in range(5):
        desk.send(a.groups[0])
    assert desk.given_up(Discard.LOST) == 2
    assert desk.ledger.num_complete == 2
    assert desk.ledger.stored_total == 10
    assert desk.ledger.conservation_error == 0
