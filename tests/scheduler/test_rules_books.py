"""Rules 6 to 8: which frames are trained on, that none is lost, what a last frame is worth.

Each test is a scenario that holds, and fails once the clause it is about is taken out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_server.scheduler import (
    Bootstrap,
    Bridge,
    Command,
    Discard,
    Dispatch,
    FrameLedger,
    Group,
    Infer,
    Learn,
    Record,
    Span,
)
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.slots import CELL_GIVEN_UP
from tests.scheduler.clauses import assert_needed, assert_no_fault, nothing
from tests.scheduler.desk import Desk, effects_of
from tests.scheduler.plans import Plan

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}
NO_CELLS = np.zeros(0, np.int64)

give_up = FrameLedger.give_up
receive = FrameLedger.receive


def bootstraps(desk: Desk) -> list[tuple[str, int, list[int], list[int]]]:
    """Who lent an observation: client, request number, rows, cells."""
    sent = effects_of([c for _, c in desk.log if isinstance(c, (Infer, Learn))], Bootstrap)
    return [(who(desk, e), e.request.number, e.rows.tolist(), e.cells.tolist()) for e in sent]


def who(desk: Desk, effect: Bootstrap) -> str:
    return next(name for name, request in desk.sent if request is effect.request)


# --- rule 6: tags and reasons ----------------------------------------------------------------


def a_revoked_group_comes_late() -> tuple[Desk, Any]:
    desk = Desk(target=3, **DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 2)  # closed: three frames under way
    desk.wait(0.01)
    desk.send(a.groups[0])
    desk.wait(1.0)  # b's two frames are revoked for a's sake
    return desk, b


def test_a_revoked_frame_is_counted_once_and_not_again_when_it_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, b = a_revoked_group_comes_late()
        assert desk.given_up(Discard.LATE) == 2
        desk.send(b.groups[0])
        assert desk.given_up(Discard.LATE) == 2
        assert desk.ledger.discarded_total == 2
        assert desk.ledger.no_state_total == 0
        assert desk.ledger.conservation_error == 0

    def counting(self: FrameLedger, span: Span, *args: Any, **kwargs: Any) -> Any:
        answered = self._slots.answered[span.slots]
        self._given_up[Discard.LATE] += int(np.count_nonzero(answered == CELL_GIVEN_UP))
        return receive(self, span, *args, **kwargs)

    assert_needed(check, monkeypatch, (FrameLedger, "receive", counting))


def test_counting_late_frames_on_arrival_as_well_breaks_the_books(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(sessions=((2,), (2,), (2,)), target=33, slow={0: 20.0}, duration_s=6.0)

    def counting(self: FrameLedger, span: Span, *args: Any, **kwargs: Any) -> Any:
        answered = self._slots.answered[span.slots]
        self._given_up[Discard.LATE] += int(np.count_nonzero(answered == CELL_GIVEN_UP))
        return receive(self, span, *args, **kwargs)

    def check() -> None:
        assert_no_fault(plan)

    assert_needed(check, monkeypatch, (FrameLedger, "receive", counting))


def test_a_revoked_frame_is_not_counted_again_when_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk, b = a_revoked_group_comes_late()
        desk.leave(b)
        assert desk.given_up(Discard.LATE) == 2
        assert desk.given_up(Discard.LOST) == 0

    def keep_open(self: FrameLedger, cells: np.ndarray, reason: Discard) -> Any:
        slots = self._cells.slots_of(cells)
        result = give_up(self, cells, reason)
        self._slots.open[slots] = cells
        return result

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", keep_open))


def test_a_frame_of_another_version_is_never_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_refused() -> bool:
        ledger = FrameLedger(capacity=4)
        ledger.add_slots(1)
        ledger.reserve(np.array([0]))
        ledger.version += 1  # as if a learn step had not waited
        asks, ended = np.array([True]), np.array([False])
        try:
            ledger.receive(Span(0, 1), asks, ended, has_feedback=True)
        except AssertionError as error:
            return "outlived its policy version" in str(error)
        return False

    def check() -> None:
        assert is_refused()

    always = lambda self, cells: True  # noqa: E731
    assert_needed(check, monkeypatch, (FrameLedger, "_is_current", always))


def test_a_learn_step_that_leaves_a_cell_reserved_is_refused() -> None:
    ledger = FrameLedger(capacity=4)
    ledger.add_slots(1)
    ledger.reserve(np.array([0]))
    with pytest.raises(AssertionError, match="1 cells reserved across a learn step"):
        ledger.start_version(1)


@pytest.mark.parametrize("bad", ["bad_reward", "bad_observation"])
def test_a_frame_that_is_not_finite_is_given_up_and_the_rest_of_its_episode_not_trained_on(
    monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)  # frames 0 and 1 under way
        desk.send(a.groups[0], **{bad: "10"})
        assert desk.given_up(Discard.INVALID) == 1
        assert desk.ledger.stored_total == 1
        desk.send(a.groups[0])  # row 0 goes on without cells
        desk.send(a.groups[0], ended="10")  # its episode ends: the next one is trained on again
        desk.send(a.groups[0])
        assert [b.items[0].learner.tolist() for b in desk.commands(Infer)] == [
            [True, True],
            [False, True],
            [False, True],
            [True, True],
            [True, True],
        ]
        assert desk.ledger.without_cell_total == 2
        assert desk.ledger.stored_total == 1 + 1 + 1 + 2

    assert_needed(check, monkeypatch, (Frames, "_reject_invalid", nothing))


def test_a_new_episode_that_begins_with_no_number_is_not_trained_on_but_the_ended_one_is() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 1)
    desk.send(a.groups[0], ended="1", bad_observation="1")
    assert desk.ledger.stored_total == 1
    assert desk.ledger.discarded_total == 0
    assert desk.commands(Infer)[-1].items[0].learner.tolist() == [False]
    desk.send(a.groups[0], ended="1")
    assert desk.commands(Infer)[-1].items[0].learner.tolist() == [True]


def test_a_silent_row_s_reward_that_is_not_finite_gives_its_open_frame_up() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 2)
    desk.send(a.groups[0], "01", bad_reward="10")
    assert desk.given_up(Discard.INVALID) == 1
    desk.send(a.groups[0])
    assert desk.commands(Infer)[-1].items[0].learner.tolist() == [False, True]


# --- rule 7: conservation --------------------------------------------------------------------


def test_the_equation_notices_a_frame_that_is_given_up_without_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        desk.leave(desk.enter("a", 2))
        assert desk.ledger.conservation_error == 0

    def without_reason(self: FrameLedger, cells: np.ndarray, reason: Discard) -> Any:
        result = give_up(self, cells, reason)
        self._given_up[reason] -= 1
        return result

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", without_reason))


def test_frames_without_state_stand_beside_the_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        again = desk.join("again", 2)
        desk.send(again.groups[0], has_feedback=True)  # outcomes of actions of an earlier session
        assert desk.ledger.no_state_total == 2
        assert desk.ledger.discarded_total == 0
        assert desk.ledger.stored_total == 0
        assert desk.ledger.conservation_error == 0

    def counting(self: FrameLedger, *args: Any, **kwargs: Any) -> Any:
        before = self.no_state_total
        result = receive(self, *args, **kwargs)
        self._given_up[Discard.LOST] += self.no_state_total - before
        return result

    assert_needed(check, monkeypatch, (FrameLedger, "receive", counting))


def test_a_row_that_is_silent_at_first_owes_no_frame_of_an_unknown_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.join("a", 2)
        desk.send(a.groups[0], "10")  # the second seat is not in play yet
        desk.send(a.groups[0], "11")
        assert desk.ledger.no_state_total == 0

    count_others = FrameLedger._count_others

    def forgetful(self: FrameLedger, answered: Any, over: Any, *, has_feedback: bool) -> None:
        if has_feedback:
            count_others(self, answered, over, has_feedback=True)

    assert_needed(check, monkeypatch, (FrameLedger, "_count_others", forgetful))


# --- rule 8: bootstraps ----------------------------------------------------------------------


def test_a_parked_observation_is_the_successor_of_its_slot_s_last_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2)
        a = desk.enter("a", 2)
        desk.send(a.groups[0])
        assert bootstraps(desk) == [("a", 2, [0, 1], [0, 1])]

    assert_needed(check, monkeypatch, (Frames, "bootstrap", nothing))


def test_without_bootstraps_learned_frames_miss_their_successors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        assert_no_fault(Plan(target=20, max_learns=3))

    assert_needed(check, monkeypatch, (Frames, "bootstrap", nothing))


def test_a_parked_observation_of_a_new_episode_is_no_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2)
        a = desk.enter("a", 2)
        desk.send(a.groups[0], ended="10")
        assert bootstraps(desk) == [("a", 2, [1], [1])]

    receive_block = FrameLedger.receive_block

    def never_ended(self: FrameLedger, span: Span, _ended: Any) -> Any:
        return receive_block(self, span, None)

    assert_needed(check, monkeypatch, (FrameLedger, "receive_block", never_ended))


def test_the_parked_observation_of_an_ended_session_is_kept_for_the_learn_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0])
        desk.leave(a)
        desk.send(b.groups[0])
        assert desk.learns == [[0, 1]]
        assert bootstraps(desk) == [("a", 2, [0], [0]), ("b", 2, [0], [1])]

    bootstrap = Frames.bootstrap

    def living(self: Frames, group: Group) -> None:
        if not group.member.ended:
            bootstrap(self, group)

    assert_needed(check, monkeypatch, (Frames, "bootstrap", living))


def test_a_session_that_ends_during_a_learn_step_lends_nothing_to_the_next_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last frame was learned from, and its cell is another frame's by then."""

    def check() -> None:
        desk = Desk(target=1)
        a = desk.enter("a", 1)
        desk.send(a.groups[0])
        assert desk.learns == [[0]]
        desk.leave(a)
        desk.learned()
        desk.enter("b", 1)
        assert desk.commands(Infer)[-1].effects == ()
        assert bootstraps(desk) == [("a", 2, [0], [0])]  # with the learn step itself

    forget_tails = FrameLedger.forget_tails

    def of_groups_only(self: FrameLedger, slots: slice) -> None:
        if slots != slice(None):
            forget_tails(self, slots)

    assert_needed(check, monkeypatch, (FrameLedger, "forget_tails", of_groups_only))


