"""Rules 4 and 5: who is waited for, how batches are gathered, what a fixed order means.

Each test is a scenario that holds, and fails once the clause it is about is taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest

from royale_server.scheduler import (
    Dispatch,
    EndRun,
    EndSession,
    Group,
    Infer,
    Member,
    Notice,
    Request,
    Role,
    Scheduler,
    SchedulerConfig,
)
from royale_server.scheduler import quorum as quorum_module
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.timeouts import Timeouts
from royale_server.scheduler.waiting import Waiting
from tests.scheduler.clauses import assert_needed, nothing
from tests.scheduler.desk import Desk
from tests.scheduler.plans import Plan
from tests.scheduler.world import World

DYNAMIC = {"dispatch": Dispatch.DYNAMIC}


def in_step(desk: Desk, *clients: Member, rounds: int = 3, turn_s: float = 0.01) -> None:
    """All these clients take turns of the same length."""
    for _ in range(rounds):
        desk.wait(turn_s)
        for client in clients:
            for group in client.groups:
                desk.send(group)


# --- rule 4: entering, leaving, returning ----------------------------------------------------


def test_a_client_is_waited_for_from_its_first_step_on_and_not_from_its_hello(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(mini_infer_batch_size=4)
        a = desk.enter("a", 2)
        desk.join("b", 2)  # loading its environment, perhaps for a minute
        desk.wait(0.01)
        desk.send(a.groups[0])
        assert desk.times(Infer) == [0.0, 0.01]

    join = Scheduler.join

    def entering(self: Scheduler, *args: object, **kwargs: object) -> Member:
        member = join(self, *args, **kwargs)
        for group in member.groups:
            self._quorum.enter(group, member)
        return member

    assert_needed(check, monkeypatch, (Scheduler, "join", entering))


@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
def test_a_session_with_a_group_that_never_steps_is_ended_after_the_first_step_timeout(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    def check() -> None:
        desk = Desk(feedback_wait_timeout_s=1e6)
        b = desk.join("b", *sizes)
        for group in b.groups[1:]:
            desk.send(group)  # one group steps, the other never does
        desk.wait(299.0)
        assert desk.scheduler.members
        desk.wait(2.0)
        assert desk.times(EndSession) == [pytest.approx(300.0)]
        assert "--first-step-timeout" in desk.commands(EndSession)[0].message

    forever = lambda *_, is_ordered: np.inf  # noqa: E731
    assert_needed(check, monkeypatch, (Timeouts, "first_step_left_s", forever))


def a_straggler_leaves_and_returns() -> Desk:
    desk = Desk(**DYNAMIC)
    a, b = desk.enter("a", 1), desk.enter("b", 1)
    in_step(desk, a)  # a's turns: 10 ms, three times; b has 30 ms
    for _ in range(3):
        assert desk.scheduler.num_stragglers == 0
        desk.wait(1.0)
        desk.send(b.groups[0])
    in_step(desk, b)
    return desk


def test_three_late_turns_running_and_a_group_leaves_the_quorum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = a_straggler_leaves_and_returns()
        # b's turns end at 1.03, 2.03 and 3.03; its first began at 0.
        assert desk.times(Notice, "b/0 is late: no longer waited for") == [pytest.approx(3.03)]

    assert_needed(check, monkeypatch, (quorum_module, "TURNS_TO_CHANGE", 10**9))


def test_three_turns_on_time_and_a_group_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = a_straggler_leaves_and_returns()
        back = desk.times(Notice, "b/0 is on time again: waited for")
        assert back == [pytest.approx(3.03 + 3 * 0.01)]

    turn_ended = Quorum.turn_ended

    def one_way(self: Quorum[Group], group: Group, duration_s: float) -> bool | None:
        change = turn_ended(self, group, duration_s)
        if change:
            self._groups[group].in_quorum = False
        return None if change else change

    assert_needed(check, monkeypatch, (Quorum, "turn_ended", one_way))


# --- rule 4: barrier -------------------------------------------------------------------------


def test_a_round_takes_one_request_of_every_session_that_is_on_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.wait(0.010)
        desk.send(a.groups[0])
        desk.wait(0.005)
        desk.send(b.groups[0])
        assert desk.batches == [["a/0", "b/0"], ["a/0", "b/0"]]

    at_once = lambda self, queued, now: list(queued)  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "_barrier", at_once))


def test_a_round_waits_for_a_turn_only_until_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        in_step(desk, a, b)  # turns of 10 ms: both have 30 ms
        desk.wait(0.01)
        desk.send(a.groups[0])  # at 0.04, in time; b hangs
        desk.wait(5.0)
        assert desk.batches[-1] == ["a/0"]
        assert desk.times(Infer)[-1] == pytest.approx(0.03 + 0.03)
        desk.send(a.groups[0])  # it waits for b's turn once: b is late already
        assert desk.times(Infer)[-1] == pytest.approx(0.04 + 5.0)

    assert_needed(check, monkeypatch, (Quorum, "patience_s", lambda self, group: np.inf))


def test_a_first_turn_that_never_ends_holds_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a min_clients of 1 the first client alone makes the first round."""

    def check() -> None:
        desk = Desk()
        desk.enter("hangs", 1)
        desk.enter("b", 1)
        desk.enter("c", 1)
        desk.wait(1.0)
        assert desk.batches == [["hangs/0"], ["b/0", "c/0"]]
        assert desk.times(Infer) == [0.0, pytest.approx(0.02)]  # the least patience there is

    patience_s = Quorum.patience_s

    def unknown_is_endless(self: Quorum[Group], group: Group) -> float:
        return patience_s(self, group) if self._medians else np.inf

    assert_needed(check, monkeypatch, (Quorum, "patience_s", unknown_is_endless))


