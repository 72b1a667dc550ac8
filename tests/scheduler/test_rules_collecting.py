"""Rules 1 to 3: when collection is open, when a learn step is due, who is not waited for.

Each test is a scenario that holds, and fails once the clause it is about is taken out. Times
are seconds since the start; turns in these scenarios last 10 ms unless one is late.
"""

from collections.abc import Callable

import numpy as np
import pytest

from royale_server.scheduler import (
    Bridge,
    Discard,
    Dispatch,
    FrameLedger,
    Infer,
    Notice,
    Role,
    Scheduler,
)
from royale_server.scheduler.closing import Closing
from royale_server.scheduler.collection import Collection
from royale_server.scheduler.dispatcher import Dispatcher
from tests.scheduler.clauses import assert_needed, assert_no_fault, nothing
from tests.scheduler.desk import Desk, effects_of
from tests.scheduler.plans import Plan

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}


# --- rule 1: open ----------------------------------------------------------------------------


def a_third_client_is_parked_once_two_frames_are_under_way() -> None:
    desk = Desk(target=2, **DYNAMIC)
    desk.enter("a", 1)
    desk.enter("b", 1)
    third = desk.enter("c", 1)
    assert desk.batches == [["a/0"], ["b/0"]]
    assert desk.is_waiting(third.groups[0])


def test_a_reserved_cell_counts_as_a_frame_that_is_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_open(self: Collection, *, complete: int, reserved: int, stored_total: int) -> bool:
        return complete < self.target

    check = a_third_client_is_parked_once_two_frames_are_under_way
    assert_needed(check, monkeypatch, (Collection, "is_open", is_open))


def test_every_frame_of_the_batch_that_overshoots_is_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=3, **DYNAMIC)
        clients = [desk.enter(name, 2) for name in "ab"]
        for client in clients:
            desk.send(client.groups[0])
        assert desk.learns == [[0, 1, 2, 3]]  # two batches of two rows: four frames, not three

    complete_cells = FrameLedger.complete_cells
    cropped = lambda self: complete_cells(self)[:3]  # noqa: E731
    assert_needed(check, monkeypatch, (FrameLedger, "complete_cells", cropped))


def a_lost_frame_is_collected_anew() -> None:
    desk = Desk(target=2, max_slots=2, **DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    desk.send(a.groups[0])
    assert not desk.scheduler.is_open
    desk.leave(b)
    assert desk.batches[-1] == ["a/0"]
    for _ in range(10):  # storage is for target + max slots = 4 frames: each loss frees its cell
        desk.send(a.groups[0])
        assert desk.learns[-1] == sorted(desk.learns[-1])
        desk.learned()
        desk.leave(desk.enter("b", 1))
        desk.send(a.groups[0])
    assert desk.given_up(Discard.LOST) == 11


def test_giving_up_a_cell_reopens_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = FrameLedger.give_up

    def keep_counting(self: FrameLedger, cells: np.ndarray, reason: Discard) -> object:
        given_up = give_up(self, cells, reason)
        self.num_reserved += len(cells)
        return given_up

    check = a_lost_frame_is_collected_anew
    assert_needed(check, monkeypatch, (FrameLedger, "give_up", keep_counting))


def test_giving_up_a_cell_frees_its_storage_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=2, max_slots=2, **DYNAMIC)
        desk.enter("a", 1)
        for _ in range(10):  # ten frames pass through four cells within one iteration
            desk.leave(desk.enter("b", 1))
        assert desk.ledger.conservation_error == 0

    give_up = FrameLedger.give_up

    def keep_storage(self: FrameLedger, cells: np.ndarray, reason: Discard) -> object:
        given_up = give_up(self, cells, reason)
        self._cells.reserve(cells, self._cells.slots_of(cells), self.version)
        return given_up

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", keep_storage))


