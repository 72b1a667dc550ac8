"""Rule 14 beyond one process: what a rest waits for, what is saved, and who comes back how.

Each test is a scenario that holds, and fails once the clause it is about is taken out. Times
are seconds since the start.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from royale_server.scheduler import (
    Bootstrap,
    Discard,
    Dispatch,
    EndRun,
    EndSession,
    FrameLedger,
    Group,
    Infer,
    Learn,
    Member,
    Record,
    Rested,
    Scheduler,
    SchedulerState,
    Span,
)
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.rest import Rest
from royale_server.scheduler.slots import NO_CELL
from royale_server.scheduler.timeouts import Timeouts
from tests.scheduler.clauses import assert_needed, nothing
from tests.scheduler.desk import Desk, effects_of

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}
DETERMINISTIC = {"deterministic": True, "min_clients": 2}


def saved(desk: Desk) -> SchedulerState:
    """Come to rest and save."""
    desk.rest()
    assert desk.commands(Rested), "everybody has a request at the server"
    return deepcopy(desk.scheduler.state())


def resumed(state: SchedulerState, **settings: Any) -> tuple[Desk, list[Member]]:
    """Another process, and the members it awaits."""
    desk = Desk(**settings)
    members = desk.scheduler.load(state, desk.now)
    desk.wait(0.0)
    desk.advance()
    return desk, members


# --- what a rest waits for -------------------------------------------------------------------


def with_a_turn_of(seconds: float, **settings: Any) -> tuple[Desk, Group]:
    """Two clients whose turns took so long; a is parked, b has its answer and owes no cell."""
    desk = Desk(**DYNAMIC, **settings)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    desk.wait(seconds)
    desk.send(b.groups[0], "0", ended="1")  # nobody asks: answered at once, and no cell is open
    desk.rest()
    desk.send(a.groups[0])
    return desk, b.groups[0]


def test_a_rest_waits_for_a_group_on_time_though_it_owes_no_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, b = with_a_turn_of(0.1)  # on time until 3 x 0.1
        desk.wait(0.2)
        assert desk.commands(Rested) == []
        desk.send(b)
        assert desk.times(Rested) == [0.3]
        assert len(desk.scheduler.state().members) == 2

    assert_needed(check, monkeypatch, (Rest, "is_awaited", lambda *_: False))


def test_a_rest_waits_for_a_group_without_a_frame_only_until_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, _ = with_a_turn_of(0.1)
        desk.wait(5.0)
        assert desk.times(Rested) == [pytest.approx(0.4)]
        assert [member.name for member in desk.scheduler.state().members] == ["a"]

    def patient(self: Rest, _group: Group, now: float, since: float) -> bool:
        self._outbox.wake(since + self._close_wait_s)
        return now < since + self._close_wait_s

    assert_needed(check, monkeypatch, (Rest, "is_awaited", patient))


def test_a_rest_does_not_wait_for_a_group_outside_the_quorum_that_owes_no_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        for _ in range(3):  # b needs 20 times as long: it leaves the quorum
            for _ in range(20):
                desk.wait(0.05)
                desk.send(a.groups[0])
            desk.send(b.groups[0], "1")
        assert "b/0 is late" in desk.notices[-1]
        desk.wait(0.05)
        desk.send(b.groups[0], "0", ended="1")
        desk.rest()
        desk.send(a.groups[0])
        assert desk.times(Rested) == [pytest.approx(3.05)]

    def whoever(self: Rest, group: Group, now: float, since: float) -> bool:
        until = since + self._close_wait_s
        if not group.reserved:
            until = min(until, self._dispatcher.late_at(group))
        self._outbox.wake(until)
        return now < until

    assert_needed(check, monkeypatch, (Rest, "is_awaited", whoever))


def test_the_wait_for_frames_at_rest_is_counted_from_the_end_of_a_learn_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rest is asked for during a long learn step; group 1 is acting and has its time after it."""

    def check() -> None:
        desk = Desk(target=1)
        a = desk.join("a", 1, 1)
        desk.send(a.groups[1], "0")  # answered at once
        desk.send(a.groups[0])
        desk.send(a.groups[0])
        assert len(desk.learns) == 1
        desk.rest()
        desk.wait(40.0)
        desk.learned()
        desk.wait(0.5)
        assert desk.commands(Rested) == []
        desk.send(a.groups[1])
        assert desk.times(Rested) == [40.5]

    assert_needed(check, monkeypatch, (Rest, "count_from", nothing))