def test_an_observation_after_a_hole_is_no_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=3, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)  # cells 0, 1
        desk.wait(0.01)
        desk.send(b.groups[0])  # cell 2, b's second frame
        desk.send(a.groups[0])
        desk.wait(1.01)  # cell 2 is revoked, a's second frame takes the last place (cell 3)
        desk.send(b.groups[0])  # two observations after frame 1
        desk.send(a.groups[0])
        assert desk.learns == [[0, 1, 3]]
        assert bootstraps(desk) == [("a", 3, [0], [3])]

    def keep_tail(self: FrameLedger, cells: np.ndarray, reason: Discard) -> Any:
        slots = self._cells.slots_of(cells)
        tails = self._slots.tail[slots].copy()
        result = give_up(self, cells, reason)
        self._slots.tail[slots] = tails
        return result

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", keep_tail))


def test_a_session_lost_in_the_middle_lends_its_last_frame_the_value_inferred_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 1)
        desk.send(a.groups[0])  # frame 0 stored, frame 1 under way
        desk.leave(a)
        desk.enter("b", 1)
        bridges = effects_of(desk.commands(Infer), Bridge)
        assert [(x.cells.tolist(), x.successors.tolist()) for x in bridges] == [([0], [1])]

    def forgetful(self: FrameLedger, cells: np.ndarray, reason: Discard) -> Any:
        give_up(self, cells, reason)
        return NO_CELLS, NO_CELLS

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", forgetful))


def test_rewards_of_a_silent_row_go_to_the_action_that_is_still_open() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 2)
    desk.send(a.groups[0], "10")
    desk.send(a.groups[0], "11")
    records = effects_of(desk.commands(Infer), Record)
    assert [(r.rows.tolist(), r.cells.tolist(), r.finished.tolist()) for r in records] == [
        ([0, 1], [0, 1], [True, False]),
        ([0, 1], [2, 1], [True, True]),
    ]


def test_effects_travel_in_order_with_the_next_batch_or_learn_step_and_only_once() -> None:
    desk = Desk(target=2, **DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    desk.send(a.groups[0])
    desk.send(b.groups[0])
    carriers: list[Command] = [c for _, c in desk.log if isinstance(c, (Infer, Learn))]
    assert [[type(e) for e in c.effects] for c in carriers if isinstance(c, (Infer, Learn))] == [
        [],
        [],
        [Record, Record, Bootstrap, Bootstrap],
    ]
