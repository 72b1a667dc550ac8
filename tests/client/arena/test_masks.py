"""The mask of legal actions against the table of territory, and against what the game accepts."""

import numpy as np

from royale_client.envs.arena import rules, state
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.cards import COST, NUM_CARDS
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.tensors import legal
from royale_client.envs.arena.territory import can_deploy, in_zone, openness


def masks(battles):
    mask = np.zeros((len(battles.tick), 2, rules.ACTIONS), np.bool_)
    legal(battles, mask)
    return mask


def test_every_card_and_tile_agrees_with_the_predicate_in_all_states_of_the_towers(deal):
    battles = deal(4 * NUM_CARDS)
    battles.elixir[:] = rules.ELIXIR_CAP
    for i in range(4 * NUM_CARDS):
        battles.hand[i] = (i // 4 + np.arange(4)) % NUM_CARDS
        battles.tower_hp[i, :, rules.LEFT_FLANK] *= i & 1
        battles.tower_hp[i, :, rules.RIGHT_FLANK] *= i >> 1 & 1
    mask = masks(battles)
    for i, seat in np.ndindex(4 * NUM_CARDS, 2):
        card, sides = battles.hand[i, seat, 0], openness(battles, i, seat)
        expected = [in_zone(card, sides, tile) for tile in range(rules.TILES)]
        assert mask[i, seat, 1 : 1 + rules.TILES].tolist() == expected
        for tile in range(i, rules.TILES, 4 * NUM_CARDS):
            y, x = divmod(tile, rules.WIDTH)
            assert can_deploy(battles, i, seat, card, x, y) == expected[tile]
    # The other slots hold the next cards: their part of the mask is that of slot 0 there.
    by_slot = mask[..., 1:].reshape(-1, 4, 2, 4, rules.TILES)
    for slot in range(1, 4):
        np.testing.assert_array_equal(by_slot[:-slot, ..., slot, :], by_slot[slot:, ..., 0, :])


def test_a_card_is_legal_from_exactly_its_cost_on(deal):
    battles = deal(rules.ELIXIR_CAP + 1)
    battles.elixir[:] = np.arange(rules.ELIXIR_CAP + 1)[:, None]
    by_slot = masks(battles)[..., 1:].reshape(-1, 2, 4, rules.TILES).any(-1)
    np.testing.assert_array_equal(by_slot, COST[battles.hand] <= battles.elixir[..., None])


def test_the_no_op_is_always_legal_and_alone_once_a_battle_is_over(deal):
    battles = deal(3)
    battles.elixir[:] = (0, rules.ELIXIR_CAP)
    battles.outcome[2] = rules.DRAWN
    mask = masks(battles)
    assert mask[..., 0].all()
    assert mask[:, 0].sum(-1).tolist() == [1, 1, 1]
    assert mask[0, 1].sum() > 100
    assert mask[2, 1].sum() == 1


def test_the_game_accepts_exactly_what_the_mask_allows(deal):
    battles = deal(12)
    everyone, keys = np.ones((12, 2), np.bool_), bot_keys(battles)
    for _ in range(4):
        for _ in range(45):
            step(battles, make_bot("random_wait").act(battles, everyone, keys))
        mask = masks(battles)
        for i in np.flatnonzero(battles.outcome == rules.RUNNING)[:3]:
            every_play = state.views_of(np.repeat(battles.raw[i : i + 1], rules.ACTIONS, axis=0))
            actions = np.repeat(np.arange(rules.ACTIONS, dtype=np.int32)[:, None], 2, axis=1)
            step(every_play, actions)
            np.testing.assert_array_equal(
                every_play.play_status[1:] == rules.PLAY_DONE, mask[i, :, 1:].T
            )