def test_what_is_still_to_be_written_to_frames_travels_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 1)
        desk.rest()
        desk.send(a.groups[0])
        (rested,) = desk.commands(Rested)
        assert [(type(e), e.cells.tolist()) for e in rested.effects] == [(Record, [0])]
        desk.resume()
        assert effects_of(desk.commands(Infer), Record) == []

    def kept(self: Scheduler) -> None:
        self._outbox.commands.append(Rested())

    assert_needed(check, monkeypatch, (Scheduler, "_say_rested", kept))


def test_the_parked_request_of_a_session_that_cannot_be_saved_serves_as_bootstrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Group 0 has shown what its frame leads to, group 1 stays out: nothing of both is saved."""

    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1, 1), desk.enter("b", 1)
        desk.rest()
        desk.send(b.groups[0])
        desk.send(a.groups[0])
        desk.wait(2.0)
        (rested,) = desk.commands(Rested)
        bootstraps = [e for e in rested.effects if isinstance(e, Bootstrap)]
        assert [e.cells.tolist() for e in bootstraps] == [[0]]
        assert bootstraps[0].request is a.groups[0].waiting
        assert [member.name for member in desk.scheduler.state().members] == ["b"]

    assert_needed(check, monkeypatch, (Rest, "bootstrap_unsaved", nothing))


def test_what_is_complete_when_a_deterministic_run_loses_a_client_is_saved_and_not_learnt_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lost client owes the last frame that the learn step waits for."""

    def check() -> None:
        desk = Desk(target=1, **DETERMINISTIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0])
        desk.leave(b)
        assert len(desk.commands(EndRun)) == 1
        assert desk.learns == []
        assert len(desk.commands(Rested)) == 1
        assert desk.scheduler.state().books.cells.tolist() == [0]

    def goes_on(self: Scheduler, text: str, _now: float) -> None:
        self._outbox.commands.append(EndRun(text))

    assert_needed(check, monkeypatch, (Scheduler, "_end_run", goes_on))


def test_a_rest_asked_for_at_rest_is_announced_with_what_has_happened_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.join("a", 1), desk.join("b", 1)
        for group in (*a.groups, *b.groups):
            desk.send(group)
        desk.rest()
        for group in (*a.groups, *b.groups):
            desk.send(group)
        desk.leave(b)
        assert len(desk.commands(Rested)) == 1
        desk.rest()
        again = desk.commands(Rested)[1:]
        assert [[type(e) for e in rested.effects] for rested in again] == [[Bootstrap]]

    def once(self: Scheduler, now: float) -> None:
        self._rest.ask(now)

    assert_needed(check, monkeypatch, (Scheduler, "rest", once))


# --- who is awaited --------------------------------------------------------------------------


def two_parked(**settings: Any) -> SchedulerState:
    """Clients a (slot 0) and b (slots 1 and 2), each with one frame a slot."""
    desk = Desk(**settings)
    a, b = desk.join("a", 1), desk.join("b", 2)
    desk.send(a.groups[0])
    desk.send(b.groups[0])
    desk.rest()
    desk.send(a.groups[0])
    desk.send(b.groups[0])
    return saved(desk)


