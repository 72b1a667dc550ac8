"""A battle as bytes: it goes on elsewhere as it would have here, and damage is refused."""

import zlib

import numpy as np
import pytest

from royale_client.envs.arena import rules
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.layout import ROW_WORDS
from royale_client.envs.arena.snapshots import (
    SNAPSHOT_BYTES,
    SNAPSHOT_VERSION,
    restore,
    snapshot,
)
from royale_client.envs.arena.state import copy, empty

HEADER_BYTES = SNAPSHOT_BYTES - 4 * ROW_WORDS


@pytest.fixture
def midway(deal, random_actions):
    """Eight battles after 150 decisions, with units and towers in every condition."""
    battles, draws = deal(8), np.random.default_rng(11)
    for _ in range(150):
        step(battles, random_actions(battles, draws, wait=0.8))
    assert (battles.outcome == rules.RUNNING).any()
    assert (battles.unit_card >= 0).any()
    return battles


def test_a_battle_goes_on_in_another_slot_of_other_battles_byte_for_byte(midway, random_actions):
    running = np.flatnonzero(midway.outcome == rules.RUNNING)
    elsewhere = empty(16)
    for i in running:
        restore(elsewhere, 15 - i, snapshot(midway, i))
    draws = np.random.default_rng(12)
    for _ in range(250):
        actions = random_actions(midway, draws, wait=0.8)
        there = np.zeros((16, 2), np.int32)
        there[15 - running] = actions[running]
        step(midway, actions)
        step(elsewhere, there)
        assert (elsewhere.raw[15 - running] == midway.raw[running]).all()
    assert (midway.outcome != rules.RUNNING).all()


def test_every_state_of_a_battle_can_be_taken_and_restored(deal, random_actions):
    battles, draws = deal(16, seed=5), np.random.default_rng(13)
    target = empty(1)
    while (battles.outcome == rules.RUNNING).any():
        step(battles, random_actions(battles, draws, wait=0.7))
        i = draws.integers(16)
        restore(target, 0, snapshot(battles, i))
        assert (target.raw[0] == battles.raw[i]).all()


def test_a_snapshot_has_its_declared_length(midway):
    assert len(snapshot(midway, 0)) == SNAPSHOT_BYTES


@pytest.mark.parametrize("length", [0, 10, SNAPSHOT_BYTES - 1, SNAPSHOT_BYTES + 1])
def test_another_length_is_refused(midway, length):
    data = (snapshot(midway, 0) + b"\0")[:length]
    with pytest.raises(ValueError, match=f"{length} bytes"):
        restore(midway, 0, data)


def test_another_version_is_refused(midway):
    data = bytearray(snapshot(midway, 0))
    data[4] = SNAPSHOT_VERSION + 1
    with pytest.raises(ValueError, match=f"version {SNAPSHOT_VERSION + 1}"):
        restore(midway, 0, bytes(data))


def test_a_snapshot_taken_under_other_rules_is_refused(midway):
    data = bytearray(snapshot(midway, 0))
    data[8] ^= 1
    with pytest.raises(ValueError, match="other rules"):
        restore(midway, 0, bytes(data))


def test_every_flipped_byte_is_refused_and_the_slot_left_as_it_was(midway):
    data, before = snapshot(midway, 0), midway.raw.copy()
    for place in range(0, SNAPSHOT_BYTES, 37):
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        with pytest.raises(ValueError, match="battle snapshot"):
            restore(midway, 1, bytes(damaged))
    assert (midway.raw == before).all()


def spoilt(midway, field, index, value) -> bytes:
    """Return a snapshot of a battle with one number changed, and a checksum that fits it."""
    battles = copy(midway)
    getattr(battles, field)[(0, *index)] = value
    return snapshot(battles, 0)


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("tick", (), rules.CAP_TICKS + 5, "tick from"),
        ("tick", (), 7, "within a decision"),
        ("outcome", (), 4, "outcome from"),
        ("elixir", (0,), rules.ELIXIR_CAP + 1, "elixir from"),
        ("counted_elixir", (1,), -1, "counted_elixir from"),
        ("seen", (0,), 2**16, "seen from"),
        ("hand", (0, 0), 16, "hand from"),
        ("queue", (1, 3), -1, "queue from"),
        ("tower_hp", (0, 1), 3000, "too many hit points"),
        ("tower_hp", (0, 0), -1, "tower_hp from"),
        ("tower_target", (0, 1), 32, "tower_target from"),
        ("unit_card", (0, 31), 16, "unit_card from"),
        ("unit_card", (0, 31), 12, "a unit that is a spell"),
        ("unit_card", (0, 31), 0, "impossible hit points"),
        ("unit_x", (1, 31), rules.WIDTH_UNITS + 1, "unit_x from"),
        ("unit_y", (1, 31), -1, "unit_y from"),
        ("unit_y", (1, 31), 500, "unit_y without a unit"),
        ("unit_target", (0, 31), 35, "unit_target from"),
        ("unit_target", (0, 31), 0, "unit_target without a unit"),
        ("tower_target", (0, 1), 31, "a target that is not there"),
        ("unit_stun", (0, 31), 99, "unit_stun from"),
        ("spell_card", (0, 7), 0, "a spell that is a unit"),
        ("spell_card", (0, 7), 14, "another delay"),
        ("spell_x", (0, 7), 1, "spell_x without one"),
        ("crowns", (0,), 2, "crowns"),
    ],
)
def test_numbers_that_play_cannot_reach_are_refused(deal, field, index, value, message):
    with pytest.raises(ValueError, match=message):
        restore(empty(1), 0, spoilt(deal(1), field, index, value))


def test_a_deck_with_a_card_twice_is_refused(deal):
    battles = deal(1)
    battles.deck[0, 0] = battles.hand[0, 0, 0]
    with pytest.raises(ValueError, match="card twice"):
        restore(empty(1), 0, snapshot(battles, 0))


def test_a_hand_that_is_not_from_the_deck_is_refused(deal):
    battles = deal(1)
    battles.hand[0, 0, 0] = battles.hand[0, 0, 1]
    with pytest.raises(ValueError, match="not the deck"):
        restore(empty(1), 0, snapshot(battles, 0))


def test_the_checksum_is_of_the_row(midway):
    data = snapshot(midway, 0)
    assert int.from_bytes(data[HEADER_BYTES - 4 : HEADER_BYTES], "little") == zlib.crc32(
        data[HEADER_BYTES:]
    )