def test_parked_requests_are_served_oldest_first_when_collection_reopens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=3, max_infer_batch_size=1, **DYNAMIC)
        a, b, c = (desk.enter(name, 1) for name in "abc")
        desk.send(c.groups[0])
        desk.send(b.groups[0])
        desk.leave(a)  # one of three frames is lost: room for one request
        assert desk.batches[3:] == [["c/0"]]

    dynamic = Dispatcher._dynamic
    newest = lambda self, queued, n, now: dynamic(self, list(queued)[::-1], n, now)  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "_dynamic", newest))


# --- rule 2: learn ---------------------------------------------------------------------------


def test_a_learn_step_waits_for_the_last_reserved_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=2, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0])
        assert desk.learns == []
        desk.send(b.groups[0])
        assert desk.learns == [[0, 1]]

    def is_learn_due(self: Collection, *, is_open: bool, reserved: int, stored_total: int) -> bool:
        return not self.learning and not is_open

    assert_needed(check, monkeypatch, (Collection, "is_learn_due", is_learn_due))


def test_a_request_with_a_learner_row_is_parked_while_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always(self: Scheduler, now: float, *, is_open: bool) -> object:
        waiting = self._waiting
        if not waiting.queued:
            return None
        members = self._roster.trainers
        return self.dispatcher.choose(members, waiting.queued, waiting.num_slots, now)

    check = a_third_client_is_parked_once_two_frames_are_under_way
    assert_needed(check, monkeypatch, (Scheduler, "_train_batch", always))


def test_a_request_without_learner_rows_is_served_while_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2, **DYNAMIC)
        a = desk.enter("a", 1)
        desk.enter("b", 1)
        desk.send(a.groups[0], bad_reward="1")  # a's frame is given up, its episode not trained on
        desk.enter("c", 1)  # b and c: two frames on their way, closed
        desk.send(a.groups[0])
        assert desk.batches[-2:] == [["c/0"], ["a/0"]]
        assert not desk.scheduler.is_open

    train_batch = Scheduler._train_batch

    def only_open(self: Scheduler, now: float, *, is_open: bool) -> object:
        return train_batch(self, now, is_open=True) if is_open else None

    assert_needed(check, monkeypatch, (Scheduler, "_train_batch", only_open))


def test_a_request_in_which_no_row_asks_is_answered_at_once_outside_any_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2, answers=False)
        a = desk.enter("a", 1)
        desk.enter("b", 1)
        desk.answer()  # a owes, b waits for the round in which a takes part
        desk.send(a.groups[0], "0")
        assert desk.silent_answers == ["a/0"]
        assert desk.batches == [["a/0"]]

    assert_needed(check, monkeypatch, (Scheduler, "_answer_silent", nothing))


@pytest.mark.parametrize("deterministic", [False, True])
def test_open_silent_rows_of_parked_requests_are_cut_when_only_they_keep_a_learn_step_waiting(
    monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    def check() -> None:
        desk = Desk(target=3, deterministic=deterministic)
        a = desk.enter("a", 3)
        desk.send(a.groups[0], "110")
        assert desk.given_up(Discard.CUT) == 1
        assert len(desk.batches) == 2  # two frames stored, one wanted: served again at once

    assert_needed(check, monkeypatch, (Closing, "cut_silent_rows", nothing))


def test_without_cutting_silent_rows_runs_of_turn_taking_seats_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        world = assert_no_fault(Plan(sessions=((3,), (3, 2)), mode="turn", target=20, max_learns=6))
        assert len(world.learned) == 6

    assert_needed(check, monkeypatch, (Closing, "cut_silent_rows", nothing))


def test_collection_reopens_for_the_parked_requests_when_late_cells_are_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2, **DYNAMIC)
        a = desk.enter("a", 1)
        desk.enter("b", 2)  # overshoots: three frames under way
        desk.enter("c", 1)
        desk.wait(0.01)
        desk.send(a.groups[0])  # stored; b alone is late
        desk.wait(5.0)
        # b's two cells are revoked at 1.0; one of two frames is stored: open again.
        assert desk.given_up(Discard.LATE) == 2
        assert desk.batches[-1] == ["c/0", "a/0"]

    assert_needed(check, monkeypatch, (Closing, "revoke_late", nothing))


