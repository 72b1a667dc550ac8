"""The life of a cell, and the books that are kept of it.

Slots are numbered from 0; cells of an empty ledger are handed out from 0 upwards.
"""

from __future__ import annotations

import numpy as np
import pytest

from royale_server.scheduler import Discard, FrameLedger, LedgerBooks, Span
from royale_server.scheduler.slots import NO_CELL
from tests.scheduler.desk import rows


def ledger_of(num_slots: int, capacity: int = 100) -> FrameLedger:
    ledger = FrameLedger(capacity=capacity)
    ledger.add_slots(num_slots)
    return ledger


def act(ledger: FrameLedger, *slots: int) -> tuple[list[int], list[int]]:
    cells, ordinals = ledger.reserve(np.array(slots))
    return cells.tolist(), ordinals.tolist()


def receive(
    ledger: FrameLedger, asks: str, ended: str | None = None, *, has_feedback: bool = True
) -> tuple[list[int], list[int], list[bool]]:
    """A message of one group that holds the slots from 0 on."""
    over = rows(ended or "0" * len(asks))
    answer = ledger.receive(Span(0, len(asks)), rows(asks), over, has_feedback=has_feedback)
    who, cells, finished = answer
    return who.tolist(), cells.tolist(), finished.tolist()


def counts(ledger: FrameLedger) -> tuple[int, int, int, int]:
    """Reserved, complete, stored, given up."""
    assert ledger.conservation_error == 0
    return (
        ledger.num_reserved,
        ledger.num_complete,
        ledger.stored_total,
        ledger.discarded_total,
    )


# --- the life of a cell


def test_a_cell_is_reserved_when_its_action_is_inferred_and_complete_when_its_row_asks_again() -> (
    None
):
    ledger = ledger_of(2)
    assert receive(ledger, "11", has_feedback=False) == ([], [], [])
    assert act(ledger, 0, 1) == ([0, 1], [0, 0])
    assert counts(ledger) == (2, 0, 0, 0)
    assert receive(ledger, "11") == ([0, 1], [0, 1], [True, True])
    assert counts(ledger) == (0, 2, 2, 0)
    assert ledger.complete_cells().tolist() == [0, 1]
    assert act(ledger, 0, 1) == ([2, 3], [1, 1])


def test_a_cell_is_complete_when_its_episode_ends_though_its_row_is_silent() -> None:
    ledger = ledger_of(2)
    act(ledger, 0, 1)
    assert receive(ledger, "01", ended="10") == ([0, 1], [0, 1], [True, True])
    assert counts(ledger) == (0, 2, 2, 0)


def test_a_cell_stays_reserved_while_its_row_is_silent() -> None:
    ledger = ledger_of(2)
    act(ledger, 0, 1)
    assert receive(ledger, "10") == ([0, 1], [0, 1], [True, False])
    assert counts(ledger) == (1, 1, 1, 0)
    assert receive(ledger, "00") == ([1], [1], [False])
    assert receive(ledger, "01") == ([1], [1], [True])
    assert counts(ledger) == (0, 2, 2, 0)


def test_cells_are_used_anew_after_a_learn_step_and_ordinals_go_on() -> None:
    ledger = ledger_of(2, capacity=4)
    for version in range(1, 4):
        act(ledger, 0, 1)
        receive(ledger, "11")
        ledger.start_version(version)
        assert ledger.version == version
        assert ledger.num_complete == 0
    assert act(ledger, 0, 1) == ([0, 1], [3, 3])
    assert counts(ledger) == (2, 0, 6, 0)


def test_slot_numbers_are_never_used_twice() -> None:
    ledger = FrameLedger(capacity=10)
    assert [ledger.add_slots(n) for n in (3, 1, 200, 5)] == [0, 3, 4, 204]


