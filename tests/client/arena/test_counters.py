"""What a battle counts besides playing it: refusals and why, drops, leaks, plays, what was seen."""

import numpy as np
import pytest

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import CARD_IDS, COST
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.state import Battles, empty

GUARD, COLOSSUS, TURRET, FIREBOMB = (
    CARD_IDS[name] for name in ("Guard", "Colossus", "Turret", "Firebomb")
)


def at(slot: int, column: int, row: int) -> int:
    return 1 + slot * rules.TILES + row * rules.WIDTH + column


def holding(cards: tuple[int, int, int, int], elixir: int = 10) -> Battles:
    """Return one battle whose seat 0 holds these cards, and an opponent that never plays."""
    battles = empty(1)
    rest = [card for card in range(16) if card not in cards][:4]
    decks = [[[*cards, *rest], list(range(8))]]
    start(battles, [0], seed=1, battle_ids=0, ordinals=0, decks=decks)
    battles.hand[0, 0], battles.queue[0, 0] = cards, rest
    battles.elixir[0, 0] = battles.counted_elixir[0, 0] = elixir * rules.ELIXIR_UNIT
    return battles


CARDS_IN_HAND = (GUARD, COLOSSUS, TURRET, FIREBOMB)


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (0, rules.PLAY_NONE),
        (-1, rules.PLAY_NOT_AN_ACTION),
        (rules.ACTIONS, rules.PLAY_NOT_AN_ACTION),
        (at(0, 0, 8), rules.PLAY_DONE),
        (at(0, 0, 9), rules.PLAY_OUTSIDE_TERRITORY),
        (at(0, 2, 10), rules.PLAY_OUTSIDE_TERRITORY),
        (at(0, 0, 12), rules.PLAY_OUTSIDE_TERRITORY),
        (at(0, 2, 3), rules.PLAY_OUTSIDE_TERRITORY),
        (at(0, 4, 0), rules.PLAY_OUTSIDE_TERRITORY),
        (at(1, 0, 0), rules.PLAY_TOO_EXPENSIVE),
        (at(2, 11, 0), rules.PLAY_DONE),
        (at(3, 0, 19), rules.PLAY_DONE),
    ],
)
def test_a_play_tells_what_became_of_it(action, status):
    battles = holding(CARDS_IN_HAND, elixir=4)
    step(battles, [[action, 0]])
    assert battles.play_status[0].tolist() == [status, rules.PLAY_NONE]
    assert battles.refused[0].tolist() == [int(status > rules.PLAY_DONE), 0]
    assert battles.plays[0].tolist() == [int(status == rules.PLAY_DONE), 0]


def test_a_refused_play_is_a_no_op_but_for_the_count():
    tried, waited = holding(CARDS_IN_HAND), holding(CARDS_IN_HAND)
    step(tried, [[at(0, 0, 12), 0]])
    step(waited, [[0, 0]])
    assert (tried.refused[0, 0], waited.refused[0, 0]) == (1, 0)
    tried.refused[:] = 0
    tried.play_status[:] = rules.PLAY_NONE
    assert tried.raw.tobytes() == waited.raw.tobytes()


def test_the_pocket_opens_to_troops_on_the_side_of_a_fallen_flank_tower_only():
    """The enemy's right flank tower stands on my left: columns 0 to 5, rows 11 to 13."""
    for action, status in [
        (at(0, 0, 11), rules.PLAY_DONE),
        (at(0, 5, 13), rules.PLAY_DONE),
        (at(0, 5, 14), rules.PLAY_OUTSIDE_TERRITORY),
        (at(0, 6, 12), rules.PLAY_OUTSIDE_TERRITORY),
        (at(2, 0, 11), rules.PLAY_OUTSIDE_TERRITORY),
    ]:
        battles = holding(CARDS_IN_HAND)
        battles.tower_hp[0, 1, rules.RIGHT_FLANK] = 0
        step(battles, [[action, 0]])
        assert battles.play_status[0, 0] == status


def test_a_play_costs_goes_to_the_back_of_the_queue_and_is_seen():
    battles = holding(CARDS_IN_HAND)
    following = battles.queue[0, 0].tolist()
    step(battles, [[at(0, 0, 8), 0]])
    # 10 elixir less 3, and five ticks at one 28th.
    assert battles.elixir[0, 0] == battles.counted_elixir[0, 0] == 7 * 28 + 5
    assert battles.hand[0, 0].tolist() == [following[0], COLOSSUS, TURRET, FIREBOMB]
    assert battles.queue[0, 0].tolist() == [*following[1:], GUARD]
    assert battles.seen[0].tolist() == [1 << GUARD, 0]
    assert battles.last_card[0].tolist() == [GUARD, -1]
    assert battles.last_play_tick[0].tolist() == [0, -1]


def test_a_unit_without_a_free_slot_is_paid_for_and_counted_as_dropped():
    battles = holding((CARD_IDS["Imps"], GUARD, TURRET, FIREBOMB))
    battles.unit_card[0, 0, :30] = GUARD
    battles.unit_hp[0, 0, :30] = 1500
    battles.unit_x[0, 0, :30] = battles.unit_y[0, 0, :30] = 500
    step(battles, [[at(0, 0, 8), 0]])
    assert battles.dropped[0].tolist() == [2, 0]
    assert battles.plays[0, 0] == 1
    assert (battles.unit_card[0, 0] >= 0).all()


def test_decisions_that_begin_with_full_elixir_are_counted():
    """From 5 elixir at one 28th a tick the cap is there after 140 ticks: 28 decisions."""
    battles = holding(CARDS_IN_HAND, elixir=5)
    for _ in range(28):
        step(battles, [[0, 0]])
    assert battles.elixir[0, 0] == rules.ELIXIR_CAP
    assert battles.leak_decisions[0, 0] == 0
    for _ in range(3):
        step(battles, [[0, 0]])
    assert battles.leak_decisions[0, 0] == 3
    step(battles, [[at(0, 0, 8), 0]])
    step(battles, [[0, 0]])
    assert battles.leak_decisions[0, 0] == 4


def test_counted_elixir_is_the_truth_whatever_is_played(deal, random_actions):
    battles, draws = deal(64), np.random.default_rng(31)
    for _ in range(360):
        step(battles, random_actions(battles, draws))
        assert (battles.counted_elixir == battles.elixir).all()
    assert battles.plays.min() > 0
    assert (COST[battles.last_card] > 0).all()


def test_a_battle_that_is_over_stays_as_it_is(deal, random_actions):
    battles, draws = deal(4), np.random.default_rng(32)
    battles.outcome[:] = rules.SEAT_0_WON
    before = battles.raw.copy()
    step(battles, random_actions(battles, draws))
    assert (battles.raw == before).all()


@pytest.mark.parametrize(
    "actions", [np.zeros((2, 2), np.int32), np.zeros(2, np.int32), np.zeros((1, 2))]
)
def test_actions_of_another_shape_or_type_are_refused(deal, actions):
    with pytest.raises(ValueError, match="expected integers"):
        step(deal(1), actions)
