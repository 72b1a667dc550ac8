"""Clients that come, go, vanish, and do things in any order (cases H34 and H35)."""

from __future__ import annotations

import itertools

import pytest

from royale_server.scheduler import Discard, Dispatch, EndSession, Infer, Role
from tests.scheduler.desk import Desk

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}

# What a row may do in its next request; what it means for its open action.
ASK, SILENT, END_AND_ASK, END_SILENT = "ask", "silent", "end and ask", "end, silent"


def test_any_order_of_asking_and_ending_stores_exactly_the_actions_that_settled() -> None:
    """Case H35: episodes of length zero, endings without an action, silence at any time."""
    for length in range(1, 6):
        for sequence in itertools.product((ASK, SILENT, END_AND_ASK, END_SILENT), repeat=length):
            desk = Desk()
            group = desk.join("a", 1).groups[0]
            expected, is_open = 0, False
            for number, what in enumerate(sequence):
                asks, ends = what in (ASK, END_AND_ASK), what in (END_AND_ASK, END_SILENT)
                expected += is_open and (asks or ends)
                is_open = asks or (is_open and not ends)
                ends = ends and number > 0  # the first request answers for no action
                desk.send(group, "1" if asks else "0", "1" if ends else "0")
            assert desk.ledger.stored_total == expected, sequence
            assert desk.ledger.num_reserved == is_open, sequence
            assert desk.ledger.conservation_error == 0, sequence
            desk.leave(group.member)
            assert desk.given_up(Discard.LOST) == is_open, sequence
            assert desk.ledger.no_state_total == 0, sequence


def test_a_second_request_before_the_first_is_answered_is_the_caller_s_mistake() -> None:
    """The session refuses such a client; the core must not guess what it means."""
    desk = Desk(answers=False)
    group = desk.enter("a", 1).groups[0]
    with pytest.raises(AssertionError, match="while one was unanswered"):
        desk.send(group)


def test_a_vanished_client_s_place_is_taken_by_the_next_at_once() -> None:
    """Case H34: while the ghost lingers the newcomer is served all the same."""
    desk = Desk(min_clients=1, **DYNAMIC)
    ghost = desk.enter("ghost", 4)
    newcomer = desk.enter("new", 4)
    for _ in range(5):
        desk.wait(1.0)
        desk.send(newcomer.groups[0])
    assert desk.batches == [["ghost/0"]] + [["new/0"]] * 6
    desk.wait(60.0)
    assert ghost in [end.member for end in desk.commands(EndSession)]
    assert ghost not in desk.scheduler.members


def test_two_hundred_comings_and_goings_leave_nothing_behind() -> None:
    desk = Desk(**DYNAMIC)
    scheduler = desk.scheduler
    stays = desk.enter("stays", 1)
    for number in range(200):
        role = Role.EVAL if number % 5 == 0 else Role.TRAIN
        member = desk.enter(f"c{number}", 2, 1, role=role)
        desk.wait(0.01)
        if number % 2:
            desk.send(member.groups[0], "10")
        desk.send(stays.groups[0])
        desk.leave(member)
    assert list(scheduler.members) == [stays]
    assert scheduler.slots_in_use == 1
    assert set(scheduler._closing.owing) <= set(stays.groups)
    waiting = scheduler._waiting
    assert not waiting.queued
    assert not waiting.without_learner_rows
    assert not waiting.evaluating
    assert not waiting.silent
    assert waiting.num_slots == 0
    assert set(scheduler.dispatcher.awaited) <= {stays}
    assert list(scheduler._quorum._groups) == list(stays.groups)
    assert list(scheduler._quorum._sessions) == [stays]
    scheduler._quorum._sort()
    assert len(scheduler._quorum._medians) == 1
    assert scheduler._quorum.on_time == set(stays.groups)
    assert desk.ledger.num_reserved == 1
    assert desk.ledger.conservation_error == 0


def test_a_client_that_leaves_while_its_request_is_inferred_costs_its_cells_and_nothing_else() -> (
    None
):
    desk = Desk(answers=False, **DYNAMIC)
    a = desk.enter("a", 2)
    desk.enter("b", 1)
    desk.leave(a)
    desk.answer()
    assert desk.batches == [["a/0"], ["b/0"]]
    assert desk.given_up(Discard.LOST) == 2
    assert a.groups[0].owes_since is None
    desk.leave(a)  # told twice, as when a connection breaks after a fault
    assert desk.given_up(Discard.LOST) == 2


def test_a_client_that_leaves_while_parked_loses_no_frame() -> None:
    desk = Desk(target=2, **DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    desk.send(a.groups[0])
    desk.leave(a)
    desk.send(b.groups[0])
    assert desk.learns == [[0, 1]]
    assert desk.ledger.discarded_total == 0


def test_a_session_that_joins_during_a_learn_step_is_served_after_it() -> None:
    desk = Desk(target=1)
    a = desk.enter("a", 1)
    desk.send(a.groups[0])
    b = desk.enter("b", 1)
    assert desk.is_waiting(b.groups[0])
    desk.learned()
    assert desk.batches == [["a/0"], ["a/0", "b/0"]]


def test_two_groups_of_one_client_are_answered_in_turn_while_the_other_acts() -> None:
    desk = Desk()
    a = desk.enter("a", 2, 2)
    for _ in range(3):
        for group in a.groups:
            desk.wait(0.01)
            desk.send(group)
    assert desk.batches == [["a/0"], ["a/1"]] * 4
    assert len(desk.commands(Infer)) == 8


def test_a_larger_target_of_a_later_iteration_is_collected() -> None:
    desk = Desk(target=2)
    a = desk.enter("a", 2)
    desk.send(a.groups[0])
    desk.learned(target=6)
    for _ in range(3):
        desk.send(a.groups[0])
    assert [len(cells) for cells in desk.learns] == [2, 6]
