"""The arena's gates: what a client answers about it, and that a planted fault is found in time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.cards import CARDS, NUM_CARDS
from royale_client.envs.arena.driver import ArenaDriver
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import HAND_SIZE, HEIGHT, SEATS, TILES, WIDTH
from royale_client.probing import ProbingFailedError, ask
from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING
from tests.preflight.starts import ARENA, Starts, play_inline

CARD, TILE = 1, 9 * WIDTH + 5
"""A Cleaver in the river, row 9, column 5, where no troop may be put down."""


class WrongMasks(ArenaBatch):
    """Shows one card as playable on one tile where it is not."""

    def observe(self) -> None:
        super().observe()
        for battle, seat, slot in zip(*(self.battles.hand == CARD).nonzero(), strict=True):
            if self.mask[battle, seat, 1 + slot * TILES]:  # affordable now
                self.mask[battle, seat, 1 + slot * TILES + TILE] = True


def arena(batch: type[ArenaBatch] = ArenaBatch) -> ArenaDriver:
    driver = ArenaDriver(RewardConfig(), 2, bots=(), identity={})
    driver._new_batch = partial(batch, rewards=RewardConfig())
    driver.batch = driver._new_batch(2)
    return driver


def test_the_arena_tries_every_card_on_every_tile_from_both_seats_in_four_states_of_towers():
    answer = ask(arena(), LEGALITY)
    assert answer.masks is not None
    assert (answer.masks == answer.verdicts).all()
    assert answer.masks.shape == (len(answer.states), 1 + HAND_SIZE * HEIGHT * WIDTH)
    for card in CARDS:
        for slot in range(HAND_SIZE):
            seen = [s for s in answer.states if f"{slot} {card.name}," in s and "10 elixir" in s]
            # four states of the towers times two seats; a card is not dealt behind the last slot
            assert len(seen) == 4 * SEATS or f"{slot} {card.name}, 10" in seen[0]
    poor = [k for k, state in enumerate(answer.states) if ", 0 elixir" in state]
    assert len(poor) == 4 * SEATS * NUM_CARDS // HAND_SIZE
    assert answer.masks[poor].sum() == len(poor)  # waiting alone


def test_the_arena_plays_what_the_policy_means_in_all_961_actions():
    answer = ask(arena(), LAYOUT)
    assert answer.layout is not None
    expected = [[-1, -1, -1]]
    expected += [[s, y, x] for s in range(HAND_SIZE) for y in range(HEIGHT) for x in range(WIDTH)]
    assert answer.columns == ("slot", "row", "column")
    np.testing.assert_array_equal(answer.layout, expected)


def test_waiting_is_asked_for_in_a_thousand_states_ended_battles_among_them():
    answer = ask(arena(), WAITING)
    assert answer.masks is not None
    assert len(answer.states) == 1000
    assert answer.masks[:, 0].all()
    over = [k for k, state in enumerate(answer.states) if "over" in state]
    assert len(over) >= SEATS
    assert not answer.masks[over, 1:].any()
    assert answer.masks[:, 1:].any()


def test_probing_touches_no_battle_of_the_training():
    driver = arena()
    driver.reset(np.arange(driver.num_slots, dtype=np.uint64))
    before, seen = driver.batch.battles.raw.copy(), driver.batch.mask.copy()
    for question in (LAYOUT, WAITING, LEGALITY):
        ask(driver, question)
    np.testing.assert_array_equal(driver.batch.battles.raw, before)
    np.testing.assert_array_equal(driver.batch.mask, seen)


def test_a_question_that_the_arena_does_not_know_is_a_failure_in_words():
    with pytest.raises(ProbingFailedError, match="no answer to 'meaning of life'"):
        ask(arena(), "meaning of life")


def test_a_mask_that_is_wrong_for_one_card_on_one_tile_is_found_before_the_first_action(
    starts: Starts, monkeypatch
):
    driver = arena(WrongMasks)
    play_inline(monkeypatch, driver, "royale/arena")
    code, told = starts.server(*ARENA, "--inline", "arena", "--exp-name", "wrong")
    assert code == 2
    assert driver._turn is None, "no episode began"
    # 16 hands x 4 slots hold each card 4 times: 4 x 4 towers x 2 seats = 32 with all elixir, and
    # none with 3, since a Cleaver costs 4.
    assert CARDS[CARD].cost == 4
    assert (
        "mask-agreement: royale/arena, its masks: mask and environment disagree about 32 of" in told
    )
    assert "in 32 of 384 states" in told or "in 32 of" in told
    assert "(slot 0, row 9, column 5): the mask says legal, the environment refused it" in told
    assert "1 Cleaver" in told
    assert "correct the mask or the rules" in told
    assert list(starts.base.rglob("*.json*")) == []


def test_a_sound_arena_passes_and_says_so(starts: Starts, monkeypatch):
    play_inline(monkeypatch, arena(), "royale/arena")
    code, told = starts.doctor(*ARENA, "--inline", "arena")
    assert code == 0, told
    assert told.startswith("SAFE TO RUN: YES")
    assert "action-layout, no-op, mask-agreement" in told
