"""The seats are alike: a battle with decks and actions exchanged is the same, bytes exchanged."""

import numpy as np

from royale_client.envs.arena import rules
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.kernels import step_rows
from royale_client.envs.arena.layout import SEAT_FIELDS, SEAT_STARTS, SEAT_WORDS
from royale_client.envs.arena.state import Battles, copy, empty, views_of

PAIRS = 1024
EXCHANGED_OUTCOME = np.array([rules.RUNNING, rules.SEAT_1_WON, rules.SEAT_0_WON, rules.DRAWN])


def exchanged(battles: Battles) -> np.ndarray:
    """Return the rows of the battles with the seats exchanged."""
    twins = copy(battles)
    first, second = (slice(begin, begin + SEAT_WORDS) for begin in SEAT_STARTS)
    twins.raw[:, first], twins.raw[:, second] = battles.raw[:, second], battles.raw[:, first]
    twins.outcome[:] = EXCHANGED_OUTCOME[battles.outcome]
    return twins.raw


def hasty_actions(battles: Battles, draws: np.random.Generator) -> np.ndarray:
    """Return actions without a look at the mask: a third waits, the rest are often legal."""
    shape = (len(battles.raw), rules.SEATS)
    slot, column = draws.integers(0, 4, shape), draws.integers(0, rules.WIDTH, shape)
    row = np.where(draws.random(shape) < 0.85, draws.integers(0, 9, shape), 12)
    action = 1 + slot * rules.TILES + row * rules.WIDTH + column
    return np.where(draws.random(shape) < 0.3, rules.NO_OP, action).astype(np.int32)


def test_exchanging_the_seats_of_a_state_exchanges_axis_1_of_every_field_of_a_seat(deal):
    battles = deal(3)
    twins = exchanged(battles)
    for name in SEAT_FIELDS:
        assert (getattr(views_of(twins), name) == getattr(battles, name)[:, ::-1]).all()


def test_over_a_thousand_twin_battles_differ_in_no_byte_until_their_end():
    battles, twins, draws = empty(PAIRS), empty(PAIRS), np.random.default_rng(21)
    which = np.arange(PAIRS)
    start(battles, which, seed=9, battle_ids=which, ordinals=0)
    start(twins, which, seed=9, battle_ids=which, ordinals=0, swapped=True)
    assert twins.raw.tobytes() == exchanged(battles).tobytes()
    while (battles.outcome == rules.RUNNING).any():
        actions = hasty_actions(battles, draws)
        step_rows(battles.raw, actions)
        step_rows(twins.raw, np.ascontiguousarray(actions[:, ::-1]))
        assert twins.raw.tobytes() == exchanged(battles).tobytes()
    assert battles.plays.min() > 5
    assert battles.refused.sum() > 0
    assert len(np.unique(battles.outcome)) >= 2


def test_both_seats_win_about_as_often_when_they_play_alike():
    """Of 1,024 battles a fair coin stays within 448 and 576 but once in 10,000 times (4 sigma)."""
    battles, draws = empty(PAIRS), np.random.default_rng(22)
    which = np.arange(PAIRS)
    start(battles, which, seed=10, battle_ids=which, ordinals=0)
    while (battles.outcome == rules.RUNNING).any():
        step_rows(battles.raw, hasty_actions(battles, draws))
    wins, losses = (battles.outcome == 1).sum(), (battles.outcome == 2).sum()
    assert abs(int(wins) - int(losses)) < 128