def test_of_a_session_s_two_groups_the_one_waiting_longest_takes_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(min_clients=2)
        a, b = desk.enter("a", 1, 1), desk.enter("b", 1)  # a/0 and b/0 served, a/1 waits
        desk.wait(0.01)
        desk.send(a.groups[0])
        desk.send(b.groups[0])
        assert desk.batches == [["a/0", "b/0"], ["a/1", "b/0"]]

    barrier = Dispatcher._barrier

    def lowest_first(self: Dispatcher, queued: Sequence[Group], now: float) -> object:
        return barrier(self, sorted(queued, key=lambda group: group.index), now)

    assert_needed(check, monkeypatch, (Dispatcher, "_barrier", lowest_first))


# --- rule 4: mini-batches --------------------------------------------------------------------


def test_a_mini_batch_counts_the_slots_of_queued_groups_asking_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(mini_infer_batch_size=2, min_clients=2)
        a, _b = desk.enter("a", 2), desk.enter("b", 2)
        desk.wait(0.01)
        desk.send(a.groups[0], "10")
        assert desk.batches[-1] == ["a/0"]

    add = Waiting.add

    def count_asking(self: Waiting, group: Group, request: Request) -> None:
        add(self, group, request)
        self.num_slots -= group.size - request.num_asking

    assert_needed(check, monkeypatch, (Waiting, "add", count_asking))


def test_a_mini_batch_larger_than_everybody_runs_with_everybody_at_once_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(mini_infer_batch_size=50, min_clients=2)
        a, b = desk.enter("a", 2), desk.enter("b", 3)
        in_step(desk, a, b)
        # No batch waits for the next recheck: all run in the instant the last request comes.
        assert desk.times(Infer) == [pytest.approx(t) for t in (0.0, 0.01, 0.02, 0.03)]
        assert desk.batches[1:] == [["a/0", "b/0"]] * 3
        assert [n for n in desk.notices if "using 5" in n]

    unclamped = lambda self, wanted, members, now: wanted  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "_clamped", unclamped))


def test_a_clamped_mini_batch_does_not_wait_for_the_next_recheck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(mini_infer_batch_size=50, min_clients=2)
        a, b = desk.enter("a", 2), desk.enter("b", 3)
        in_step(desk, a, b, rounds=5, turn_s=0.001)
        assert desk.times(Infer)[1:] == [pytest.approx(0.001 * k) for k in range(1, 6)]

    mini_batch = Dispatcher._mini_batch

    def rechecking(self: Dispatcher, *args: object) -> object:
        self._mini_wanted = 50
        return mini_batch(self, *args)

    assert_needed(check, monkeypatch, (Dispatcher, "_mini_batch", rechecking))


def test_a_mini_batch_does_not_count_on_slots_of_clients_that_are_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(mini_infer_batch_size=4, min_clients=2)
        a, b = desk.enter("a", 2), desk.enter("b", 2)
        in_step(desk, a, b)
        desk.wait(0.01)
        desk.send(a.groups[0])  # b hangs; it is late 30 ms after its answer
        desk.wait(1.0)
        assert desk.batches[-1] == ["a/0"]
        assert any("using 2" in notice for notice in desk.notices)

    nobody = lambda self, group, now: False  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "is_late", nobody))


# --- rule 4: dynamic -------------------------------------------------------------------------


def queue_during_a_batch(limit: int, *sizes: int) -> Desk:
    """Clients b, c, d … of these sizes queue while a's request is being inferred."""
    desk = Desk(answers=False, max_infer_batch_size=limit, **DYNAMIC)
    desk.enter("a", 1)
    for name, size in zip("bcd", sizes, strict=False):
        desk.enter(name, size)
    return desk