def test_a_member_that_is_awaited_is_not_dispatched_and_one_that_is_back_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, (a, b) = resumed(two_parked(**DYNAMIC), **DYNAMIC)
        desk.wait(1.0)
        assert desk.batches == []
        desk.returned(b)
        assert desk.batches == [["b/0"]]
        desk.returned(a)
        assert desk.batches == [["b/0"], ["a/0"]]

    load = Scheduler.load

    def queued(self: Scheduler, state: SchedulerState, now: float) -> list[Member]:
        members = load(self, state, now)
        for member in members:
            self.returned(member, now)
        return members

    assert_needed(check, monkeypatch, (Scheduler, "load", queued))


def test_rounds_of_a_fixed_order_wait_for_whoever_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, (a, b) = resumed(two_parked(**DETERMINISTIC), **DETERMINISTIC)
        desk.returned(b)
        desk.wait(100_000.0)
        assert desk.batches == []
        assert desk.commands(EndSession) == []
        desk.returned(a)
        assert desk.batches == [["a/0", "b/0"]]  # in the order of the first attempt

    def impatient(_self: Dispatcher, members: Any) -> list[Group]:
        return [m.groups[0] for m in members if m.groups[0].waiting and m.is_present]

    assert_needed(
        check,
        monkeypatch,
        (Dispatcher, "_may_start", lambda *_: True),
        (Dispatcher, "_alternate", impatient),
    )


def test_the_turn_of_two_groups_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk()
        a = desk.enter("a", 1, 1)
        desk.send(a.groups[0])  # served a second time: it is the turn of group 1
        desk.rest()
        for group in a.groups:
            if group.waiting is None:
                desk.send(group)
        served = len(desk.batches)
        desk, (a,) = resumed(saved(desk))
        desk.returned(a)
        assert desk.batches[0] == [f"a/{served % 2}"]
        assert served % 2 == 1

    order = property(lambda self: (self._round, self._members_ever), lambda *_: None)
    assert_needed(check, monkeypatch, (Dispatcher, "order", order))


def test_others_go_on_without_a_member_that_is_awaited() -> None:
    desk, (_, b) = resumed(two_parked(**DYNAMIC))
    desk.returned(b)
    for _ in range(3):
        desk.send(b.groups[0])
    assert desk.batches == [["b/0"]] * 4


def test_a_member_that_does_not_come_back_in_time_is_given_up_and_its_request_serves_as_bootstrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        settings = {**DYNAMIC, "first_step_timeout_s": 50.0}
        desk, (a, b) = resumed(two_parked(**settings), **settings)
        desk.returned(b)
        desk.wait(49.0)
        desk.send(b.groups[0])
        assert desk.commands(EndSession) == []
        desk.wait(2.0)
        assert [end.member for end in desk.commands(EndSession)] == [a]
        desk.send(b.groups[0])
        bootstraps = effects_of(desk.commands(Infer), Bootstrap)
        assert [e.cells.tolist() for e in bootstraps] == [[0]]
        assert desk.ledger.discarded_total == 0
        assert desk.ledger.conservation_error == 0

    first_step_left_s = Timeouts.first_step_left_s

    def whoever(self: Timeouts, member: Member, now: float, *, is_ordered: bool) -> float:
        if member.entered:
            return float("inf")
        return first_step_left_s(self, member, now, is_ordered=is_ordered)

    assert_needed(check, monkeypatch, (Timeouts, "first_step_left_s", whoever))


def test_the_parked_request_of_a_member_that_is_awaited_serves_as_bootstrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four frames are wanted, three are there; the fourth is b's, a is still away."""

    def check() -> None:
        desk, (a, b) = resumed(two_parked(**DYNAMIC), target=4, **DYNAMIC)
        desk.returned(b)
        desk.send(b.groups[0])
        (learn,) = desk.commands(Learn)
        own = [
            e
            for e in learn.effects
            if isinstance(e, Bootstrap) and e.request is a.groups[0].waiting
        ]
        assert [(e.rows.tolist(), e.cells.tolist()) for e in own] == [([0], [0])]
        assert len(learn.cells) == 5

    bootstrap = Frames.bootstrap

    def present_only(self: Frames, group: Group) -> None:
        if group.member.is_present:
            bootstrap(self, group)

    assert_needed(check, monkeypatch, (Frames, "bootstrap", present_only))


