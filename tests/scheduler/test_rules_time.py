"""Rules 10 and 13 to 15: time-outs, evaluation, rest points, leaving.

Each test is a scenario that holds, and fails once the clause it is about is taken out. Times
are seconds since the start.
"""

from __future__ import annotations

from typing import Any

import pytest

from royale_server.scheduler import (
    Discard,
    Dispatch,
    EndSession,
    Group,
    Infer,
    Member,
    Notice,
    Request,
    Rested,
    Role,
    Scheduler,
)
from royale_server.scheduler.closing import Closing
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.rest import Rest
from royale_server.scheduler.timeouts import Timeouts
from royale_server.scheduler.turns import TurnTaking
from royale_server.scheduler.waiting import Waiting
from tests.scheduler.clauses import assert_needed, assert_no_fault, nothing
from tests.scheduler.desk import Desk
from tests.scheduler.plans import Plan

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}
INFINITE = lambda self, member, now: float("inf")  # noqa: E731


# --- rule 10: time-outs ----------------------------------------------------------------------


def test_a_session_that_owes_a_request_for_too_long_is_ended_and_its_frames_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)
        desk.wait(61.0)
        ended = desk.commands(EndSession)
        assert [(end.member, end.code) for end in ended] == [(a, "timeout")]
        assert "--feedback-wait-timeout" in ended[0].message
        assert desk.times(EndSession) == [pytest.approx(60.0)]
        assert desk.given_up(Discard.LOST) == 2
        assert desk.scheduler.members == []

    assert_needed(check, monkeypatch, (Timeouts, "feedback_left_s", INFINITE))


def test_one_silent_group_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        desk.enter("b", 1)
        a = desk.enter("a", 1, 1)
        desk.wait(30.0)
        desk.send(a.groups[0])
        desk.wait(31.0)
        assert a in [end.member for end in desk.commands(EndSession)]

    def busiest(self: Timeouts, member: Member, now: float) -> float:
        owed = [g.owes_since_running for g in member.groups if g.owes_since is not None]
        if not owed:
            return float("inf")
        return max(owed) + self._feedback_s - self.running(now)

    assert_needed(check, monkeypatch, (Timeouts, "feedback_left_s", busiest))


def test_a_client_is_not_timed_out_for_the_length_of_a_learn_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=1, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.join("b", 1)
        desk.send(b.groups[0], "0")  # answered at once: b owes, but no cell
        desk.wait(50.0)
        desk.send(a.groups[0])
        assert len(desk.learns) == 1
        desk.wait(3600.0)
        desk.learned()
        desk.wait(9.0)  # b has used 59 of its 60 seconds
        assert desk.commands(EndSession) == []
        desk.wait(2.0)
        assert [end.member for end in desk.commands(EndSession)] == [b]

    assert_needed(check, monkeypatch, (Timeouts, "freeze", nothing))


def test_a_client_is_not_timed_out_for_the_length_of_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0])
        desk.rest()
        desk.send(a.groups[0])
        desk.wait(1.5)  # b is silent: its frame is revoked at 1.0
        assert desk.times(Rested) == [pytest.approx(1.0)]
        desk.wait(1000.0)
        desk.resume()
        desk.wait(58.0)
        assert desk.commands(EndSession) == []
        desk.wait(2.0)
        assert b in [end.member for end in desk.commands(EndSession)]

    assert_needed(check, monkeypatch, (Timeouts, "freeze", nothing))


def test_no_one_is_timed_out_while_the_server_owes_the_answer() -> None:
    desk = Desk(min_clients=2)
    desk.enter("a", 1)
    desk.wait(10_000.0)
    assert desk.commands(EndSession) == []


def test_looking_for_time_outs_costs_nothing_until_one_may_be_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    feedback_left_s = Timeouts.feedback_left_s

    def counted(self: Timeouts, member: Member, now: float) -> float:
        looks.append(now)
        return feedback_left_s(self, member, now)

    monkeypatch.setattr(Timeouts, "feedback_left_s", counted)
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 1)
    for _ in range(1000):  # 50 s of turns of 50 ms
        desk.wait(0.05)
        desk.send(a.groups[0])
    assert looks == []
    desk.wait(11.0)
    assert len(looks) == 1  # the first answer's 60 s are over, and long forgotten


# --- rule 13: evaluation ---------------------------------------------------------------------


