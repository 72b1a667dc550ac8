"""The kernels against the plain reference: the same battles, every number after every decision."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.envs.arena import reference as reference_module
from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import NUM_CARDS
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.layout import HEAD_FIELDS, SEAT_FIELDS
from royale_client.envs.arena.movement import one_step, waypoint
from royale_client.envs.arena.reference import ReferenceBattle
from royale_client.envs.arena.reference_paths import next_corner, walked
from royale_client.envs.arena.reference_seats import SEAT_NAMES
from royale_client.envs.arena.state import Battles, empty


def fields_of(battles: Battles) -> list[dict]:
    """Return every battle as the reference tells it."""
    columns = {name: getattr(battles, name).tolist() for name in ("tick", "outcome", *SEAT_FIELDS)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def assert_same(here: dict, there: dict) -> None:
    differing = {name: (here[name], there[name]) for name in here if here[name] != there[name]}
    assert not differing, f"tick {here['tick']}: {differing}"


def play_both(battles, references, draws, random_actions, decisions=400, **play):
    """Play until all are over, and compare every battle after every decision of it."""
    for _ in range(decisions):
        running = np.flatnonzero(battles.outcome == rules.RUNNING)
        if not len(running):
            return
        actions = random_actions(battles, draws, **play)
        step(battles, actions)
        fields = fields_of(battles)
        for i in running:
            references[i].step(actions[i].tolist())
            assert_same(fields[i], references[i].fields())


def dealt_both(n: int, seed: int) -> tuple[Battles, list[ReferenceBattle]]:
    battles = empty(n)
    swapped = np.arange(n) % 2 == 1
    start(battles, np.arange(n), seed=seed, battle_ids=np.arange(n), ordinals=7, swapped=swapped)
    references = [ReferenceBattle.deal(seed, i, 7, swapped=bool(swapped[i])) for i in range(n)]
    return battles, references


def test_the_reference_knows_every_field_of_a_seat():
    assert set(SEAT_NAMES) == set(SEAT_FIELDS)
    assert set(HEAD_FIELDS) == {"seed", "battle", "ordinal", "tick", "outcome"}


def test_the_reference_knows_nothing_of_the_kernels():
    folder = Path(reference_module.__file__).parent
    known = {"rules", "cards", "randomness", "reference_paths", "reference_seats"}
    for path in folder.glob("reference*.py"):
        text = path.read_text()
        modules = re.findall(r"^from royale_client\.envs\.arena\.(\w+) import", text, re.M)
        modules += re.findall(r"^from royale_client\.envs\.arena import (\w+)$", text, re.M)
        assert set(modules) <= known, path.name
        assert text.count("royale_client") == len(modules), path.name


XS = st.integers(0, rules.WIDTH_UNITS) | st.sampled_from([2400, 3000, 3600, 6000, 6001, 8400])
YS = st.integers(0, rules.HEIGHT_UNITS) | st.sampled_from([8999, 9000, 11000, 11001])


@settings(max_examples=1000)
@given(XS, YS, XS, YS, st.integers(70, 160))
def test_both_find_the_same_way_and_walk_as_far(x, y, goal_x, goal_y, speed):
    assert tuple(waypoint(x, y, goal_x, goal_y)) == next_corner((x, y), (goal_x, goal_y))
    step_to = tuple(one_step(x, y, goal_x, goal_y, speed))
    assert step_to == walked((x, y), (goal_x, goal_y), speed)
    # Never farther than the speed, and at most one unit shorter for each of three roundings.
    walked_units = np.hypot(step_to[0] - x, step_to[1] - y)
    assert walked_units <= speed + 1
    assert step_to == (goal_x, goal_y) or walked_units >= speed - 3


def test_a_battle_that_is_written_down_and_read_again_is_the_same(deal, random_actions):
    battles, draws = deal(4), np.random.default_rng(0)
    for _ in range(100):
        step(battles, random_actions(battles, draws))
    for fields in fields_of(battles):
        assert_same(fields, ReferenceBattle.load(fields).fields())


@pytest.mark.parametrize("wait", [0.4, 0.95])
def test_whole_battles_agree_in_every_number_after_every_decision(wait, random_actions):
    battles, references = dealt_both(12, seed=3)
    for fields, reference in zip(fields_of(battles), references, strict=True):
        assert_same(fields, reference.fields())
    play_both(battles, references, np.random.default_rng(1), random_actions, wait=wait)
    assert (battles.outcome != rules.RUNNING).all()


def test_battles_agree_from_states_that_play_seldom_reaches(random_actions):
    battles, references = unusual_both(40, seed=5)
    play_both(battles, references, np.random.default_rng(2), random_actions, decisions=25, wait=0.3)
    assert (battles.dropped > 0).any()
    assert {rules.SEAT_0_WON, rules.SEAT_1_WON} <= set(battles.outcome.tolist())


@pytest.mark.chaos
@pytest.mark.parametrize("wait", [0.2, 0.5, 0.7, 0.95])
def test_a_thousand_battles_agree_in_every_number(wait, random_actions):
    draws = np.random.default_rng(3)
    for seed in range(5):
        battles, references = dealt_both(50, seed=100 * seed + int(20 * wait))
        play_both(battles, references, draws, random_actions, wait=wait)
        assert (battles.outcome != rules.RUNNING).all()


@pytest.mark.chaos
def test_a_thousand_unusual_states_go_on_alike(random_actions):
    draws = np.random.default_rng(4)
    for seed in range(10):
        battles, references = unusual_both(100, seed=200 + seed)
        play_both(battles, references, draws, random_actions, decisions=30, wait=0.3)


def unusual_both(n: int, seed: int) -> tuple[Battles, list[ReferenceBattle]]:
    """Return battles with crowded boards, weak towers and clocks near an edge, and their twins."""
    draws = np.random.default_rng(seed)
    battles, _ = dealt_both(n, seed)
    for i in range(n):
        crowd(battles, i, draws)
    return battles, [ReferenceBattle.load(fields) for fields in fields_of(battles)]


def crowd(battles: Battles, i: int, draws: np.random.Generator) -> None:
    """Put random units anywhere, in random condition, and towers near their end."""
    battles.tick[i] = 5 * draws.choice([0, 118, 236, 239, 357])
    battles.elixir[i] = battles.counted_elixir[i] = draws.integers(0, rules.ELIXIR_CAP + 1, 2)
    for s in range(rules.SEATS):
        battles.tower_hp[i, s] = draws.choice([1, 90, 700, 2500], 3)
        battles.tower_hp[i, s, 1 + draws.integers(2)] *= draws.integers(2)
        fallen = battles.tower_hp[i, s] == 0
        battles.tower_target[i, s, fallen] = rules.NO_TARGET
        battles.crowns[i, 1 - s] = fallen.sum()
        battles.keep_awake[i, s] = fallen.any()
        troops = [c for c in range(NUM_CARDS) if c not in {12, 13, 14}]
        count = draws.choice([0, 5, 12, 31, 32])
        slots = draws.permutation(rules.UNIT_SLOTS)[:count]
        battles.unit_card[i, s, slots] = draws.choice(troops, count)
        battles.unit_hp[i, s, slots] = draws.integers(1, 300, count)
        battles.unit_x[i, s, slots] = draws.integers(0, rules.WIDTH_UNITS + 1, count)
        battles.unit_y[i, s, slots] = draws.integers(0, rules.HEIGHT_UNITS + 1, count)
        battles.unit_cooldown[i, s, slots] = draws.integers(0, 10, count)
        battles.unit_deploy[i, s, slots] = draws.choice([0, 0, 3], count)
        battles.unit_stun[i, s, slots] = draws.choice([0, 0, 0, 4], count)
        battles.unit_target[i, s, slots] = rules.LOST_TARGET
        buildings = np.isin(battles.unit_card[i, s], [10, 11])
        battles.unit_life[i, s, buildings] = draws.integers(1, 60, buildings.sum())
        battles.unit_y[i, s, buildings] %= 9000
