"""What a seat-episode adds up to: counters of N battles and both seats, one pass per decision.

Two passes around `kernels.step`: `before` counts what a seat could do and chose, `after` what the
step paid. The battle itself counts plays, refusals and leaks (see `state`). Nothing here knows how
metrics are named; `records` does.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.cards import COST, KIND, NUM_CARDS
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.reward_config import NUM_TERMS
from royale_client.envs.arena.rewards import Floats
from royale_client.envs.arena.rules import (
    ACTIONS,
    ELIXIR_CAP,
    ELIXIR_UNIT,
    HAND_SIZE,
    NO_OP,
    RUNNING,
    TILES,
)
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tensors import Words, block_of, open_tiles, sides_open_to
from royale_client.envs.arena.territory import ZONES

_I8: TypeAlias = NDArray[np.int64]

ELIXIR_LEVELS = ELIXIR_CAP // ELIXIR_UNIT + 1
"""Whole elixir from 0 to 10."""
(
    STEPS,
    LEGAL_ACTIONS,
    CHOICE_STEPS,
    CHOICE_NO_OPS,
    NO_OPS,
    FORCED_STEPS,
    ILLEGAL,
    ELIXIR_SUM,
    NEARLY_FULL,
) = range(9)
"""Counters of a seat, by position in `Tallies.counts`:

decisions; legal actions summed over them; decisions with another legal action than the no-op;
no-ops among those; no-ops in all; decisions with only the no-op legal; actions that were not
legal; elixir in 28ths summed over decisions; decisions with at least 99 % of full elixir.
"""
NUM_COUNTS = 9
NEARLY_FULL_PERCENT = 99


class Tallies(NamedTuple):
    """Counters since the episode of each battle began; S = 2 seats, C = 16 cards."""

    counts: _I8
    """``(N, S, 9)``; see `STEPS` and its neighbours."""
    decisions_at: _I8
    """``(N, S, 11)``; decisions, by whole elixir."""
    choices_at: _I8
    """``(N, S, 11)``; decisions with a choice, by whole elixir."""
    plays_at: _I8
    """``(N, S, 11)``; plays, by whole elixir before the play."""
    in_hand: _I8
    """``(N, S, C)``; decisions with the card in hand."""
    playable: _I8
    """``(N, S, C)``; decisions in which the card could be played."""
    played: _I8
    """``(N, S, C)``; plays of the card."""
    tiles: _I8
    """``(N, S, TILES)``; plays by tile, in the own frame."""
    term_sums: Floats
    """``(N, S, 4)``; rewards by term, added up with their signs."""
    term_magnitudes: Floats
    """``(N, S, 4)``; rewards by term, added up without them."""


def empty_tallies(n: int) -> Tallies:
    """Return counters of ``n`` battles, all zero."""
    sizes = [NUM_COUNTS, *3 * [ELIXIR_LEVELS], *3 * [NUM_CARDS], TILES]
    whole = [np.zeros((n, 2, size), np.int64) for size in sizes]
    return Tallies._make([*whole, np.zeros((n, 2, NUM_TERMS)), np.zeros((n, 2, NUM_TERMS))])


def begin(tallies: Tallies, which: _I8) -> None:
    """Set the counters of battles that were started to zero.

    Args:
        tallies: Counters of N battles.
        which: Indices of those started, ``(k,)``.
    """
    for array in tallies:
        array[which] = 0


def before(tallies: Tallies, battles: Battles, actions: NDArray[np.int32], placed: _I8) -> None:
    """Count what both seats could do and chose, before the step, in battles that are not over.

    Args:
        tallies: Counters of N battles.
        battles: N battles that have not been stepped yet.
        actions: ``(N, 2)``, about to be carried out.
        placed: ``(2, C, TILES)``; legal plays are added to it, by seat, card and own tile.
    """
    _before(tallies, battles.raw, actions, placed)


def after(tallies: Tallies, terms: Floats) -> None:
    """Count what the step paid.

    Args:
        tallies: Counters of N battles.
        terms: ``(N, 2, 4)``, as `rewards.Rewards.terms`; zero for battles that did not move.
    """
    _after(tallies.term_sums, tallies.term_magnitudes, terms)


@compiled
def _before(tallies: Tallies, raw: Words, actions: NDArray[np.int32], placed: _I8) -> None:
    for i in range(raw.shape[0]):
        if raw[i, layout.OUTCOME] != RUNNING:
            continue
        for seat in range(2):
            own, enemy = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            counts = tallies.counts[i, seat]
            elixir = own[layout.ELIXIR]
            level = elixir // ELIXIR_UNIT
            others = 0
            for slot in range(HAND_SIZE):
                card = own[layout.HAND + slot]
                tiles = open_tiles(own, enemy, slot)
                others += tiles
                tallies.in_hand[i, seat, card] += 1
                if tiles > 0:
                    tallies.playable[i, seat, card] += 1
            action = actions[i, seat]
            counts[STEPS] += 1
            counts[LEGAL_ACTIONS] += 1 + others
            counts[ELIXIR_SUM] += elixir
            tallies.decisions_at[i, seat, level] += 1
            if elixir * 100 >= NEARLY_FULL_PERCENT * ELIXIR_CAP:
                counts[NEARLY_FULL] += 1
            if others == 0:
                counts[FORCED_STEPS] += 1
            else:
                counts[CHOICE_STEPS] += 1
                tallies.choices_at[i, seat, level] += 1
            if action == NO_OP:
                counts[NO_OPS] += 1
                counts[CHOICE_NO_OPS] += others > 0
            elif _is_legal(own, enemy, action):
                tile = (action - 1) % TILES
                card = own[layout.HAND + (action - 1) // TILES]
                tallies.plays_at[i, seat, level] += 1
                tallies.played[i, seat, card] += 1
                tallies.tiles[i, seat, tile] += 1
                placed[seat, card, tile] += 1
            else:
                counts[ILLEGAL] += 1


@compiled
def _is_legal(own: Words, enemy: Words, action: int) -> bool:
    if not 1 <= action < ACTIONS:
        return False
    card = own[layout.HAND + (action - 1) // TILES]
    zone = ZONES[KIND[card], sides_open_to(enemy)]
    return bool(COST[card] <= own[layout.ELIXIR] and zone[(action - 1) % TILES] != 0)


@compiled
def _after(sums: Floats, magnitudes: Floats, terms: Floats) -> None:
    for i in range(terms.shape[0]):
        for seat in range(2):
            for term in range(NUM_TERMS):
                sums[i, seat, term] += terms[i, seat, term]
                magnitudes[i, seat, term] += abs(terms[i, seat, term])