def test_evaluation_is_served_while_collection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=1)
        desk.enter("a", 1)
        assert not desk.scheduler.is_open
        desk.enter("e", 2, role=Role.EVAL)
        assert desk.batches == [["a/0"], ["e/0"]]

    dispatch = Scheduler._dispatch

    def only_open(self: Scheduler, now: float) -> None:
        evaluating = self._waiting.evaluating
        if not self.is_open:
            self._waiting.evaluating = {}
        dispatch(self, now)
        self._waiting.evaluating = evaluating

    assert_needed(check, monkeypatch, (Scheduler, "_dispatch", only_open))


def test_evaluation_has_batches_of_its_own_and_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(answers=False, **DYNAMIC)
        desk.enter("a", 1)
        desk.enter("b", 1)
        e = desk.enter("e", 2, role=Role.EVAL)
        desk.answer()
        desk.answer()
        desk.answer()
        assert desk.batches == [["a/0"], ["e/0"], ["b/0"]]
        assert [batch.evaluation for batch in desk.commands(Infer)] == [False, True, False]
        desk.send(e.groups[0], ended="10")
        assert desk.ledger.reserved_total == 2
        assert desk.ledger.env_steps_total == 0

    add = Waiting.add

    def as_training(self: Waiting, group: Group, request: Request) -> None:
        trains, group.trains = group.trains, True
        add(self, group, request)
        group.trains = trains

    assert_needed(check, monkeypatch, (Waiting, "add", as_training))


def test_no_round_waits_for_an_evaluation_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        e = desk.enter("e", 1, role=Role.EVAL)
        desk.wait(0.01)
        desk.send(e.groups[0])  # served; it owes from now on
        desk.send(a.groups[0])
        desk.send(b.groups[0])
        assert desk.times(Infer)[-1] == 0.01
        assert desk.batches[-1] == ["a/0", "b/0"]

    end_turn = TurnTaking.end

    def entering(self: TurnTaking, group: Group, now: float) -> None:
        end_turn(self, group, now)
        if group not in self._quorum:
            self._quorum.enter(group, group.member)

    assert_needed(check, monkeypatch, (TurnTaking, "end", entering))


def test_training_and_evaluation_take_turns_when_both_always_have_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(answers=False, **DYNAMIC)
        a = desk.enter("a", 1, 1)
        e = desk.enter("e", 1, role=Role.EVAL)
        f = desk.join("f", 1, role=Role.EVAL)
        desk.answer()
        desk.send(f.groups[0])  # while e is served: some evaluation request is always queued
        for _ in range(5):
            desk.answer()
            for group in (*a.groups, *e.groups, *f.groups):
                if group.owes_since is not None:
                    desk.send(group)
        kinds = [batch.evaluation for batch in desk.commands(Infer)]
        assert kinds == [False, True, False, True, False, True, False]

    send = Scheduler._send

    def forgetful(self: Scheduler, groups: Any, *, evaluation: bool) -> None:
        send(self, groups, evaluation=evaluation)
        self._last_was_evaluation = False

    assert_needed(check, monkeypatch, (Scheduler, "_send", forgetful))


# --- rule 14: rest points --------------------------------------------------------------------


def test_at_rest_nothing_is_dispatched_and_every_request_is_at_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.rest()
        desk.send(a.groups[0])
        assert desk.commands(Rested) == []
        desk.wait(0.5)
        desk.send(b.groups[0])
        assert desk.times(Rested) == [0.5]
        desk.wait(100.0)
        assert desk.batches == [["a/0"], ["b/0"]]
        assert desk.ledger.num_reserved == 0
        desk.resume()
        assert desk.batches[2:] == [["a/0", "b/0"]]

    def at_once(self: Rest, _now: float, _since: float) -> bool:
        self.since = None
        return True

    assert_needed(check, monkeypatch, (Rest, "approach", at_once))


def test_cells_still_reserved_a_close_wait_after_a_rest_request_are_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, _b = desk.enter("a", 1), desk.enter("b", 2)
        desk.rest()
        desk.send(a.groups[0])
        desk.wait(30.0)
        assert desk.times(Rested) == [pytest.approx(1.0)]
        assert desk.times(Notice, "b/0 kept") == [pytest.approx(1.0)]
        assert desk.given_up(Discard.LATE) == 2

    assert_needed(check, monkeypatch, (Closing, "revoke", nothing))