def test_freed_cells_are_used_when_the_end_of_storage_is_reached() -> None:
    ledger = ledger_of(4, capacity=4)
    act(ledger, 0, 1, 2)
    ledger.give_up(np.array([1]), Discard.CUT)
    assert act(ledger, 3)[0] == [3]
    assert act(ledger, 1)[0] == [1]
    assert counts(ledger) == (4, 0, 0, 1)
    with pytest.raises(AssertionError, match="storage of 4 cells is full: 1 wanted"):
        act(ledger, 1)


# --- giving up


@pytest.mark.parametrize("reason", [Discard.LATE, Discard.CUT, Discard.LOST, Discard.INVALID])
def test_a_frame_is_given_up_for_exactly_one_reason(reason: Discard) -> None:
    ledger = ledger_of(2)
    act(ledger, 0, 1)
    ledger.give_up(ledger.open_cells(Span(0, 2)), reason)
    assert counts(ledger) == (0, 0, 0, 2)
    assert {r: n for r, n in ledger.given_up.items() if n} == {reason: 2}
    assert ledger.open_cells(Span(0, 2)).tolist() == []
    assert receive(ledger, "11") == ([], [], [])  # what arrives now is no frame any more
    assert counts(ledger) == (0, 0, 0, 2)
    assert ledger.no_state_total == 0
    assert ledger.without_cell_total == 0


def test_giving_up_names_the_stored_frames_before_and_the_cells_that_hold_their_values() -> None:
    ledger = ledger_of(3)
    act(ledger, 0, 1)  # cells 0, 1
    receive(ledger, "110", ended="010")  # slot 1's episode ended
    act(ledger, 0, 1, 2)  # cells 2, 3, 4: slot 2's is its first
    previous, given_up = ledger.give_up(np.array([2, 3, 4]), Discard.LATE)
    assert (previous.tolist(), given_up.tolist()) == ([0], [2])


def test_a_given_up_frame_leaves_a_hole_in_the_ordinals() -> None:
    ledger = ledger_of(1)
    ordinals = []
    for turn in range(4):
        ordinals += act(ledger, 0)[1]
        if turn == 1:
            ledger.give_up(ledger.open_cells(Span(0, 1)), Discard.LATE)
        receive(ledger, "1")
    assert ordinals == [0, 1, 2, 3]
    assert ledger.stored_total == 3  # of the ordinals 0, 2 and 3


def test_open_rows_and_open_cells_agree() -> None:
    ledger = ledger_of(4)
    act(ledger, 1, 3)
    assert [a.tolist() for a in ledger.open_rows(Span(0, 4))] == [[1, 3], [0, 1]]
    assert ledger.open_cells(Span(2, 4)).tolist() == [1]


# --- tails


def test_the_tail_of_a_slot_is_its_last_stored_frame_while_its_episode_goes_on() -> None:
    ledger = ledger_of(3)
    act(ledger, 0, 1, 2)
    receive(ledger, "110", ended="010")
    every = Span(0, 3)
    # Slot 0 goes on, slot 1's episode ended, slot 2's action is still open.
    assert [a.tolist() for a in ledger.unfinished_tails(every, rows("111"))] == [[0], [0]]
    assert [a.tolist() for a in ledger.unfinished_tails(every, rows("011"))] == [[], []]
    act(ledger, 0)
    receive(ledger, "100")
    assert [a.tolist() for a in ledger.unfinished_tails(every, rows("111"))] == [[0], [3]]
    ledger.forget_tails(every.slots)
    assert [a.tolist() for a in ledger.unfinished_tails(every, rows("111"))] == [[], []]


def test_an_action_without_a_cell_separates_the_frames_around_it() -> None:
    ledger = ledger_of(1)
    act(ledger, 0)
    receive(ledger, "1")
    ledger.answered_without_cell(Span(0, 1), np.array([0]))
    receive(ledger, "1")
    assert [a.tolist() for a in ledger.unfinished_tails(Span(0, 1), rows("1"))] == [[], []]
    assert ledger.without_cell_total == 1


# --- counting beside the equation


