"""Random numbers by key: compiled and plain are the same, and deals come out of them alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_client.envs.arena.cards import NUM_CARDS
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.randomness import (
    mix,
    plain_mix,
    plain_random_below,
    plain_random_bits,
    plain_random_key,
    random_below,
    random_bits,
    random_key,
)
from royale_client.envs.arena.reference import ReferenceBattle
from royale_client.envs.arena.state import empty

WORDS = st.integers(0, 2**64 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)


def test_mixing_is_that_of_splitmix64():
    """The first outputs of SplitMix64 seeded with 0: state 0 + golden, 0 + 2 golden."""
    assert plain_random_bits(0, 0) == 0xE220A8397B1DCDAF
    assert plain_random_bits(0, 1) == 0x6E789E6AA1B965F4


@given(WORDS)
def test_the_compiled_mixer_is_the_plain_one(word):
    assert int(mix(np.uint64(word))) == plain_mix(word)


@given(seed=WORDS, battle=LONGS, ordinal=LONGS, purpose=st.integers(0, 9), n=st.integers(0, 2**40))
def test_compiled_keys_and_numbers_are_the_plain_ones(seed, battle, ordinal, purpose, n):
    key = random_key(np.uint64(seed), battle, ordinal, purpose)
    plain = plain_random_key(seed, battle, ordinal, purpose)
    assert int(key) == plain
    assert int(random_bits(np.uint64(key), n)) == plain_random_bits(plain, n)
    assert int(random_below(np.uint64(key), n, 16)) == plain_random_below(plain, n, 16)


@given(WORDS, st.integers(0, 2**40), st.integers(1, 2**32 - 1))
def test_bounded_numbers_stay_below_their_bound(key, counter, bound):
    assert 0 <= plain_random_below(key, counter, bound) < bound


def test_each_part_of_a_key_matters():
    keys = {
        plain_random_key(seed, battle, ordinal, purpose)
        for seed in range(4)
        for battle in range(4)
        for ordinal in range(4)
        for purpose in range(4)
    }
    assert len(keys) == 4**4


def test_a_deal_depends_on_its_key_and_not_on_the_slot_or_its_company():
    many, one = empty(20), empty(3)
    start(many, np.arange(20), seed=4, battle_ids=np.arange(20), ordinals=np.arange(20) % 3)
    start(one, [2], seed=4, battle_ids=17, ordinals=17 % 3)
    assert (one.raw[2] == many.raw[17]).all()


@pytest.mark.parametrize("swapped", [False, True])
def test_deals_are_those_of_the_reference(swapped):
    battles = empty(30)
    start(battles, range(30), seed=8, battle_ids=np.arange(30), ordinals=2, swapped=swapped)
    for i in range(30):
        reference = ReferenceBattle.deal(8, i, 2, swapped=swapped)
        for s in range(2):
            assert battles.deck[i, s].tolist() == reference.seats[s].deck
            assert battles.hand[i, s].tolist() == reference.seats[s].hand
            assert battles.queue[i, s].tolist() == reference.seats[s].queue


def test_cards_come_up_evenly_and_the_two_seats_are_dealt_independently():
    """4,000 decks: a card is in half of them, so 2,000 times, give or take 4.5 x 31.6 = 142."""
    battles = empty(2000)
    start(battles, range(2000), seed=1, battle_ids=np.arange(2000), ordinals=0)
    counts = np.bincount(battles.deck.ravel(), minlength=NUM_CARDS)
    assert (abs(counts - 2000) < 142).all()
    # A card lies in a given place of the pile in a sixteenth of 4,000 deals: 250 +- 4.5 x 15.3.
    piles = np.concatenate([battles.hand, battles.queue], axis=-1)
    for place in range(8):
        counts = np.bincount(piles[..., place].ravel(), minlength=NUM_CARDS)
        assert (abs(counts - 250) < 69).all()
    # Two independent decks of 8 out of 16 share 4 cards on average; of 2,000 the mean is +- 0.1.
    shared = (battles.deck[:, 0, :, None] == battles.deck[:, 1, None, :]).sum((1, 2))
    assert abs(shared.mean() - 4) < 0.1


def test_given_decks_are_dealt_in_drawn_order_and_swapped_with_it():
    decks = [[list(range(8)), list(range(8, 16))]] * 2
    battles = empty(2)
    start(battles, [0, 1], seed=1, battle_ids=5, ordinals=0, decks=decks, swapped=[False, True])
    assert battles.deck[0].tolist() == decks[0]
    assert sorted([*battles.hand[0, 0], *battles.queue[0, 0]]) == decks[0][0]
    for field in (battles.deck, battles.hand, battles.queue):
        assert (field[1] == field[0, ::-1]).all()
    reference = ReferenceBattle.deal(1, 5, 0, decks[0])
    assert reference.seats[1].hand == battles.hand[0, 1].tolist()


@pytest.mark.parametrize(
    ("which", "seed", "decks", "message"),
    [
        ([3], 1, None, "indices"),
        ([-1], 1, None, "indices"),
        ([0], -1, None, "seed -1"),
        ([0], 2**64, None, "seed"),
        ([0], 1, [[list(range(8))]], "shape"),
        ([0], 1, [[list(range(8)), [0.5] * 8]], "float64"),
        ([0], 1, [[list(range(8)), list(range(9, 17))]], "there are 16"),
        ([0], 1, [[list(range(8)), [1, 1, 2, 3, 4, 5, 6, 7]]], "twice"),
    ],
)
def test_impossible_starts_are_refused_and_change_nothing(which, seed, decks, message):
    battles = empty(3)
    before = battles.raw.copy()
    with pytest.raises(ValueError, match=message):
        start(battles, which, seed=seed, battle_ids=0, ordinals=0, decks=decks)
    assert (battles.raw == before).all()
