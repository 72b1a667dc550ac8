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
    CAP_TICKS,
    ELIXIR_CAP,
    ELIXIR_START,
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
"""Counters of a seat, by position in the part «counts»:

decisions; legal actions summed over them; decisions with another legal action than the no-op;
no-ops among those; no-ops in all; decisions with only the no-op legal; actions that were not
legal; elixir in 28ths summed over decisions; decisions with at least 99 % of full elixir.
"""
NEARLY_FULL_PERCENT = 99
MAX_PLAYS = int((ELIXIR_START + 2 * CAP_TICKS) // COST.min())
"""Plays that elixir allows a seat in an episode: at most two 28ths come in a tick."""

_SIZES = {
    "counts": 9,
    "decisions_at": ELIXIR_LEVELS,
    "choices_at": ELIXIR_LEVELS,
    "plays_at": ELIXIR_LEVELS,
    "in_hand": NUM_CARDS,
    "playable": NUM_CARDS,
    "played": NUM_CARDS,
    "tiles": TILES,
}
_ENDS = np.cumsum(list(_SIZES.values())).tolist()
PARTS: dict[str, slice] = {
    name: slice(end - size, end) for (name, size), end in zip(_SIZES.items(), _ENDS, strict=True)
}
"""Where each part of `Tallies.numbers` lies:

counts: see `STEPS` and its neighbours; decisions_at, choices_at: decisions, and those with a
choice, by whole elixir; plays_at: plays by whole elixir before the play; in_hand, playable, played:
by card, decisions with it in hand, decisions in which it could be played, its plays; tiles: plays
by tile, in the own frame.
"""
NUM_NUMBERS = _ENDS[-1]
_DECISIONS_AT, _CHOICES_AT, _PLAYS_AT, _IN_HAND, _PLAYABLE, _PLAYED, _TILES = (
    PARTS[name].start for name in list(PARTS)[1:]
)


class Tallies(NamedTuple):
    """Counters since the episode of each battle began; S = 2 seats."""

    numbers: _I8
    """``(N, S, NUM_NUMBERS)``; see `PARTS`."""
    terms: Floats
    """``(N, S, 2, 4)``; rewards by term, added up with their signs and without."""
    plays: NDArray[np.int16]
    """``(N, S, MAX_PLAYS)``; the seat's plays in their order, as card * TILES + own tile. As many
    count as the battle counts plays."""

    def part(self, name: str) -> _I8:
        """Return a view of one of `PARTS`, ``(N, S, entries)``."""
        return self.numbers[..., PARTS[name]]


def empty_tallies(n: int) -> Tallies:
    """Return counters of ``n`` battles, all zero."""
    return Tallies(
        np.zeros((n, 2, NUM_NUMBERS), np.int64),
        np.zeros((n, 2, 2, NUM_TERMS)),
        np.zeros((n, 2, MAX_PLAYS), np.int16),
    )


def begin(tallies: Tallies, which: _I8) -> None:
    """Set the counters of battles that were started to zero.

    Args:
        tallies: Counters of N battles.
        which: Indices of those started, ``(k,)``.
    """
    for array in tallies:
        array[which] = 0


def before(tallies: Tallies, battles: Battles, actions: NDArray[np.int32]) -> None:
    """Count what both seats could do and chose, before the step, in battles that are not over.

    Args:
        tallies: Counters of N battles.
        battles: N battles that have not been stepped yet.
        actions: ``(N, 2)``, about to be carried out.
    """
    _before(tallies.numbers, tallies.plays, battles.raw, actions)


def after(tallies: Tallies, terms: Floats) -> None:
    """Count what the step paid.

    Args:
        tallies: Counters of N battles.
        terms: ``(N, 2, 4)``, as `rewards.Rewards.terms`; zero for battles that did not move.
    """
    _after(tallies.terms, terms)


@compiled
def _before(numbers: _I8, plays: NDArray[np.int16], raw: Words, actions: NDArray[np.int32]) -> None:
    for i in range(raw.shape[0]):
        if raw[i, layout.OUTCOME] != RUNNING:
            continue
        for seat in range(2):
            own, enemy = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            counts = numbers[i, seat]
            elixir = own[layout.ELIXIR]
            level = elixir // ELIXIR_UNIT
            others = 0
            for slot in range(HAND_SIZE):
                card = own[layout.HAND + slot]
                tiles = open_tiles(own, enemy, slot)
                others += tiles
                counts[_IN_HAND + card] += 1
                if tiles > 0:
                    counts[_PLAYABLE + card] += 1
            action = actions[i, seat]
            counts[STEPS] += 1
            counts[LEGAL_ACTIONS] += 1 + others
            counts[ELIXIR_SUM] += elixir
            counts[_DECISIONS_AT + level] += 1
            if elixir * 100 >= NEARLY_FULL_PERCENT * ELIXIR_CAP:
                counts[NEARLY_FULL] += 1
            if others == 0:
                counts[FORCED_STEPS] += 1
            else:
                counts[CHOICE_STEPS] += 1
                counts[_CHOICES_AT + level] += 1
            if action == NO_OP:
                counts[NO_OPS] += 1
                counts[CHOICE_NO_OPS] += others > 0
            elif _is_legal(own, enemy, action):
                tile = (action - 1) % TILES
                card = own[layout.HAND + (action - 1) // TILES]
                counts[_PLAYS_AT + level] += 1
                counts[_PLAYED + card] += 1
                counts[_TILES + tile] += 1
                if own[layout.PLAYS] < MAX_PLAYS:
                    plays[i, seat, own[layout.PLAYS]] = card * TILES + tile
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
def _after(sums: Floats, terms: Floats) -> None:
    for i in range(terms.shape[0]):
        for seat in range(2):
            for term in range(NUM_TERMS):
                sums[i, seat, 0, term] += terms[i, seat, term]
                sums[i, seat, 1, term] += abs(terms[i, seat, term])
