"""Rewards: the goal by hand, shaping that telescopes, and what one seat gains the other loses."""

import numpy as np
import pytest

from royale_client.envs.arena import layout, rules, state
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.cards import CARD_IDS
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.reward_config import TERMINAL_TERM, TERMS, RewardConfig
from royale_client.envs.arena.rewards import Rewards

GOAL = TERMS.index(TERMINAL_TERM)
SHAPING = [index for index in range(len(TERMS)) if index != GOAL]


WEIGHTS = {"crowns": 0.2, "tower_hp": 0.1, "elixir": 0.05}
"""All at work."""


def begun(battles, **config) -> Rewards:
    rewards = Rewards(RewardConfig(**WEIGHTS, **config), len(battles.tick))
    rewards.begin(battles, np.arange(len(battles.tick)))
    return rewards


def play(battles, rewards, decisions=400, bot="random_wait"):
    """Return the terms of every step, ``(steps, N, 2, terms)``."""
    everyone, player = np.ones((len(battles.tick), 2), np.bool_), make_bot(bot)
    keys, steps = bot_keys(battles), []
    for _ in range(decisions):
        if (battles.outcome != rules.RUNNING).all():
            break
        step(battles, player.act(battles, everyone, keys))
        rewards.step(battles)
        np.testing.assert_allclose(rewards.rewards, rewards.terms.sum(-1), atol=1e-12)
        steps.append(rewards.terms.copy())
    return np.array(steps)


@pytest.mark.parametrize("gamma", [1.0, 0.997, 0.9])
def test_shaping_adds_up_to_nothing_over_a_finished_episode(deal, gamma):
    battles = deal(64)
    rewards = begun(battles, gamma=gamma)
    first = rewards.potentials.copy()
    terms = play(battles, rewards)
    assert (battles.outcome != rules.RUNNING).all()
    discounts = gamma ** np.arange(len(terms))
    sums = np.einsum("t,tnsk->nsk", discounts, terms)[..., SHAPING]
    # sum_t gamma^t (gamma Phi(t+1) - Phi(t)) = -Phi(0), as Phi(T) = 0; seat 1 has the negative.
    np.testing.assert_allclose(sums[:, 0], -first, atol=1e-6)
    np.testing.assert_allclose(sums[:, 1], first, atol=1e-6)


def test_a_state_is_worth_its_unshaped_value_less_its_potential_however_the_discount_moves(deal):
    battles = deal(32)
    rewards = begun(battles)
    everyone, keys, player = np.ones((32, 2), np.bool_), bot_keys(battles), make_bot("heuristic")
    frames = []
    while (battles.outcome == rules.RUNNING).any():
        rewards.gamma = (0.9, 0.999, 0.95, 1.0)[len(frames) % 4]
        potential = rewards.potentials.sum(-1)
        step(battles, player.act(battles, everyone, keys))
        rewards.step(battles)
        frames.append((rewards.gamma, potential, rewards.terms[:, 0].copy()))
    shaped, plain = np.zeros(32), np.zeros(32)
    for gamma, potential, terms in reversed(frames):
        # Discounted sums from here on, of all terms and of the goal alone.
        shaped = terms.sum(-1) + gamma * shaped
        plain = terms[:, GOAL] + gamma * plain
        np.testing.assert_allclose(shaped, plain - potential, atol=1e-9)
    assert max(np.abs(potential).max() for _, potential, _ in frames) > 0.05


def test_shaping_of_an_episode_begun_midway_adds_up_to_its_first_potential(deal):
    battles = deal(32)
    play(battles, begun(battles), decisions=100, bot="heuristic")
    rewards = begun(battles)
    first = rewards.potentials.copy()
    assert np.abs(first).max() > 0.01
    terms = play(battles, rewards)
    sums = np.einsum("t,tnsk->nsk", 0.997 ** np.arange(len(terms)), terms)[..., SHAPING]
    np.testing.assert_allclose(sums[:, 0], -first, atol=1e-6)


def test_a_battle_that_is_cut_off_keeps_its_potential(deal):
    battles = deal(32)
    rewards = begun(battles)
    terms = play(battles, rewards, decisions=50, bot="heuristic")
    assert (battles.outcome == rules.RUNNING).all()
    sums = np.einsum("t,tnsk->nsk", 0.997 ** np.arange(50), terms)[..., SHAPING]
    # gamma^T Phi(T) - Phi(0) with Phi(0) = 0: both seats start alike.
    np.testing.assert_allclose(sums[:, 0], 0.997**50 * rewards.potentials, atol=1e-6)
    assert np.abs(rewards.potentials).max() > 0.01