def test_frames_of_an_earlier_session_have_no_state() -> None:
    ledger = ledger_of(3)
    receive(ledger, "110", ended="010")  # rows 0, 1 settle unknown actions; row 2's goes on
    assert ledger.no_state_total == 2
    receive(ledger, "001")
    assert ledger.no_state_total == 3
    act(ledger, 0, 1, 2)
    receive(ledger, "111")
    assert ledger.no_state_total == 3
    assert counts(ledger) == (0, 3, 3, 0)


def test_first_steps_of_fresh_episodes_settle_nothing() -> None:
    ledger = ledger_of(2)
    receive(ledger, "10", has_feedback=False)
    act(ledger, 0)
    receive(ledger, "11")  # row 1 comes into play
    assert ledger.no_state_total == 0
    assert ledger.stored_total == 1


def test_an_episode_that_ends_without_an_action_is_no_frame() -> None:
    ledger = ledger_of(1)
    receive(ledger, "0", has_feedback=False)
    receive(ledger, "0", ended="1")
    receive(ledger, "0", ended="1")
    assert counts(ledger) == (0, 0, 0, 0)
    assert ledger.no_state_total == 0
    assert ledger.env_steps_total == 0


def test_a_row_answered_without_a_cell_counts_when_its_outcome_comes() -> None:
    ledger = ledger_of(2)
    receive(ledger, "11", has_feedback=False)
    ledger.answered_without_cell(Span(0, 1), np.array([0]))
    act(ledger, 1)
    receive(ledger, "01")
    assert ledger.without_cell_total == 0  # row 0's action goes on
    receive(ledger, "10")
    assert ledger.without_cell_total == 1
    assert counts(ledger) == (0, 1, 1, 0)


def test_environment_steps_count_every_row_with_an_action_under_way() -> None:
    ledger = ledger_of(2)
    receive(ledger, "11", has_feedback=False)
    act(ledger, 0, 1)
    receive(ledger, "10", ended="10")  # 2: both environments stepped
    act(ledger, 0)
    receive(ledger, "01")  # 4: row 0's first step of a new episode and row 1's second half
    assert ledger.env_steps_total == 4
    receive(ledger, "00")  # 5: row 1 was not answered yet, row 0's action goes on
    assert ledger.env_steps_total == 5


def test_stored_frames_are_counted_by_episode() -> None:
    ledger = ledger_of(2)
    for _ in range(3):
        act(ledger, 0, 1)
        receive(ledger, "11")
    both = Span(0, 2)
    assert ledger.take_episode_frames(both, np.array([1])).tolist() == [3]
    assert ledger.take_episode_frames(both, np.array([0, 1])).tolist() == [3, 0]


# --- the equation


def books_of(num_cells: int, *, slots: int) -> LedgerBooks:
    return LedgerBooks(
        cells=np.arange(num_cells),
        cell_slots=np.zeros(num_cells, np.int64),
        tails=np.full(slots, NO_CELL),
        ordinals=np.zeros(slots, np.int64),
        answered=np.zeros(slots, np.int64),
        episode_frames=np.zeros(slots, np.int64),
    )


def test_frames_that_came_with_a_checkpoint_stand_in_the_equation() -> None:
    ledger = FrameLedger(capacity=10)
    ledger.load(books_of(5, slots=2))
    assert ledger.num_complete == 5
    assert act(ledger, 0, 1)[0] == [5, 6]
    receive(ledger, "10")
    # 5 loaded + 2 reserved in this attempt = 6 stored + 1 reserved
    assert counts(ledger) == (1, 6, 6, 0)
    assert ledger.complete_cells().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["reserved_total", "stored_total", "num_complete"])
def test_the_equation_notices_a_single_frame_too_many(name: str) -> None:
    ledger = ledger_of(2)
    act(ledger, 0, 1)
    receive(ledger, "10")
    assert ledger.conservation_error == 0
    setattr(ledger, name, getattr(ledger, name) + 1)
    assert ledger.conservation_error == 1