def test_a_dynamic_batch_is_bounded_and_the_rest_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = queue_during_a_batch(3, 1, 2, 1)
        desk.answer()
        desk.answer()
        assert desk.batches == [["a/0"], ["b/0", "c/0"], ["d/0"]]

    unbounded = lambda self, queued, n, now: list(queued)  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "_dynamic", unbounded))


def test_a_request_larger_than_the_largest_batch_is_inferred_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = queue_during_a_batch(3, 4, 1, 1)
        desk.answer()
        assert desk.batches == [["a/0"], ["b/0"]]
        desk.answer()
        assert desk.batches[2:] == [["c/0", "d/0"]]

    def fitting(self: Dispatcher, queued: Sequence[Group], n: int, now: float) -> list[Group]:
        batch: list[Group] = []
        for group in queued:
            if sum(g.size for g in batch) + group.size > 3:
                break
            batch.append(group)
        return batch

    assert_needed(check, monkeypatch, (Dispatcher, "_dynamic", fitting))


def test_a_dynamic_batch_waits_to_grow_for_as_long_as_it_may_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(max_infer_wait_s=0.005, min_clients=3, **DYNAMIC)
        a, b, _c = (desk.enter(name, 1) for name in "abc")
        desk.wait(1.0)
        desk.send(a.groups[0])
        desk.wait(0.003)
        desk.send(b.groups[0])
        desk.wait(1.0)
        # All three had come at 0; then a and b go together 5 ms after a came, at 1.0.
        assert desk.batches == [["a/0", "b/0", "c/0"], ["a/0", "b/0"]]
        assert desk.times(Infer)[1] == pytest.approx(1.005)

    at_once = lambda self, queued, n, now: list(queued)  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "_dynamic", at_once))


def test_a_full_dynamic_batch_does_not_wait() -> None:
    desk = Desk(max_infer_wait_s=5.0, max_infer_batch_size=2, min_clients=2, **DYNAMIC)
    desk.enter("a", 1)
    desk.enter("b", 1)
    assert desk.times(Infer) == [0.0]


