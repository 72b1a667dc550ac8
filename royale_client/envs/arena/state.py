"""The state of N battles: one array per field, battles on the first axis, seats on the second.

Everything of a seat is stored in that seat's own frame, so a battle with its seats exchanged is the
same arrays with axis 1 reversed. Free slots hold fixed values (see `LAYOUT`), so equal battles are
equal bytes. Nothing here moves a battle on.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import (
    MAX_DELAY,
    MAX_HP,
    MAX_LIFETIME,
    MAX_PERIOD,
    MAX_STUN,
    NUM_CARDS,
)

_U1: TypeAlias = NDArray[np.uint8]
_I1: TypeAlias = NDArray[np.int8]
_I2: TypeAlias = NDArray[np.int16]
_I4: TypeAlias = NDArray[np.int32]
_I8: TypeAlias = NDArray[np.int64]
_U4: TypeAlias = NDArray[np.uint32]
_U8: TypeAlias = NDArray[np.uint64]


class Battles(NamedTuple):
    """N battles. S = 2 seats, U unit slots and P spell slots a seat; see `rules` for units."""

    seed: _U8
    """``(N,)``; with `battle` and `ordinal` the key of everything that is drawn."""
    battle: _I8
    """``(N,)``; which battle of the run."""
    ordinal: _I8
    """``(N,)``; which episode of this battle."""
    tick: _I4
    """``(N,)``; ticks played."""
    outcome: _I1
    """``(N,)``; 0 running, 1 seat 0 won, 2 seat 1 won, 3 draw. Only field, but `seed`, `battle`,
    `ordinal` and `tick`, without a seat axis: exchanged seats exchange 1 and 2."""

    elixir: _I4
    """``(N, S)``; 28ths."""
    counted_elixir: _I4
    """``(N, S)``; what the other seat knows of it by the clock and the plays it saw, 28ths."""
    crowns: _I1
    """``(N, S)``; towers this seat has taken; 3 with the enemy's keep."""
    keep_awake: _I1
    """``(N, S)``; 1 once the own keep was hit or an own flank tower fell."""
    play_status: _I1
    """``(N, S)``; what became of the action of the last decision, `rules.PLAY_*`."""
    plays: _I4
    """``(N, S)``; cards played."""
    refused: _I4
    """``(N, S)``; actions that were not carried out."""
    dropped: _I4
    """``(N, S)``; units and spells that found no free slot."""
    leak_decisions: _I4
    """``(N, S)``; decisions that began with elixir at the cap."""
    seen: _U4
    """``(N, S)``; bit c: the other seat has seen this seat play card c."""
    last_card: _I1
    """``(N, S)``; card of the last play, -1 before the first."""
    last_play_tick: _I4
    """``(N, S)``; tick of the last play, -1 before the first."""
    deck: _I1
    """``(N, S, 8)``; card ids, ascending when they were drawn here."""
    hand: _I1
    """``(N, S, 4)``"""
    queue: _I1
    """``(N, S, 4)``; the next card first; a played card goes to the back."""

    tower_hp: _I4
    """``(N, S, 3)``; 0 = fallen."""
    tower_cooldown: _I2
    """``(N, S, 3)``; ticks until it may shoot."""
    tower_target: _I2
    """``(N, S, 3)``; unit slot of the enemy, -1 none, -2 to be chosen."""
    tower_stun: _I2
    """``(N, S, 3)``; ticks of stun left."""
    tower_stunned: _I1
    """``(N, S, 3)``; 1 if stunned at any time since the last decision began."""

    unit_card: _I1
    """``(N, S, U)``; -1 = free slot."""
    unit_hp: _I4
    """``(N, S, U)``; 0 in a free slot."""
    unit_x: _I4
    """``(N, S, U)``; own frame; 0 in a free slot."""
    unit_y: _I4
    """``(N, S, U)``; own frame; 0 in a free slot."""
    unit_cooldown: _I2
    """``(N, S, U)``; ticks until it may attack, or let a unit out; 0 in a free slot."""
    unit_deploy: _I2
    """``(N, S, U)``; ticks until it acts at all; 0 in a free slot."""
    unit_stun: _I2
    """``(N, S, U)``; ticks of stun left; 0 in a free slot."""
    unit_stunned: _I1
    """``(N, S, U)``; 1 if stunned at any time since the last decision began."""
    unit_target: _I2
    """``(N, S, U)``; unit slot of the enemy, 32 + t its tower t, -1 none, -2 to be chosen; -1 in a
    free slot."""
    unit_life: _I2
    """``(N, S, U)``; ticks until a building is gone; -1 without end and in a free slot."""

    spell_card: _I1
    """``(N, S, P)``; -1 = free slot."""
    spell_x: _I4
    """``(N, S, P)``; own frame; 0 in a free slot."""
    spell_y: _I4
    """``(N, S, P)``; own frame; 0 in a free slot."""
    spell_delay: _I2
    """``(N, S, P)``; ticks until it lands; 0 in a free slot."""


