"""Scripted bots: legal, repeatable, alike from both seats, in the expected order of skill."""

import numpy as np
import pytest

from royale_client.envs.arena import layout, rules, state
from royale_client.envs.arena.bots import BOTS, Bot, RandomBot, SearchBot, bot_keys, make_bot
from royale_client.envs.arena.cards import CARD_IDS
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.tensors import legal


def small(name: str) -> Bot:
    """Return a bot that is quick enough for a test."""
    return SearchBot(tries=3, horizon=4) if name == "search" else make_bot(name)


def won(bot: Bot, other: Bot, battles) -> float:
    """Play all battles; return the share the first bot won. It sits in seat 0 of every second."""
    n = len(battles.tick)
    seats, keys = np.zeros((n, 2), np.bool_), bot_keys(battles)
    place = np.arange(n) % 2
    seats[np.arange(n), place] = True
    while (battles.outcome == rules.RUNNING).any():
        actions = np.where(seats, bot.act(battles, seats, keys), other.act(battles, ~seats, keys))
        step(battles, actions)
    return float((battles.outcome == place + 1).mean())


def exchanged(battles):
    """Return the battles with their seats exchanged."""
    twins = state.copy(battles)
    blocks = twins.raw[:, layout.HEAD_WORDS :].reshape(-1, 2, layout.SEAT_WORDS)
    blocks[:] = blocks[:, ::-1].copy()
    return twins