# --- rule 4: min-clients ---------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, DYNAMIC, {"mini_infer_batch_size": 1}])
def test_the_first_round_waits_for_the_first_step_of_every_group_of_enough_sessions(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    def check() -> None:
        desk = Desk(min_clients=2, **settings)
        desk.enter("a", 1)
        b = desk.join("b", 1, 1)
        desk.send(b.groups[0])
        desk.wait(10.0)
        assert desk.batches == []
        desk.send(b.groups[1])
        desk.wait(10.0)
        assert sorted(chain.from_iterable(desk.batches)) == ["a/0", "b/0", "b/1"]

    some = property(lambda member: any(group.entered for group in member.groups))
    assert_needed(check, monkeypatch, (Member, "entered", some))


def test_min_clients_gates_the_first_round_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(min_clients=2)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.leave(b)
        desk.wait(0.01)
        desk.send(a.groups[0])
        assert desk.batches == [["a/0", "b/0"], ["a/0"]]

    def always(self: Dispatcher, members: Sequence[Member]) -> bool:
        return sum(member.entered for member in members) >= self._config.min_clients

    assert_needed(check, monkeypatch, (Dispatcher, "_may_start", always))


def test_evaluation_sessions_are_no_clients_to_start_with() -> None:
    desk = Desk(min_clients=2)
    desk.enter("a", 1)
    desk.enter("e", 1, role=Role.EVAL)
    assert desk.batches == [["e/0"]]


# --- rule 5: fixed order ---------------------------------------------------------------------


NEVER = property(lambda self: False)


def assert_same_at_any_timing(plan: Plan, seed: int = 0) -> None:
    runs = [World(plan, seed=seed, timing_seed=timing).run() for timing in range(4)]
    assert all(run.learned == runs[0].learned and run.learned for run in runs)


def test_a_deterministic_round_takes_exactly_one_group_of_each_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(
        sessions=((2,), (1, 2), (2,)),
        target=33,
        config=SchedulerConfig(deterministic=True, min_clients=3),
        max_learns=3,
    )
    check = lambda: assert_same_at_any_timing(plan)  # noqa: E731
    assert_needed(check, monkeypatch, (Dispatcher, "is_ordered", NEVER))


@pytest.mark.parametrize("settings", [{}, DYNAMIC, {"mini_infer_batch_size": 1}])
def test_the_groups_of_a_run_s_only_session_alternate_under_every_dispatch(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    def check() -> None:
        desk = Desk(**settings)
        a = desk.enter("a", 1, 1)
        for index in (1, 0, 0, 1):  # arrival: 0 1 | 1 0 | 0 1
            desk.send(a.groups[index])
        assert desk.batches == [["a/0"], ["a/1"]] * 3

    assert_needed(check, monkeypatch, (Dispatcher, "is_ordered", NEVER))


def test_a_run_that_had_a_second_session_no_longer_alternates() -> None:
    desk = Desk(**DYNAMIC)
    a = desk.enter("a", 1, 1)
    desk.leave(desk.enter("b", 1))
    desk.send(a.groups[1])
    desk.send(a.groups[0])
    assert desk.batches == [["a/0"], ["a/1"], ["b/0"], ["a/1"], ["a/0"]]


def test_in_a_fixed_order_requests_without_learner_rows_also_wait_for_their_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether such a request came before or after the learn step began is a matter of timing."""

    def check() -> None:
        desk = Desk(deterministic=True, min_clients=2, target=3)
        a, b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0], bad_reward="1")  # given up; the rest of its episode has no cells
        desk.send(b.groups[0])  # second round: b has its second frame, three are wanted
        desk.send(a.groups[0])
        desk.send(b.groups[0])  # third round: b's third frame is the last: closed
        desk.send(a.groups[0])
        assert len(desk.batches) == 3
        assert desk.is_waiting(a.groups[0])

    def served(self: Scheduler, now: float, *, is_open: bool) -> object:
        waiting = self._waiting
        if not is_open:
            return list(waiting.without_learner_rows)
        members = self._roster.trainers
        return self.dispatcher.choose(members, waiting.queued, waiting.num_slots, now)

    assert_needed(check, monkeypatch, (Scheduler, "_train_batch", served))


def test_a_deterministic_run_takes_no_further_train_sessions_once_it_is_complete() -> None:
    desk = Desk(deterministic=True, min_clients=2)
    desk.join("a", 1)
    assert desk.scheduler.accepts_train_sessions
    desk.join("b", 1)
    assert not desk.scheduler.accepts_train_sessions
    assert Desk().scheduler.accepts_train_sessions


@pytest.mark.parametrize("stepped", [True, False])
def test_a_deterministic_run_ends_when_a_client_goes(
    monkeypatch: pytest.MonkeyPatch, stepped: bool
) -> None:
    def check() -> None:
        desk = Desk(deterministic=True, min_clients=2)
        desk.enter("a", 1)
        b = desk.enter("b", 1) if stepped else desk.join("b", 1)
        desk.leave(b)
        assert any("b left" in end.message for end in desk.commands(EndRun))

    leave = lambda self, member, now: self._end(member)  # noqa: E731
    assert_needed(check, monkeypatch, (Scheduler, "leave", leave))


def test_a_deterministic_run_ends_when_a_client_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        desk = Desk(deterministic=True, min_clients=2)
        a, _b = desk.enter("a", 1), desk.enter("b", 1)
        desk.send(a.groups[0])
        desk.wait(61.0)
        assert any("b was lost" in end.message for end in desk.commands(EndRun))

    assert_needed(check, monkeypatch, (Scheduler, "_end_for_timeout", nothing))


def test_noise_is_keyed_by_episode_and_step_whatever_batch_a_row_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        desk = Desk(**DYNAMIC)
        a = desk.enter("a", 2)
        desk.send(a.groups[0])
        desk.send(a.groups[0], ended="10")
        desk.send(a.groups[0], asks="01", ended="00")
        desk.send(a.groups[0])
        keys = [
            list(
                zip(
                    batch.items[0].rows.tolist(),
                    batch.episodes.tolist(),
                    batch.steps.tolist(),
                    strict=True,
                )
            )
            for batch in desk.commands(Infer)
        ]
        assert keys == [  # row, episode, step in episode
            [(0, 0, 0), (1, 0, 0)],
            [(0, 0, 1), (1, 0, 1)],
            [(0, 1, 0), (1, 0, 2)],
            [(1, 0, 3)],
            [(0, 1, 1), (1, 0, 4)],
        ]

    assert_needed(check, monkeypatch, (Frames, "count_episodes", nothing))


def test_a_client_that_comes_back_draws_no_noise_twice() -> None:
    desk = Desk()
    a = desk.enter("a", 2)
    desk.send(a.groups[0], ended="10")
    desk.leave(a)
    assert desk.scheduler.next_episode(a) == 2  # slot 0 is in episode 1, slot 1 in episode 0
    again = desk.scheduler.join("a", Role.TRAIN, (2,), desk.now, first_episode=2)
    desk.send(again.groups[0])
    assert desk.commands(Infer)[-1].episodes.tolist() == [2, 2]