def test_what_a_revocation_leaves_closed_is_settled_without_a_further_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=2, **DYNAMIC)
        b = desk.enter("b", 1)
        a = desk.enter("a", 3)  # one and three: two more than wanted
        desk.wait(0.01)
        desk.send(a.groups[0], "110")  # two stored, one silent row open, parked
        desk.wait(5.0)
        # b's cell goes at 1.0 and leaves two stored and one silent row: closed still.
        assert desk.given_up(Discard.LATE) == 1
        assert desk.given_up(Discard.CUT) == 1
        assert desk.learns == [[1, 2]]
        assert desk.times(Notice, "b/0 kept") == [pytest.approx(1.0)]
        assert b.groups[0].reserved == 0

    def settle(self: Closing, now: float) -> None:
        self._collection.note_closed(now)
        if self.owing:
            self.revoke_late(now)
        elif self._ledger.num_reserved:
            self.cut_silent_rows()

    assert_needed(check, monkeypatch, (Closing, "settle", settle))


def test_nothing_is_inferred_while_a_learn_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=1)
        a = desk.enter("a", 1)
        desk.send(a.groups[0])
        assert len(desk.learns) == 1
        desk.enter("b", 1)
        desk.enter("e", 1, role=Role.EVAL)
        assert desk.batches == [["a/0"]]
        desk.learned()
        assert len(desk.batches) > 1

    idle = property(lambda self: self._in_flight is None)
    assert_needed(check, monkeypatch, (Scheduler, "is_idle", idle))


# --- rule 3: revoke --------------------------------------------------------------------------


def a_late_group_of_the_quorum_is_given_the_close_wait() -> Desk:
    desk = Desk(target=2, **DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    desk.wait(0.01)
    desk.send(a.groups[0])
    desk.wait(3.0)  # closed at 0: b's patience of 3 × 10 ms is long over
    assert desk.times(Notice, "b/0 kept a learn step waiting") == [pytest.approx(1.0)]
    assert desk.given_up(Discard.LATE) == 1
    desk.send(b.groups[0])
    return desk


def test_a_late_group_keeps_a_learn_step_waiting_no_longer_than_the_close_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check: Callable[[], object] = a_late_group_of_the_quorum_is_given_the_close_wait
    assert_needed(check, monkeypatch, (Closing, "revoke_late", nothing))


def test_a_group_that_is_not_late_is_waited_for_beyond_the_close_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=4, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.wait(0.5)
        desk.send(a.groups[0])  # a turn of 0.5 s: b has 3 × 0.5 s
        desk.send(b.groups[0])  # closed at 0.5 with a's and b's second frames under way
        desk.wait(0.5)
        desk.send(a.groups[0])
        desk.wait(5.0)
        assert desk.times(Notice, "b/0 kept") == [pytest.approx(0.5 + 3 * 0.5)]

    late_at = lambda self, group: group.owes_since  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "late_at", late_at))


def test_a_group_outside_the_quorum_is_given_a_twentieth_of_the_collection_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=6, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.wait(0.99)
        for _ in range(2):
            desk.send(b.groups[0])
            desk.wait(1.0)
        desk.send(b.groups[0])  # its third late turn; the sixth frame of six is asked for: closed
        desk.send(a.groups[0])
        desk.wait(3.0)
        assert desk.times(Notice, "b/0 is late: no longer waited for") == [pytest.approx(3.0)]
        assert desk.times(Notice, "b/0 kept") == [pytest.approx(3.0 + 0.05 * 3.0)]

    revoke_at = Collection.revoke_at
    one_tier = lambda self, *, in_quorum: revoke_at(self, in_quorum=True)  # noqa: E731
    assert_needed(check, monkeypatch, (Collection, "revoke_at", one_tier))


