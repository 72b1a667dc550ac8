"""Where each number of a battle lies: a row of int32 for each, with a head and a block a seat.

Kernels work on a seat's block and its enemy's (``own[UNIT_X + u]``), so no rule can tell the seats
apart; `state.Battles` shows the same memory as one array per field.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import (
    MAX_DELAY,
    MAX_HP,
    MAX_LIFETIME,
    MAX_PERIOD,
    MAX_STUN,
    NUM_CARDS,
)


class Field(NamedTuple):
    """How a field is stored, and which values a battle can hold in it."""

    tail: tuple[int, ...]
    """Shape of one battle, or of one seat of it."""
    low: int
    high: int
    blank: int = 0
    """Value of a free slot, and of a battle that was never started."""
    dtype: DTypeLike = np.int32

    @property
    def words(self) -> int:
        """Number of int32 it takes."""
        return int(np.prod(self.tail, dtype=np.int64)) * np.dtype(self.dtype).itemsize // 4


_U, _P, _T = (rules.UNIT_SLOTS,), (rules.SPELL_SLOTS,), (rules.TOWERS,)
_MANY = 2**31 - 1

HEAD_FIELDS: dict[str, Field] = {
    "seed": Field((), 0, 2**64 - 1, dtype=np.uint64),
    "battle": Field((), -(2**63), 2**63 - 1, dtype=np.int64),
    "ordinal": Field((), -(2**63), 2**63 - 1, dtype=np.int64),
    "tick": Field((), 0, rules.CAP_TICKS),
    "outcome": Field((), rules.RUNNING, rules.DRAWN, rules.DRAWN),
}
"""Of a battle, once."""

SEAT_FIELDS: dict[str, Field] = {
    "elixir": Field((), 0, rules.ELIXIR_CAP),
    "counted_elixir": Field((), 0, rules.ELIXIR_CAP),
    "crowns": Field((), 0, rules.CROWNS_TO_WIN),
    "keep_awake": Field((), 0, 1),
    "play_status": Field((), 0, len(rules.PLAY_STATUS_NAMES) - 1),
    "plays": Field((), 0, _MANY),
    "refused": Field((), 0, _MANY),
    "dropped": Field((), 0, _MANY),
    "leak_decisions": Field((), 0, _MANY),
    "seen": Field((), 0, 2**NUM_CARDS - 1, dtype=np.uint32),
    "last_card": Field((), -1, NUM_CARDS - 1, -1),
    "last_play_tick": Field((), -1, rules.CAP_TICKS, -1),
    "deck": Field((rules.DECK_SIZE,), 0, NUM_CARDS - 1),
    "hand": Field((rules.HAND_SIZE,), 0, NUM_CARDS - 1),
    "queue": Field((rules.QUEUE_SIZE,), 0, NUM_CARDS - 1),
    "tower_hp": Field(_T, 0, max(rules.TOWER_HP)),
    "tower_cooldown": Field(_T, 0, max(rules.TOWER_PERIOD)),
    "tower_target": Field(_T, rules.LOST_TARGET, rules.UNIT_SLOTS - 1, rules.NO_TARGET),
    "tower_stun": Field(_T, 0, MAX_STUN),
    "tower_stunned": Field(_T, 0, 1),
    "unit_card": Field(_U, -1, NUM_CARDS - 1, -1),
    "unit_hp": Field(_U, 0, MAX_HP),
    "unit_x": Field(_U, 0, rules.WIDTH_UNITS),
    "unit_y": Field(_U, 0, rules.HEIGHT_UNITS),
    "unit_cooldown": Field(_U, 0, MAX_PERIOD),
    "unit_deploy": Field(_U, 0, rules.DEPLOY_TICKS),
    "unit_stun": Field(_U, 0, MAX_STUN),
    "unit_stunned": Field(_U, 0, 1),
    "unit_target": Field(
        _U, rules.LOST_TARGET, rules.TOWER_TARGETS + rules.TOWERS - 1, rules.NO_TARGET
    ),
    "unit_life": Field(_U, -1, MAX_LIFETIME, -1),
    "spell_card": Field(_P, -1, NUM_CARDS - 1, -1),
    "spell_x": Field(_P, 0, rules.WIDTH_UNITS),
    "spell_y": Field(_P, 0, rules.HEIGHT_UNITS),
    "spell_delay": Field(_P, 0, MAX_DELAY),
}
"""Of a seat, in its own frame."""


def _offsets(fields: dict[str, Field]) -> tuple[dict[str, int], int]:
    """Return where each field starts, and the even number of words of all of them."""
    offsets, end = {}, 0
    for name, field in fields.items():
        offsets[name] = end
        end += field.words
    return offsets, end + end % 2


HEAD_OFFSETS, HEAD_WORDS = _offsets(HEAD_FIELDS)
SEAT_OFFSETS, SEAT_WORDS = _offsets(SEAT_FIELDS)
ROW_WORDS = HEAD_WORDS + rules.SEATS * SEAT_WORDS
SEAT_STARTS = (HEAD_WORDS, HEAD_WORDS + SEAT_WORDS)

TICK = HEAD_OFFSETS["tick"]
OUTCOME = HEAD_OFFSETS["outcome"]

ELIXIR = SEAT_OFFSETS["elixir"]
COUNTED_ELIXIR = SEAT_OFFSETS["counted_elixir"]
CROWNS = SEAT_OFFSETS["crowns"]
KEEP_AWAKE = SEAT_OFFSETS["keep_awake"]
PLAY_STATUS = SEAT_OFFSETS["play_status"]
PLAYS = SEAT_OFFSETS["plays"]
REFUSED = SEAT_OFFSETS["refused"]
DROPPED = SEAT_OFFSETS["dropped"]
LEAK_DECISIONS = SEAT_OFFSETS["leak_decisions"]
SEEN = SEAT_OFFSETS["seen"]
LAST_CARD = SEAT_OFFSETS["last_card"]
LAST_PLAY_TICK = SEAT_OFFSETS["last_play_tick"]
DECK = SEAT_OFFSETS["deck"]
HAND = SEAT_OFFSETS["hand"]
QUEUE = SEAT_OFFSETS["queue"]
TOWER_HP = SEAT_OFFSETS["tower_hp"]
TOWER_COOLDOWN = SEAT_OFFSETS["tower_cooldown"]
TOWER_TARGET = SEAT_OFFSETS["tower_target"]
TOWER_STUN = SEAT_OFFSETS["tower_stun"]
TOWER_STUNNED = SEAT_OFFSETS["tower_stunned"]
UNIT_CARD = SEAT_OFFSETS["unit_card"]
UNIT_HP = SEAT_OFFSETS["unit_hp"]
UNIT_X = SEAT_OFFSETS["unit_x"]
UNIT_Y = SEAT_OFFSETS["unit_y"]
UNIT_COOLDOWN = SEAT_OFFSETS["unit_cooldown"]
UNIT_DEPLOY = SEAT_OFFSETS["unit_deploy"]
UNIT_STUN = SEAT_OFFSETS["unit_stun"]
UNIT_STUNNED = SEAT_OFFSETS["unit_stunned"]
UNIT_TARGET = SEAT_OFFSETS["unit_target"]
UNIT_LIFE = SEAT_OFFSETS["unit_life"]
SPELL_CARD = SEAT_OFFSETS["spell_card"]
SPELL_X = SEAT_OFFSETS["spell_x"]
SPELL_Y = SEAT_OFFSETS["spell_y"]
SPELL_DELAY = SEAT_OFFSETS["spell_delay"]
