"""The real core under thousands of seeded schedules: no promise of the frame rules breaks."""

from collections import Counter
from dataclasses import replace

import pytest

from royale_server.scheduler import Discard, Dispatch, SchedulerConfig
from tests.scheduler.plans import Plan, calm_plan, deterministic_plan, random_plan
from tests.scheduler.world import World

SCHEDULES_PER_PART = 225
PARTS = 8
CALM_PER_PART = 100
CALM_PARTS = 3
DETERMINISTIC_PER_PART = 30
DETERMINISTIC_PARTS = 4

DISPATCHES = {
    "barrier": SchedulerConfig(),
    "dynamic": SchedulerConfig(dispatch=Dispatch.DYNAMIC, max_infer_batch_size=3),
    "mini": SchedulerConfig(mini_infer_batch_size=2),
}


FIRST_PARTS = list(range(2))
FURTHER_PARTS = [pytest.param(part, marks=pytest.mark.chaos) for part in range(2, PARTS)]
"""Seconds each: the first ones run always, the others with the slow suites."""


def run_all(plans: dict[int, Plan]) -> list[World]:
    worlds = [World(plan, seed=seed).run() for seed, plan in plans.items()]
    broken = {w.seed: (w.faults, w.plan) for w in worlds if w.faults}
    assert not broken
    return worlds


@pytest.mark.parametrize("part", FIRST_PARTS + FURTHER_PARTS)
def test_no_promise_breaks_whatever_happens_to_a_run(part: int) -> None:
    seeds = range(part * SCHEDULES_PER_PART, (part + 1) * SCHEDULES_PER_PART)
    worlds = run_all({seed: random_plan(seed) for seed in seeds})
    # Not vacuous: most schedules learn to their end, and each kind of trouble occurred.
    learned = sum(len(world.learned) for world in worlds)
    assert learned > 3.5 * SCHEDULES_PER_PART
    assert sum(world.timeouts for world in worlds) > 0
    assert sum(world.rests for world in worlds) > 0
    assert sum(world.evaluated_while_closed for world in worlds) > 0
    assert sum(world.rows_of_others > 0 for world in worlds) > 0.2 * SCHEDULES_PER_PART
    for reason in (Discard.LATE, Discard.CUT, Discard.LOST, Discard.INVALID):
        assert sum(world.given_up[reason] for world in worlds) > 0
    assert sum(world.restarts.count > 0 for world in worlds) > 0.8 * SCHEDULES_PER_PART
    came = sum((world.restarts.came for world in worlds), Counter())
    assert min(came[how] for how in ("exact", "late", "fresh", "changed", "too late")) > 4


@pytest.mark.parametrize("part", range(CALM_PARTS))
def test_nothing_but_cut_is_discarded_while_nothing_goes_wrong(part: int) -> None:
    seeds = range(part * CALM_PER_PART, (part + 1) * CALM_PER_PART)
    worlds = run_all({seed: calm_plan(seed) for seed in seeds})
    assert all(world.plan.is_calm for world in worlds)
    assert sum(len(world.learned) for world in worlds) > 3.9 * CALM_PER_PART


@pytest.mark.parametrize("part", range(DETERMINISTIC_PARTS))
def test_a_deterministic_run_stores_the_same_frames_in_the_same_order_at_any_timing(
    part: int,
) -> None:
    for seed in range(part * DETERMINISTIC_PER_PART, (part + 1) * DETERMINISTIC_PER_PART):
        plan = deterministic_plan(seed)
        runs = [World(plan, seed=seed, timing_seed=timing).run() for timing in (1, 2, 3)]
        assert not any(run.faults or run.ended_run for run in runs), (seed, plan)
        assert len(runs[0].learned) == plan.max_learns, (seed, plan)
        assert runs[0].learned == runs[1].learned == runs[2].learned, (seed, plan)


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_one_session_alone_stores_the_same_frames_at_any_timing(dispatch: str) -> None:
    for seed in range(25):
        plan = deterministic_plan(seed)
        # A pause revokes what a hanging client owes: outside deterministic runs that is meant.
        alone = replace(plan, sessions=plan.sessions[:1], config=DISPATCHES[dispatch], hangs=0)
        runs = [World(alone, seed=seed, timing_seed=timing).run() for timing in (1, 2)]
        assert not any(run.faults for run in runs), (seed, alone)
        assert len(runs[0].learned) == plan.max_learns, (seed, alone)
        assert runs[0].learned == runs[1].learned, (seed, alone)


def test_the_dispatch_does_not_change_what_one_session_stores() -> None:
    for seed in range(10):
        plan = deterministic_plan(seed)
        runs = [
            World(
                replace(plan, sessions=plan.sessions[:1], config=config, hangs=0), seed=seed
            ).run()
            for config in DISPATCHES.values()
        ]
        assert runs[0].learned == runs[1].learned == runs[2].learned, seed


@pytest.mark.parametrize("part", range(DETERMINISTIC_PARTS))
def test_a_deterministic_run_that_is_restarted_stores_the_same_frames_in_the_same_order(
    part: int,
) -> None:
    for seed in range(part, DETERMINISTIC_PER_PART * DETERMINISTIC_PARTS, 2 * DETERMINISTIC_PARTS):
        assert_restarts_change_nothing(deterministic_plan(seed), seed)


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_one_session_alone_that_is_restarted_stores_the_same_frames(dispatch: str) -> None:
    for seed in range(15):
        plan = deterministic_plan(seed)
        alone = replace(plan, sessions=plan.sessions[:1], config=DISPATCHES[dispatch], hangs=0)
        assert_restarts_change_nothing(alone, seed)


def assert_restarts_change_nothing(plan: Plan, seed: int) -> None:
    """After every learn step and, where no rest cuts open silent rows, while collecting."""
    plan = replace(plan, pauses=0)
    whole = World(plan, seed=seed).run()
    after_learning = replace(plan, restarts_at_learn=frozenset({1, 2, 3}), return_s=0.3)
    plans = [after_learning]
    if plan.mode != "turn":
        plans.append(replace(plan, restarts=3, return_s=0.3))
    for restarted in plans:
        world = World(restarted, seed=seed, timing_seed=seed + 1).run()
        assert not world.faults, (seed, restarted, world.faults)
        assert world.restarts.count >= (3 if restarted is after_learning else 1), (seed, restarted)
        assert world.learned == whole.learned, (seed, restarted)
