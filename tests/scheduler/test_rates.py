"""A straggler does not slow everybody down: rates in simulated time, whole runs, start included.

Steps take 9 to 11 ms; the others' patience with a straggler is spent on its first three turns,
so that the longer its turns, the longer the run over which the rate is taken.
"""

from __future__ import annotations

import functools

import pytest

from royale_server.scheduler import Discard, Dispatch, SchedulerConfig
from tests.scheduler.plans import Plan
from tests.scheduler.world import World

SETTINGS = {
    "barrier": {},
    "dynamic": {"dispatch": Dispatch.DYNAMIC},
    "mini": {"mini_infer_batch_size": 8},
}
BASE_RUN_S = 8.0
RUN_S = {5.0: 8.0, 20.0: 12.0, 200.0: 40.0}


def run(sessions: int, slow: dict[int, float], dispatch: str, duration_s: float) -> World:
    plan = Plan(
        sessions=((4,),) * sessions,
        target=256,
        config=SchedulerConfig(**SETTINGS[dispatch]),
        slow=slow,
        step_s=(0.009, 0.011),
        jitter_s=0.001,
        duration_s=duration_s,
    )
    world = World(plan, seed=0).run()
    assert not world.faults
    return world


def learned_per_s(world: World) -> float:
    """Frames learned from per second, from the start of the run to the last learn step."""
    return sum(map(len, world.learned)) / world.learned_at[-1]


@functools.cache
def rate_of_two_fast_ones(dispatch: str) -> float:
    return learned_per_s(run(2, {}, dispatch, BASE_RUN_S))


@pytest.mark.parametrize("slowness", RUN_S)
@pytest.mark.parametrize("dispatch", SETTINGS)
def test_a_straggler_costs_two_fast_clients_less_than_a_tenth_of_their_rate(
    dispatch: str, slowness: float
) -> None:
    world = run(3, {0: slowness}, dispatch, RUN_S[slowness])
    assert learned_per_s(world) >= 0.9 * rate_of_two_fast_ones(dispatch)
    assert any("client-0/0 is late" in notice.message for notice in world.notices)


def test_a_client_three_times_slower_is_waited_for() -> None:
    world = run(3, {0: 2.5}, "barrier", 4.0)
    assert world.scheduler.ledger.given_up[Discard.LATE] == 0
    assert not world.notices
    # 25 ms turns for everybody: three clients' frames at the slow one's pace.
    assert learned_per_s(world) < rate_of_two_fast_ones("barrier")


@pytest.mark.parametrize("dispatch", ["barrier", "mini"])
def test_two_groups_of_one_slow_client_do_not_vouch_for_each_other(dispatch: str) -> None:
    """One fast client with one group: half of the other groups of each slow one are slow."""
    alone = learned_per_s(run(1, {}, dispatch, 4.0))
    plan = Plan(
        sessions=((4, 4), (4,)),
        target=256,
        config=SchedulerConfig(**SETTINGS[dispatch]),
        slow={0: 20.0},
        step_s=(0.009, 0.011),
        jitter_s=0.001,
        duration_s=12.0,
    )
    world = World(plan, seed=0).run()
    assert not world.faults
    assert learned_per_s(world) >= 0.9 * alone


def test_seven_clients_at_5_ms_keep_four_fifths_of_their_rate_beside_one_at_2_s() -> None:
    """Case H33. The straggler's discarded frames are counted, and nobody else loses any."""

    def at_5_ms(sessions: int, slow: dict[int, float], duration_s: float) -> World:
        plan = Plan(
            sessions=((1,),) * sessions,
            target=2048,
            config=SchedulerConfig(),
            slow=slow,
            step_s=(0.0049, 0.0051),
            jitter_s=0.0001,
            duration_s=duration_s,
        )
        world = World(plan, seed=0).run()
        assert not world.faults
        return world

    seven = at_5_ms(7, {}, 3.0)
    eight = at_5_ms(8, {7: 400.0}, 14.0)
    stored = eight.stored_by_client
    straggler = stored.pop(7, 0)
    rate_of_the_seven = sum(stored.values()) / eight.now
    assert rate_of_the_seven >= 0.8 * sum(seven.stored_by_client.values()) / seven.now
    late = eight.scheduler.ledger.given_up[Discard.LATE]
    assert late == eight.scheduler.ledger.discarded_total
    assert late + straggler >= 5  # a turn every 2 s: stored if in time, counted as late if not
    assert any("client-7/0 is late" in notice.message for notice in eight.notices)