@pytest.mark.parametrize("name", BOTS)
def test_a_bot_plays_legally_repeatably_and_alike_from_both_seats(deal, name):
    n = 2 if name == "search" else 8
    battles, bot, everyone = deal(n), small(name), np.ones((n, 2), np.bool_)
    keys, mask = bot_keys(battles), np.zeros((n, 2, rules.ACTIONS), np.bool_)
    for _ in range(rules.CAP_TICKS // rules.TICKS_PER_DECISION):
        raw = battles.raw.copy()
        actions = bot.act(battles, everyone, keys)
        np.testing.assert_array_equal(battles.raw, raw)
        np.testing.assert_array_equal(bot.act(battles, everyone, keys), actions)
        twin_actions = bot.act(exchanged(battles), everyone, keys[:, ::-1].copy())
        np.testing.assert_array_equal(twin_actions[:, ::-1], actions)
        legal(battles, mask)
        assert np.take_along_axis(mask, actions[..., None].astype(np.int64), -1).all()
        step(battles, actions)
    assert (battles.outcome != rules.RUNNING).all()
    assert not battles.refused.any()
    assert battles.plays.any() == (name not in ("noop", "defend"))


@pytest.mark.parametrize("name", sorted(set(BOTS) - {"noop"}))
def test_a_bot_plays_for_the_seats_it_is_asked_about_alone(deal, name):
    battles, bot, keys = deal(4), small(name), bot_keys(deal(4))
    battles.elixir[:] = rules.ELIXIR_CAP
    put_enemies(battles)
    seats = np.array([[1, 0], [0, 1], [0, 0], [1, 1]], np.bool_)
    assert not bot.act(battles, seats, keys)[~seats].any()
    battles.outcome[:] = rules.DRAWN
    assert not bot.act(battles, seats, keys).any()


def put_enemies(battles, seat=slice(None)):
    """Put a Guard of a seat in front of the other seat's left flank tower."""
    battles.unit_card[:, seat, 0] = CARD_IDS["Guard"]
    battles.unit_hp[:, seat, 0] = 1500
    battles.unit_x[:, seat, 0], battles.unit_y[:, seat, 0] = 9000, 13000


def test_keys_differ_between_seats_and_episodes(deal):
    assert len(np.unique(bot_keys(deal(50)))) == 100
    assert bot_keys(deal(2)).tolist() == bot_keys(deal(2)).tolist()


def test_the_random_bot_draws_evenly_from_the_legal_plays(deal):
    battles = deal(1)
    battles.elixir[:] = 3 * rules.ELIXIR_UNIT
    mask = np.zeros((1, 2, rules.ACTIONS), np.bool_)
    legal(battles, mask)
    many = state.views_of(np.repeat(battles.raw, 20000, axis=0))
    keys = np.arange(40000, dtype=np.uint64).reshape(20000, 2)
    counts = np.bincount(
        RandomBot().act(many, np.ones((20000, 2), np.bool_), keys)[:, 0], minlength=rules.ACTIONS
    )
    expected = 20000 / mask[0, 0, 1:].sum()
    assert counts[0] == 0
    assert not counts[~mask[0, 0]].any()
    # Poisson: five deviations around the mean hold for all of up to 960 actions.
    assert np.abs(counts[1:][mask[0, 0, 1:]] - expected).max() < 5 * expected**0.5 + 1


def test_the_waiting_random_bot_waits_in_nine_of_ten_decisions(deal):
    battles = deal(4000)
    battles.elixir[:] = rules.ELIXIR_CAP
    actions = make_bot("random_wait").act(battles, np.ones((4000, 2), np.bool_), bot_keys(battles))
    assert 0.88 < (actions == rules.NO_OP).mean() < 0.92  # 8000 draws: six deviations


def test_defend_waits_for_enemies_and_push_does_not(deal):
    battles, seats = deal(16), np.zeros((16, 2), np.bool_)
    seats[:, 0] = True
    keys = bot_keys(battles)
    battles.elixir[:] = rules.ELIXIR_CAP
    assert not make_bot("defend").act(battles, seats, keys).any()
    assert make_bot("push").act(battles, seats, keys).any()
    put_enemies(battles, seat=1)
    answers = make_bot("defend").act(battles, seats, keys)[:, 0]
    assert (answers > 0).mean() > 0.8  # a hand may hold no answer
    # The Guard stands at my (3, 7): answers go to my half, and most of them to its side.
    columns = (answers[answers > 0] - 1) % rules.TILES % rules.WIDTH
    assert (columns < rules.WIDTH // 2).all()


def test_a_flying_enemy_is_answered_by_what_can_reach_it(deal):
    battles, seats = deal(64), np.zeros((64, 2), np.bool_)
    seats[:, 0] = True
    battles.elixir[:] = rules.ELIXIR_CAP
    put_enemies(battles, seat=1)
    battles.unit_card[:, 1, 0] = CARD_IDS["Drake"]
    battles.unit_hp[:, 1, 0] = 950
    answers = make_bot("defend").act(battles, seats, bot_keys(battles))[:, 0]
    slots = (answers[answers > 0] - 1) // rules.TILES
    cards = set(battles.hand[answers > 0, 0][np.arange(len(slots)), slots].tolist())
    reach = ("Slingers", "Longshot", "Wisps", "Drake", "Pyre mage", "Turret", "Firebomb")
    assert cards <= {CARD_IDS[name] for name in reach}
    assert len(cards) > 3


def test_the_order_of_skill(deal):
    # The large matches are in the docs; these are bounds that 60 battles hold with a wide margin.
    assert won(make_bot("heuristic"), make_bot("random"), deal(60)) > 0.85
    assert won(make_bot("heuristic"), make_bot("push"), deal(60)) > 0.6
    assert won(make_bot("heuristic"), make_bot("noop"), deal(10)) == 1
    assert won(make_bot("search"), make_bot("heuristic"), deal(4)) >= 0.75


def test_twin_battles_of_the_heuristic_stay_mirrored_to_the_end(deal):
    battles, twins = deal(16), deal(16, swapped=True)
    everyone, keys, bot = np.ones((16, 2), np.bool_), bot_keys(battles), make_bot("heuristic")
    while (battles.outcome == rules.RUNNING).any():
        step(battles, bot.act(battles, everyone, keys))
        step(twins, bot.act(twins, everyone, keys[:, ::-1].copy()))
    blocks = exchanged(twins).raw[:, layout.HEAD_WORDS :]
    np.testing.assert_array_equal(battles.raw[:, layout.HEAD_WORDS :], blocks)
    assert battles.outcome.tolist() == [(0, 2, 1, 3)[outcome] for outcome in twins.outcome]


def test_an_unknown_bot_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"'x'.*heuristic"):
        make_bot("x")
    with pytest.raises(ValueError, match="1 tries"):
        SearchBot(tries=1)