def test_min_clients_gates_the_first_round_of_a_resumed_attempt_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        settings = {**DYNAMIC, "min_clients": 2}
        desk, (a, b) = resumed(two_parked(**settings), **settings)
        desk.returned(a)
        assert desk.batches == []
        desk.returned(b)
        assert desk.batches == [["a/0", "b/0"]]

    def with_absent(self: Dispatcher, members: Any) -> bool:
        return sum(member.entered for member in members) >= self._config.min_clients

    assert_needed(check, monkeypatch, (Dispatcher, "_may_start", with_absent))


def test_an_iteration_that_was_complete_is_learnt_from_before_anybody_is_back() -> None:
    desk = Desk(target=1)
    desk.enter("a", 1)
    desk.rest()
    desk.send(desk.scheduler.members[0].groups[0])
    desk, (_,) = resumed(saved(desk), target=1)
    assert desk.learns == [[0]]


def test_who_was_late_is_known_to_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        for _ in range(3):
            for _ in range(20):
                desk.wait(0.05)
                desk.send(a.groups[0])
            desk.send(b.groups[0])
        assert "b/0 is late" in desk.notices[-1]
        desk.rest()
        desk.send(a.groups[0])
        desk.send(b.groups[0])
        before = desk.scheduler._quorum
        ours = [before.patience_s(m.groups[0]) for m in (a, b)]
        desk, members = resumed(saved(desk), **DYNAMIC)
        after = desk.scheduler._quorum
        assert [m.groups[0] in after for m in members] == [True, False]
        assert [after.patience_s(m.groups[0]) for m in members] == ours

    def anew(self: Quorum[Group], group: Group, session: Any, _turns: Any) -> None:
        self.enter(group, session)

    assert_needed(check, monkeypatch, (Quorum, "enter_again", anew))


def test_loaded_frames_are_counted_beside_those_of_this_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 7: reserved in this attempt and loaded = stored and given up and reserved."""

    def check() -> None:
        desk, (a, b) = resumed(two_parked(**DYNAMIC), **DYNAMIC)
        assert desk.ledger.num_complete == 3
        assert desk.ledger.conservation_error == 0
        desk.returned(a)
        desk.returned(b)
        desk.send(a.groups[0])
        desk.leave(b)
        assert desk.given_up(Discard.LOST) == 2
        assert desk.ledger.num_complete == 4
        assert desk.ledger.conservation_error == 0

    load = FrameLedger.load

    def uncounted(self: FrameLedger, books: Any) -> None:
        load(self, books)
        self.loaded_total = 0

    assert_needed(check, monkeypatch, (FrameLedger, "load", uncounted))


def test_frames_of_sessions_that_were_not_saved_have_no_successor_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slots keep their numbers; whoever comes to new ones continues nobody's frames."""

    def check() -> None:
        desk = Desk(**DYNAMIC)
        a, b = desk.enter("a", 1, 1), desk.enter("b", 1)
        desk.rest()
        desk.send(b.groups[0])
        desk.send(a.groups[0])
        desk.wait(2.0)
        state = deepcopy(desk.scheduler.state())
        desk, (b,) = resumed(state, **DYNAMIC)
        tails = desk.ledger._slots.tail[:3]
        assert tails.tolist() == [NO_CELL, NO_CELL, 1]
        assert b.groups[0].start == 2
        assert desk.join("a", 1, 1).groups[0].start == 3

    forget_tails = FrameLedger.forget_tails

    def of_slices(self: FrameLedger, slots: slice | np.ndarray) -> None:
        if isinstance(slots, slice):
            forget_tails(self, slots)

    assert_needed(check, monkeypatch, (FrameLedger, "forget_tails", of_slices))