def test_what_one_seat_gains_the_other_loses(deal):
    battles = deal(32)
    terms = play(battles, begun(battles))
    np.testing.assert_array_equal(terms[:, :, 0], -terms[:, :, 1])
    assert not np.signbit(terms[terms == 0]).any()


def test_exchanged_seats_exchange_the_rewards_exactly(deal):
    battles, twins = deal(16), deal(16, swapped=True)
    rewards, others = begun(battles), begun(twins)
    everyone, keys, player = np.ones((16, 2), np.bool_), bot_keys(battles), make_bot("random_wait")
    for _ in range(360):
        step(battles, player.act(battles, everyone, keys))
        step(twins, player.act(twins, everyone, keys[:, ::-1].copy()))
        rewards.step(battles)
        others.step(twins)
        np.testing.assert_array_equal(rewards.terms, others.terms[:, ::-1])


def test_the_terms_of_one_step_by_hand(deal):
    battles = deal(1)
    rewards = begun(battles, gamma=0.5)
    battles.crowns[0] = (2, 1)
    battles.tower_hp[0] = ((4000, 2500, 0), (4000, 0, 0))
    battles.elixir[0] = (28, 84)
    battles.unit_card[0, 0, 7] = CARD_IDS["Slingers"]  # 3 elixir are two of 260
    battles.unit_hp[0, 0, 7] = 130
    rewards.step(battles)
    # Before: 0. Crowns 0.2 * (2 - 1) / 3; towers 0.1 * (2 - 1) / 3;
    # elixir 0.05 * (1 - 3 + 3 * 130 / 520) / 10.
    phi = np.array([0.2 / 3, 0.1 / 3, 0.05 * -1.25 / 10])
    np.testing.assert_allclose(rewards.terms[0, 0], [0, *(0.5 * phi)])
    rewards.step(battles)
    np.testing.assert_allclose(rewards.terms[0, 0], [0, *(0.5 * phi - phi)])
    battles.outcome[0] = rules.SEAT_1_WON
    rewards.step(battles)
    np.testing.assert_allclose(rewards.terms[0], [[-1, *-phi], [1, *phi]])
    rewards.step(battles)
    assert not rewards.terms.any()
    assert not rewards.rewards.any()


def test_a_draw_pays_nothing_but_what_the_potential_takes_back(deal):
    battles = deal(1)
    rewards = begun(battles)
    battles.outcome[0] = rules.DRAWN
    rewards.step(battles)
    assert not rewards.terms.any()


def test_a_new_battle_owes_nothing_to_the_one_before(deal):
    battles = deal(2)
    rewards = begun(battles)
    play(battles, rewards, decisions=60, bot="heuristic")
    kept = rewards.potentials[1].copy()
    battles.raw[0] = deal(1).raw[0]
    rewards.begin(battles, np.array([0]))
    assert rewards.potentials[0].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(rewards.potentials[1], kept)


def test_a_restored_battle_goes_on_with_the_same_rewards(deal):
    battles = deal(8)
    rewards = begun(battles)
    play(battles, rewards, decisions=90, bot="heuristic")
    restored = state.copy(battles)
    again = begun(restored)
    np.testing.assert_array_equal(again.potentials, rewards.potentials)
    terms = play(battles, rewards, bot="heuristic")
    np.testing.assert_array_equal(play(restored, again, bot="heuristic"), terms)


def test_the_potential_reads_nothing_that_another_slot_order_would_change(deal):
    battles = deal(8)
    play(battles, begun(battles), decisions=80)
    before = begun(battles).potentials
    for name in (name for name in layout.SEAT_FIELDS if name.startswith("unit_")):
        getattr(battles, name)[:] = getattr(battles, name)[..., ::-1].copy()
    np.testing.assert_allclose(begun(battles).potentials, before, atol=1e-12)


@pytest.mark.parametrize(
    "wrong", [{"gamma": 1.01}, {"gamma": -0.1}, {"crowns": -1.0}, {"elixir": float("inf")}]
)
def test_a_config_out_of_range_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RewardConfig(**wrong)
