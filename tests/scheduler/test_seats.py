"""Rows that somebody else than the learner plays: inferred or not, never stored, counted apart."""

from __future__ import annotations

import numpy as np

from royale_server.scheduler import Answer, FrameLedger, Infer, Scheduler, SchedulerConfig, Span
from tests.scheduler.desk import Desk, rows

SNAPSHOT, BOT = 40, -1


def test_a_row_of_a_snapshot_is_inferred_without_a_cell_and_a_bots_row_does_not_ask() -> None:
    desk = Desk()
    a = desk.join("a", 4)
    seats = [0, SNAPSHOT, 0, BOT]
    desk.send(a.groups[0], asks="1110", seats=seats)
    desk.send(a.groups[0], asks="1110", seats=seats)
    for batch in desk.commands(Infer):
        assert batch.slots.tolist() == [0, 1, 2]
        assert batch.seats is not None
        assert batch.seats.tolist() == [0, SNAPSHOT, 0]
        assert batch.cell_slots.tolist() == [0, 2]
        assert batch.items[0].learner.tolist() == [True, False, True]
    ledger = desk.ledger
    # Of the first batch two frames are stored and one is the snapshot's; the second is under way.
    assert (ledger.stored_total, ledger.num_reserved) == (2, 2)
    assert (ledger.others_answered_total, ledger.others_total) == (2, 1)
    assert ledger.env_steps_total == 2  # of learner seats
    assert ledger.without_cell_total == 0
    assert ledger.conservation_error == 0


def test_a_batch_of_learners_alone_names_no_seats() -> None:
    desk = Desk()
    desk.enter("a", 2)
    assert desk.commands(Infer)[0].seats is None


def test_groups_with_and_without_others_share_a_batch() -> None:
    desk = Desk(min_clients=2)
    a, b = desk.join("a", 1), desk.join("b", 2)
    desk.send(a.groups[0])
    desk.send(b.groups[0], seats=[SNAPSHOT, 0])
    (batch,) = desk.commands(Infer)
    assert batch.seats is not None
    assert batch.seats.tolist() == [0, SNAPSHOT, 0]
    assert batch.cell_slots.tolist() == [0, 2]


def test_a_row_changes_hands_where_its_episode_ends_and_its_last_frame_is_still_its_owners() -> (
    None
):
    desk = Desk()
    (group,) = desk.join("a", 2).groups
    desk.send(group, seats=[0, SNAPSHOT])
    desk.send(group, ended="11", seats=[SNAPSHOT, 0])
    desk.send(group, seats=[SNAPSHOT, 0])
    assert [b.cell_slots.tolist() for b in desk.commands(Infer)] == [[0], [1], [1]]
    # Slot 0 stored its first frame, slot 1 its second; each played another one for a snapshot.
    assert (desk.ledger.stored_total, desk.ledger.others_total) == (2, 2)
    assert desk.ledger.conservation_error == 0


def test_a_request_in_which_only_others_ask_is_served_while_collection_is_closed() -> None:
    desk = Desk(target=1, mini_infer_batch_size=1)
    a, b = desk.join("a", 1), desk.join("b", 2)
    desk.send(a.groups[0])  # one frame is all that is wanted
    assert not desk.scheduler.is_open
    desk.send(b.groups[0], asks="10", seats=[SNAPSHOT, 0])
    assert desk.batches == [["a/0"], ["b/0"]]
    assert desk.ledger.num_reserved == 1


def test_a_request_of_bots_alone_is_answered_at_once() -> None:
    desk = Desk()
    (group,) = desk.join("a", 1).groups
    desk.send(group, asks="0", seats=[BOT])
    assert len(desk.commands(Answer)) == 1
    desk.send(group, ended="1")  # the bot's episode ended, the learner plays the next
    assert desk.commands(Infer)[0].cell_slots.tolist() == [0]
    assert desk.ledger.others_answered_total == 0
    assert desk.ledger.env_steps_total == 0


def test_the_books_add_up_at_every_learn_step_and_after_a_session_is_gone() -> None:
    desk = Desk(target=6, mini_infer_batch_size=1)
    a, b = desk.join("a", 2), desk.join("b", 2)
    for turn in range(40):
        for member in (a, b):
            (group,) = member.groups
            if group.waiting is None and not member.ended:
                desk.send(group, seats=[0, SNAPSHOT])
        if len(desk.learns) > desk.ledger.version:
            assert desk.ledger.conservation_error == 0
            desk.learned()
        if turn == 20:
            desk.leave(b)
            assert desk.ledger.others_lost_total == 1
    ledger = desk.ledger
    assert len(desk.learns) > 5
    assert ledger.others_total > 30
    open_now = ledger.others_answered_total - ledger.others_total - ledger.others_lost_total
    assert open_now in (0, 1)
    assert ledger.conservation_error == 0


def test_a_lost_action_of_others_is_found_by_the_books() -> None:
    ledger = FrameLedger(capacity=10)
    ledger.add_slots(1)
    span = Span(0, 1)
    ledger.receive(span, rows("1"), rows("0"), has_feedback=False)
    ledger.answered_for_others(span, np.array([0]))
    assert ledger.conservation_error == 0
    ledger.others_answered_total += 1
    assert ledger.conservation_error == 1


def test_fresh_episodes_give_up_what_others_were_doing() -> None:
    ledger = FrameLedger(capacity=10)
    ledger.add_slots(2)
    span = Span(0, 2)
    ledger.receive(span, rows("11"), rows("00"), has_feedback=False)
    ledger.answered_for_others(span, np.array([1]))
    ledger.restart(span)
    assert (ledger.others_total, ledger.others_lost_total) == (0, 1)
    assert ledger.conservation_error == 0


def test_who_plays_and_what_others_do_survive_a_restart_of_the_server() -> None:
    desk = Desk()
    (group,) = desk.join("a", 3).groups
    desk.send(group, asks="111", seats=[0, SNAPSHOT, SNAPSHOT])
    desk.rest()
    desk.send(group, asks="110", seats=[0, SNAPSHOT, SNAPSHOT])  # the third is still acting
    state = desk.scheduler.state()
    assert state.seats.tolist() == [0, SNAPSHOT, SNAPSHOT]

    again = Desk()
    again.scheduler = Scheduler(SchedulerConfig(), target=1000)
    again.ledger = again.scheduler.ledger
    (member,) = again.scheduler.load(state, again.now)
    assert again.ledger.conservation_error == 0
    again.returned(member)
    (batch,) = again.commands(Infer)
    assert batch.seats is not None
    assert batch.seats.tolist() == [0, SNAPSHOT]
    assert batch.cell_slots.tolist() == [0]
    again.send(member.groups[0], seats=[0, SNAPSHOT, SNAPSHOT])
    # The action that was under way when the server ended, and the one inferred since.
    assert again.ledger.others_total == 2
    assert again.ledger.conservation_error == 0