# --- fresh episodes --------------------------------------------------------------------------


def test_fresh_episodes_leave_a_gap_behind_the_frames_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slot 0 has frame 0 and a parked request; a first frame numbered 1 would be its successor."""

    def check() -> None:
        desk, (a, _) = resumed(two_parked(**DYNAMIC), **DYNAMIC)
        desk.restart(a)
        desk.send(a.groups[0], has_feedback=False)
        (batch,) = desk.commands(Infer)
        (bootstrap,) = effects_of([batch], Bootstrap)
        assert bootstrap.cells.tolist() == [0]
        assert batch.ordinals.tolist() == [2]

    restart = FrameLedger.restart

    def seamless(self: FrameLedger, span: Span) -> None:
        restart(self, span)
        self._slots.ordinal[span.slots] -= 1

    assert_needed(check, monkeypatch, (FrameLedger, "restart", seamless))


def test_fresh_episodes_draw_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk, (_, b) = resumed(two_parked(**DYNAMIC), **DYNAMIC)
        promised = desk.scheduler.next_episode(b)
        desk.restart(b)
        desk.send(b.groups[0], has_feedback=False)
        (batch,) = desk.commands(Infer)
        assert batch.episodes.tolist() == [promised] * 2 == [1, 1]
        assert batch.steps.tolist() == [0, 0]

    assert_needed(check, monkeypatch, (Scheduler, "next_episode", lambda *_: 0))


def test_a_member_that_restarts_must_send_its_first_step_in_time() -> None:
    desk, (a, b) = resumed(two_parked(**DETERMINISTIC), **DETERMINISTIC)
    desk.returned(b)
    desk.wait(1000.0)
    desk.restart(a)
    desk.wait(299.0)
    assert desk.commands(EndSession) == []
    desk.wait(2.0)
    assert [end.member for end in desk.commands(EndSession)] == [a]


def test_a_rest_saves_a_member_that_is_still_awaited_once_more() -> None:
    first = two_parked(**DYNAMIC)
    desk, (_, b) = resumed(first, **DYNAMIC)
    desk.returned(b)
    desk.rest()
    desk.send(b.groups[0])
    again = saved(desk)
    assert [member.name for member in again.members] == ["a", "b"]
    (then,), (now,) = first.members[0].groups, again.members[0].groups
    assert (now.number, now.start, now.turns) == (then.number, then.start, then.turns)
    assert now.asks.tolist() == then.asks.tolist()
    assert again.books.cells.tolist() == [0, 1, 2, 3, 4]  # three loaded, two of b's
    assert again.books.tails.tolist() == [0, 3, 4]


def test_a_silent_request_that_was_held_is_answered_when_its_client_is_back() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 2)
    desk.rest()
    desk.send(a.groups[0], "00")
    desk, (a,) = resumed(saved(desk), **DYNAMIC)
    assert desk.silent_answers == []
    desk.returned(a)
    assert desk.silent_answers == ["a/0"]


def test_an_undone_learn_step_leaves_its_frames_to_be_saved() -> None:
    desk = Desk(target=2)
    a = desk.enter("a", 2)
    desk.send(a.groups[0])
    assert desk.learns == [[0, 1]]
    desk.rest()
    desk.scheduler.learn_aborted(desk.now)
    desk.advance()
    assert len(desk.commands(Rested)) == 1
    desk, (_,) = resumed(saved(desk), target=2)
    assert desk.learns == [[0, 1]]


def test_a_learn_step_that_was_undone_is_due_again_without_a_rest() -> None:
    desk = Desk(target=2)
    a = desk.enter("a", 2)
    desk.send(a.groups[0])
    desk.scheduler.learn_aborted(desk.now)
    desk.advance()
    assert desk.learns == [[0, 1]] * 2