def test_the_wait_is_counted_from_the_first_closing_of_the_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=3, **DYNAMIC)
        a, _b, c = (desk.enter(name, 1) for name in "abc")
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.wait(0.49)
        desk.leave(c)  # lost: open again, a is served, and closed for the second time at 0.5
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.wait(3.0)
        assert desk.times(Notice, "b/0 kept") == [pytest.approx(1.0)]

    def note_closed(self: Collection, now: float) -> None:
        self.first_closed_at = now

    assert_needed(check, monkeypatch, (Collection, "note_closed", note_closed))


def test_cells_are_revoked_only_when_another_session_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=3, **DYNAMIC)
        a = desk.enter("a", 1, 1)
        desk.enter("b", 1)
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.wait(1.0)  # b is revoked for a's sake; a/0 is served and owes the third frame
        assert desk.given_up(Discard.LATE) == 1
        desk.send(a.groups[0])
        desk.wait(5.0)  # a/1 is late too, but only its own session waits for it
        assert desk.given_up(Discard.LATE) == 1
        assert desk.ledger.num_reserved == 1

    def revoke_all(self: Closing, now: float) -> None:
        for group in list(self.owing):
            in_quorum = self._dispatcher.waits_for(group)
            due = max(
                self._dispatcher.late_at(group), self._collection.revoke_at(in_quorum=in_quorum)
            )
            if now >= due:
                self.revoke(group)
            else:
                self._outbox.wake(due)

    assert_needed(check, monkeypatch, (Closing, "revoke_late", revoke_all))


def test_nothing_is_revoked_in_a_deterministic_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(target=2, deterministic=True, min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.wait(30.0)
        desk.send(b.groups[0])
        assert desk.ledger.discarded_total == 0
        assert desk.learns == [[0, 1]]

    settle = Closing.settle

    def revoking(self: Closing, now: float) -> None:
        settle(self, now)
        if self.owing:
            self.revoke_late(now)

    assert_needed(check, monkeypatch, (Closing, "settle", revoking))


def test_the_observation_of_a_late_message_is_used_like_any_other() -> None:
    desk = a_late_group_of_the_quorum_is_given_the_close_wait()
    # a was served when b's cell was revoked: one frame stored, one under way, two wanted. So
    # b's late message is parked, not dropped, and served in the next iteration.
    assert desk.batches[-1] == ["a/0"]
    assert [m.name for m in desk.scheduler.members if desk.is_waiting(m.groups[0])] == ["b"]
    desk.send(desk.scheduler.members[0].groups[0])
    assert desk.learns == [[0, 2]]
    desk.learned()
    assert sorted(desk.batches[-1]) == ["a/0", "b/0"]


def test_the_frame_before_a_revoked_one_takes_the_value_inferred_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(target=3, **DYNAMIC)
        a, b = desk.enter("a", 1), desk.enter("b", 1)  # cells 0 and 1
        desk.wait(0.01)
        desk.send(b.groups[0])  # b's second frame, cell 2
        desk.send(a.groups[0])
        desk.wait(2.0)
        assert desk.given_up(Discard.LATE) == 1
        bridges = effects_of(desk.commands(Infer), Bridge)
        assert [(x.cells.tolist(), x.successors.tolist()) for x in bridges] == [([1], [2])]

    give_up = FrameLedger.give_up

    def forgetful(self: FrameLedger, cells: np.ndarray, reason: Discard) -> object:
        none = np.zeros(0, np.int64)
        give_up(self, cells, reason)
        return none, none

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", forgetful))


def test_without_bridges_learned_frames_miss_their_successors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(sessions=((2,), (2,), (2,)), target=33, slow={0: 20.0}, duration_s=6.0)
    give_up = FrameLedger.give_up

    def forgetful(self: FrameLedger, cells: np.ndarray, reason: Discard) -> object:
        none = np.zeros(0, np.int64)
        give_up(self, cells, reason)
        return none, none

    def check() -> None:
        assert_no_fault(plan)

    assert_needed(check, monkeypatch, (FrameLedger, "give_up", forgetful))