def test_a_deterministic_run_comes_to_rest_when_everybody_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(deterministic=True, min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.rest()
        desk.send(a.groups[0])
        desk.wait(30.0)
        desk.send(b.groups[0])
        assert desk.times(Rested) == [30.0]
        assert desk.ledger.discarded_total == 0

    impatient = property(lambda self: False)
    assert_needed(check, monkeypatch, (Dispatcher, "is_deterministic", impatient))


def test_open_silent_rows_are_cut_at_a_rest_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)
        desk.rest()
        desk.send(a.groups[0], "10")
        assert desk.times(Rested) == [0.0]
        assert desk.ledger.num_reserved == 0
        assert desk.given_up(Discard.CUT) == 1

    assert_needed(check, monkeypatch, (Closing, "cut", nothing))


def test_a_silent_request_is_held_at_rest_and_answered_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)
        desk.rest()
        desk.send(a.groups[0], "00")
        assert desk.silent_answers == []
        assert desk.times(Rested) == [0.0]
        desk.resume()
        desk.wait(0.0)
        assert desk.silent_answers == ["a/0"]

    enqueue = Scheduler._enqueue

    def at_once(self: Scheduler, group: Group, request: Request, now: float) -> None:
        since, self._rest.since = self._rest.since, None
        enqueue(self, group, request, now)
        self._rest.since = since

    assert_needed(check, monkeypatch, (Scheduler, "_enqueue", at_once))


def test_a_learn_step_that_is_due_waits_for_the_end_of_a_rest() -> None:
    desk = Desk(target=1)
    a = desk.enter("a", 1)
    desk.rest()
    desk.send(a.groups[0])
    assert desk.times(Rested) == [0.0]
    assert desk.learns == []
    desk.resume()
    assert desk.learns == [[0]]


def test_a_rest_asked_for_during_a_learn_step_comes_after_it() -> None:
    desk = Desk(target=1)
    a = desk.enter("a", 1)
    desk.send(a.groups[0])
    desk.rest()
    assert desk.commands(Rested) == []
    desk.learned()
    assert len(desk.commands(Rested)) == 1
    assert desk.batches == [["a/0"]]


def test_evaluation_goes_on_while_a_rest_is_approached_but_not_at_rest() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 1)
    e = desk.enter("e", 1, role=Role.EVAL)
    desk.rest()
    desk.send(e.groups[0])
    assert desk.batches[-1] == ["e/0"]
    desk.send(a.groups[0])
    assert len(desk.commands(Rested)) == 1
    before = len(desk.batches)
    desk.send(e.groups[0])
    assert len(desk.batches) == before


def test_a_rest_in_sight_is_not_asked_for_again_and_again() -> None:
    desk = Desk(deterministic=True, min_clients=1)
    desk.enter("a", 1)
    desk.rest()
    desk.wait(30.0)
    assert desk.scheduler.wake_at is not None
    assert desk.scheduler.wake_at >= desk.now  # the time-out at 60, nothing before


# --- rule 15: leaving ------------------------------------------------------------------------


def test_a_last_step_that_closes_every_open_row_leaves_nothing_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)
        desk.enter("b", 1)
        desk.send(a.groups[0])
        desk.send(a.groups[0], "00", ended="11")
        assert desk.silent_answers == ["a/0"]
        desk.leave(a)
        assert desk.ledger.discarded_total == 0
        assert desk.ledger.stored_total == 4

    send = Desk.send

    def rude(self: Desk, group: Group, asks: str | None = None, *args: Any, **kwargs: Any) -> None:
        if asks != "00":
            send(self, group, asks, *args, **kwargs)
        else:
            self.scheduler._answer_silent = nothing

    assert_needed(check, monkeypatch, (Desk, "send", rude))


def test_goodbyes_without_the_last_step_cost_frames_and_goodbyes_with_it_none() -> None:
    def gone_and_lost(plan: Plan) -> tuple[int, int]:
        worlds = [assert_no_fault(plan, seed=seed) for seed in range(5)]
        gone = sum(client.is_gone for world in worlds for client in world.clients)
        return gone, sum(world.scheduler.ledger.discarded_total for world in worlds)

    assert gone_and_lost(Plan(sessions=((3,),) * 4, leaves=2)) == (10, 0)
    gone, lost = gone_and_lost(Plan(sessions=((3,),) * 4, quits=2))
    assert gone == 10
    assert 3 <= lost <= 10 * 3  # whoever was acting had three frames under way


def test_stored_frames_and_environment_steps_are_counted_apart() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 2)
    desk.send(a.groups[0], "10")  # two environment steps; row 1's action goes on
    desk.send(a.groups[0], "11")
    assert desk.ledger.stored_total == 3
    assert desk.ledger.env_steps_total == 4
