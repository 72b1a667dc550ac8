"""Choosing a batch, asked directly: who is awaited, since when late, what wakes it."""

from __future__ import annotations

import math

import pytest

from royale_server.scheduler import Dispatch, Group, Infer, Member, Role
from tests.scheduler.desk import Desk

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}


def names(members: object) -> list[str]:
    return [member.name for member in members]


def in_step(desk: Desk, *clients: Member, turn_s: float = 0.01) -> None:
    desk.wait(turn_s)
    for client in clients:
        for group in client.groups:
            desk.send(group)


def test_a_session_is_awaited_while_it_owes_a_request_and_none_of_its_groups_has_one() -> None:
    desk = Desk(min_clients=2, answers=False)
    a, b = desk.enter("a", 1, 1), desk.enter("b", 1)
    awaited = desk.scheduler.dispatcher.awaited
    assert names(awaited) == []  # a/0 and b/0 are being inferred, a/1 has its request waiting
    desk.answer()
    assert names(awaited) == ["b"]
    desk.send(b.groups[0])  # a/1 and b/0 are being inferred, a/0 still owes
    assert names(awaited) == ["a"]
    desk.answer()  # a/1 and b/0 are answered: a owes with both groups
    assert names(awaited) == ["a", "b"]
    assert [(g.member.name, g.index) for g in desk.scheduler.awaited_groups()] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]
    desk.leave(a)
    assert names(awaited) == ["b"]


def test_a_session_outside_the_quorum_is_not_awaited_until_it_returns() -> None:
    desk = Desk(min_clients=2)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    for _ in range(3):  # b's turns are 20 times as long as a's
        for _ in range(20):
            desk.wait(0.01)
            if not desk.is_waiting(a.groups[0]):
                desk.send(a.groups[0])
        desk.send(b.groups[0])
    assert names(desk.scheduler.dispatcher.awaited) == ["a"]
    in_step(desk, a)  # b's request goes along
    for _ in range(3):
        in_step(desk, b, a)
    assert sorted(names(desk.scheduler.dispatcher.awaited)) == ["a", "b"]


def test_while_closed_the_groups_that_owe_cells_are_the_awaited_ones() -> None:
    desk = Desk(target=2, **DYNAMIC)
    desk.enter("a", 1)
    b = desk.enter("b", 1)
    desk.enter("c", 1)
    assert not desk.scheduler.is_open
    assert names(g.member for g in desk.scheduler.awaited_groups()) == ["a", "b"]
    desk.send(b.groups[0])
    assert names(g.member for g in desk.scheduler.awaited_groups()) == ["a"]


def test_a_turn_is_late_from_its_answer_plus_the_patience_on() -> None:
    desk = Desk(min_clients=2)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    in_step(desk, a, b, turn_s=0.05)
    dispatcher, group = desk.scheduler.dispatcher, a.groups[0]
    assert dispatcher.late_at(group) == pytest.approx(desk.now + 3 * 0.05)
    assert not dispatcher.is_late(group, desk.now + 0.149)
    assert dispatcher.is_late(group, desk.now + 0.151)
    desk.send(group)
    assert not dispatcher.is_late(group, desk.now + 100.0)  # the server owes the answer now


def test_nothing_is_dispatched_and_nothing_wakes_while_the_only_client_acts() -> None:
    desk = Desk()
    desk.enter("a", 1)
    assert desk.scheduler.wake_at == pytest.approx(desk.now + 60.0)  # its time-out, nothing else


def test_the_wake_up_of_a_round_is_when_the_awaited_turn_is_late() -> None:
    desk = Desk(min_clients=2)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    in_step(desk, a, b)
    answered_at = desk.now
    desk.wait(0.01)
    desk.send(a.groups[0])
    # Nobody is late before 20 ms; then the median turn is looked at, which is 10 ms.
    assert desk.scheduler.wake_at == pytest.approx(answered_at + 0.02)
    desk.wait(0.015)
    assert desk.scheduler.wake_at == pytest.approx(answered_at + 0.03)


def test_wake_ups_are_never_infinite() -> None:
    desk = Desk(target=1, feedback_wait_timeout_s=math.inf, first_step_timeout_s=math.inf)
    desk.enter("a", 1)  # closed, and a owes the frame
    assert desk.scheduler.wake_at is None  # with no other session nothing is ever late


def test_the_clamp_of_a_mini_batch_is_said_once_and_again_when_it_changes() -> None:
    desk = Desk(mini_infer_batch_size=8, min_clients=2)
    a, b = desk.enter("a", 2), desk.enter("b", 2)
    for _ in range(5):
        in_step(desk, a, b)
    clamped = [notice for notice in desk.notices if "mini-infer-batch-size 8" in notice]
    assert len(clamped) == 1
    assert "using 4" in clamped[0]
    c = desk.enter("c", 2)
    for _ in range(5):
        in_step(desk, a, b, c)
    clamped = [notice for notice in desk.notices if "mini-infer-batch-size 8" in notice]
    assert "using 6" in clamped[-1]


def test_a_mini_batch_that_is_large_enough_needs_no_clamp_and_takes_all_that_is_queued() -> None:
    desk = Desk(mini_infer_batch_size=3, answers=False, min_clients=2)
    desk.enter("a", 2)
    desk.enter("b", 2)  # four slots queued, three wanted: all of them go
    assert desk.batches == [["a/0", "b/0"]]
    assert desk.notices == []


def test_batches_are_in_order_of_arrival_and_deterministic_ones_in_order_of_joining() -> None:
    def batch(**settings: object) -> list[str]:
        desk = Desk(min_clients=2, **settings)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(b.groups[0])
        desk.send(a.groups[0])
        return desk.batches[-1]

    assert batch() == ["b/0", "a/0"]
    assert batch(deterministic=True) == ["a/0", "b/0"]


def test_cells_slots_and_ordinals_of_a_batch_follow_its_items() -> None:
    desk = Desk(min_clients=2)
    a, b = desk.enter("a", 2), desk.enter("b", 2)
    desk.send(b.groups[0], "01", "10")
    desk.send(a.groups[0])
    batch = desk.commands(Infer)[-1]
    assert batch.slots.tolist() == [3, 0, 1]  # b's second row, then a
    assert batch.cell_slots.tolist() == [3, 0, 1]
    assert batch.cells.tolist() == [4, 5, 6]
    assert batch.ordinals.tolist() == [1, 1, 1]
    assert not batch.evaluation


def test_a_group_is_in_flight_from_its_dispatch_to_its_answer() -> None:
    desk = Desk(answers=False)
    group: Group = desk.enter("a", 1).groups[0]
    assert group.in_flight
    assert not desk.scheduler.is_idle
    desk.answer()
    assert not group.in_flight
    assert group.owes_since == desk.now


def test_evaluation_requests_are_gathered_into_one_batch() -> None:
    desk = Desk(answers=False)
    desk.enter("a", 1)
    desk.enter("e", 2, role=Role.EVAL)
    desk.enter("f", 1, role=Role.EVAL)
    desk.answer()
    assert desk.batches[-1] == ["e/0", "f/0"]