class Field(NamedTuple):
    """How a field of `Battles` is stored, and which values a battle can hold in it."""

    dtype: DTypeLike
    tail: tuple[int, ...]
    """Shape of one battle."""
    low: int
    high: int
    blank: int = 0
    """Value of a free slot, and of a battle that was never started."""


_S, _U, _P, _T = rules.SEATS, rules.UNIT_SLOTS, rules.SPELL_SLOTS, rules.TOWERS
_MANY = 2**31 - 1

LAYOUT: dict[str, Field] = {
    "seed": Field(np.uint64, (), 0, 2**64 - 1),
    "battle": Field(np.int64, (), -(2**63), 2**63 - 1),
    "ordinal": Field(np.int64, (), -(2**63), 2**63 - 1),
    "tick": Field(np.int32, (), 0, rules.CAP_TICKS),
    "outcome": Field(np.int8, (), rules.RUNNING, rules.DRAWN, rules.DRAWN),
    "elixir": Field(np.int32, (_S,), 0, rules.ELIXIR_CAP),
    "counted_elixir": Field(np.int32, (_S,), 0, rules.ELIXIR_CAP),
    "crowns": Field(np.int8, (_S,), 0, rules.CROWNS_TO_WIN),
    "keep_awake": Field(np.int8, (_S,), 0, 1),
    "play_status": Field(np.int8, (_S,), 0, len(rules.PLAY_STATUS_NAMES) - 1),
    "plays": Field(np.int32, (_S,), 0, _MANY),
    "refused": Field(np.int32, (_S,), 0, _MANY),
    "dropped": Field(np.int32, (_S,), 0, _MANY),
    "leak_decisions": Field(np.int32, (_S,), 0, _MANY),
    "seen": Field(np.uint32, (_S,), 0, 2**NUM_CARDS - 1),
    "last_card": Field(np.int8, (_S,), -1, NUM_CARDS - 1, -1),
    "last_play_tick": Field(np.int32, (_S,), -1, rules.CAP_TICKS, -1),
    "deck": Field(np.int8, (_S, rules.DECK_SIZE), 0, NUM_CARDS - 1),
    "hand": Field(np.int8, (_S, rules.HAND_SIZE), 0, NUM_CARDS - 1),
    "queue": Field(np.int8, (_S, rules.QUEUE_SIZE), 0, NUM_CARDS - 1),
    "tower_hp": Field(np.int32, (_S, _T), 0, max(rules.TOWER_HP)),
    "tower_cooldown": Field(np.int16, (_S, _T), 0, max(rules.TOWER_PERIOD)),
    "tower_target": Field(np.int16, (_S, _T), rules.LOST_TARGET, _U - 1, rules.NO_TARGET),
    "tower_stun": Field(np.int16, (_S, _T), 0, MAX_STUN),
    "tower_stunned": Field(np.int8, (_S, _T), 0, 1),
    "unit_card": Field(np.int8, (_S, _U), -1, NUM_CARDS - 1, -1),
    "unit_hp": Field(np.int32, (_S, _U), 0, MAX_HP),
    "unit_x": Field(np.int32, (_S, _U), 0, rules.WIDTH_UNITS),
    "unit_y": Field(np.int32, (_S, _U), 0, rules.HEIGHT_UNITS),
    "unit_cooldown": Field(np.int16, (_S, _U), 0, MAX_PERIOD),
    "unit_deploy": Field(np.int16, (_S, _U), 0, rules.DEPLOY_TICKS),
    "unit_stun": Field(np.int16, (_S, _U), 0, MAX_STUN),
    "unit_stunned": Field(np.int8, (_S, _U), 0, 1),
    "unit_target": Field(np.int16, (_S, _U), rules.LOST_TARGET, _U + _T - 1, rules.NO_TARGET),
    "unit_life": Field(np.int16, (_S, _U), -1, MAX_LIFETIME, -1),
    "spell_card": Field(np.int8, (_S, _P), -1, NUM_CARDS - 1, -1),
    "spell_x": Field(np.int32, (_S, _P), 0, rules.WIDTH_UNITS),
    "spell_y": Field(np.int32, (_S, _P), 0, rules.HEIGHT_UNITS),
    "spell_delay": Field(np.int16, (_S, _P), 0, MAX_DELAY),
}


def empty(n: int) -> Battles:
    """Return room for ``n`` battles, none of them started: all are over (drawn) at tick 0."""
    return _made([np.full((n, *f.tail), f.blank, f.dtype) for f in LAYOUT.values()])


def copy(battles: Battles) -> Battles:
    """Return the same battles in arrays of their own."""
    return _made([array.copy() for array in arrays_of(battles)])


def copy_into(source: Battles, i: int, target: Battles, j: int) -> None:
    """Make battle ``j`` of ``target`` the same as battle ``i`` of ``source``."""
    for here, there in zip(arrays_of(source), arrays_of(target), strict=True):
        there[j] = here[i]


def arrays_of(battles: Battles) -> tuple[NDArray[Any], ...]:
    """Return the arrays in the order of the fields, for loops over all of them."""
    return battles[:]  # a slice of a named tuple is a plain one


def _made(arrays: list[NDArray[Any]]) -> Battles:
    return Battles(*arrays)
