"""The state of N battles: one array per field, battles on the first axis, seats on the second.

Everything of a seat is stored in that seat's own frame, so a battle with its seats exchanged is the
same arrays with axis 1 reversed. Free slots hold fixed values (`layout.Field.blank`), so equal
battles are equal bytes. Nothing here moves a battle on.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena.layout import (
    HEAD_FIELDS,
    HEAD_OFFSETS,
    HEAD_WORDS,
    ROW_WORDS,
    SEAT_FIELDS,
    SEAT_OFFSETS,
    SEAT_WORDS,
    Field,
)
from royale_client.envs.arena.rules import SEATS

_I4: TypeAlias = NDArray[np.int32]
_I8: TypeAlias = NDArray[np.int64]
_U4: TypeAlias = NDArray[np.uint32]
_U8: TypeAlias = NDArray[np.uint64]


class Battles(NamedTuple):
    """N battles. S = 2 seats, U unit slots and P spell slots a seat; see `rules` for units.

    Every other field is a view into `raw`.
    """

    raw: _I4
    """``(N, ROW_WORDS)``; a battle in one row, as `layout` says; what kernels work on."""

    seed: _U8
    """``(N,)``; with `battle` and `ordinal` the key of everything that is drawn."""
    battle: _I8
    """``(N,)``; which battle of the run."""
    ordinal: _I8
    """``(N,)``; which episode of this battle."""
    tick: _I4
    """``(N,)``; ticks played."""
    outcome: _I4
    """``(N,)``; 0 running, 1 seat 0 won, 2 seat 1 won, 3 draw. Exchanged seats
    exchange 1 and 2."""

    elixir: _I4
    """``(N, S)``; 28ths."""
    counted_elixir: _I4
    """``(N, S)``; what the other seat knows of it by the clock and the plays it saw, 28ths."""
    crowns: _I4
    """``(N, S)``; towers this seat has taken; 3 with the enemy's keep."""
    keep_awake: _I4
    """``(N, S)``; 1 once the own keep was hit or an own flank tower fell."""
    play_status: _I4
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
    last_card: _I4
    """``(N, S)``; card of the last play, -1 before the first."""
    last_play_tick: _I4
    """``(N, S)``; tick of the last play, -1 before the first."""
    deck: _I4
    """``(N, S, 8)``; card ids, ascending when they were drawn here."""
    hand: _I4
    """``(N, S, 4)``"""
    queue: _I4
    """``(N, S, 4)``; the next card first; a played card goes to the back."""

    tower_hp: _I4
    """``(N, S, 3)``; 0 = fallen."""
    tower_cooldown: _I4
    """``(N, S, 3)``; ticks until it may shoot."""
    tower_target: _I4
    """``(N, S, 3)``; unit slot of the enemy, -1 none, -2 to be chosen."""
    tower_stun: _I4
    """``(N, S, 3)``; ticks of stun left."""
    tower_stunned: _I4
    """``(N, S, 3)``; 1 if stunned at any time since the last decision began."""

    unit_card: _I4
    """``(N, S, U)``; -1 = free slot."""
    unit_hp: _I4
    """``(N, S, U)``; 0 in a free slot."""
    unit_x: _I4
    """``(N, S, U)``; own frame; 0 in a free slot."""
    unit_y: _I4
    """``(N, S, U)``; own frame; 0 in a free slot."""
    unit_cooldown: _I4
    """``(N, S, U)``; ticks until it may attack, or let a unit out; 0 in a free slot."""
    unit_deploy: _I4
    """``(N, S, U)``; ticks until it acts at all; 0 in a free slot."""
    unit_stun: _I4
    """``(N, S, U)``; ticks of stun left; 0 in a free slot."""
    unit_stunned: _I4
    """``(N, S, U)``; 1 if stunned at any time since the last decision began."""
    unit_target: _I4
    """``(N, S, U)``; unit slot of the enemy, 32 + t its tower t, -1 none, -2 to be chosen; -1 in a
    free slot."""
    unit_life: _I4
    """``(N, S, U)``; ticks until a building is gone; -1 without end and in a free slot."""

    spell_card: _I4
    """``(N, S, P)``; -1 = free slot."""
    spell_x: _I4
    """``(N, S, P)``; own frame; 0 in a free slot."""
    spell_y: _I4
    """``(N, S, P)``; own frame; 0 in a free slot."""
    spell_delay: _I4
    """``(N, S, P)``; ticks until it lands; 0 in a free slot."""


def empty(n: int) -> Battles:
    """Return room for ``n`` battles, none of them started: all are over (drawn) at tick 0."""
    battles = views_of(np.zeros((n, ROW_WORDS), np.int32))
    for name, field in (HEAD_FIELDS | SEAT_FIELDS).items():
        getattr(battles, name)[...] = field.blank
    return battles


def views_of(raw: _I4) -> Battles:
    """Return the battles that lie in rows ``(N, ROW_WORDS)``, without a copy."""
    seats = raw[:, HEAD_WORDS:].reshape(len(raw), SEATS, SEAT_WORDS)
    views = {name: _view(raw, HEAD_OFFSETS[name], field) for name, field in HEAD_FIELDS.items()}
    views |= {name: _view(seats, SEAT_OFFSETS[name], field) for name, field in SEAT_FIELDS.items()}
    return Battles(raw=raw, **views)


def copy(battles: Battles) -> Battles:
    """Return the same battles in memory of their own."""
    return views_of(battles.raw.copy())


def _view(words: _I4, offset: int, field: Field) -> NDArray[Any]:
    """Return one field out of the last axis, in its own type and shape."""
    view = words[..., offset : offset + field.words].view(field.dtype)
    return view if field.tail else view[..., 0]
