"""How a battle starts: which cards each seat has, and in which order, by key; the first state."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import NUM_CARDS
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.layout import DECK, HAND, SEAT_STARTS, SEAT_WORDS
from royale_client.envs.arena.randomness import (
    PURPOSE_DECK,
    PURPOSE_ORDER,
    random_below,
    random_key,
)
from royale_client.envs.arena.rules import DECK_SIZE, SEATS
from royale_client.envs.arena.state import Battles, empty


def start(
    battles: Battles,
    which: ArrayLike,
    *,
    seed: int,
    battle_ids: ArrayLike,
    ordinals: ArrayLike,
    decks: ArrayLike | None = None,
    swapped: ArrayLike = False,
) -> None:
    """Start some of the battles anew.

    A deal depends on (seed, battle id, ordinal) alone, so a battle with ``swapped`` is the twin of
    the one without: each seat has the cards, in the order, that the other one has there.

    Args:
        battles: Where.
        which: Indices of the battles to start, ``(k,)``.
        seed: Of the run, ``0 <= seed < 2^64``.
        battle_ids: ``(k,)`` or one for all; int64.
        ordinals: Which episode of its battle each one is, ``(k,)`` or one for all; int64.
        decks: Card ids ``(k, 2, 8)``, no card twice in a deck; None draws 8 of the 16 for each
            seat. The order in which they are dealt is drawn in both cases.
        swapped: Whether the seats exchange decks and orders, bool, ``(k,)`` or one for all.

    Raises:
        ValueError: An index, the seed or a deck is out of range.
    """
    chosen = np.atleast_1d(np.asarray(which, np.int64))
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < len(battles.raw):
        raise ValueError(f"start {which!r}: expected indices in [0, {len(battles.raw)})")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: expected 0 <= seed < 2^64")
    checked_decks = _checked_decks(decks, len(chosen))
    battles.raw[chosen] = _FIRST_STATE
    battles.seed[chosen] = seed
    battles.battle[chosen] = battle_ids
    battles.ordinal[chosen] = ordinals
    _deal(
        battles.raw,
        chosen,
        np.uint64(seed),
        battles.battle[chosen],
        battles.ordinal[chosen],
        checked_decks,
        np.broadcast_to(np.asarray(swapped), chosen.shape).copy(),
    )


def _checked_decks(decks: ArrayLike | None, count: int) -> NDArray[np.int8]:
    """Return decks as ``(count, 2, 8)``, or ``(0, 2, 8)`` where they are to be drawn."""
    if decks is None:
        return np.empty((0, SEATS, DECK_SIZE), np.int8)
    given = np.asarray(decks)
    if given.shape != (count, SEATS, DECK_SIZE) or given.dtype.kind not in "iu":
        raise ValueError(
            f"decks of shape {given.shape}, {given.dtype}: expected card ids, "
            f"({count}, {SEATS}, {DECK_SIZE})"
        )
    ascending = np.sort(given, axis=-1)
    if given.size and (given.min() < 0 or given.max() >= NUM_CARDS):
        raise ValueError(f"a deck holds cards {given.min()}..{given.max()}: there are {NUM_CARDS}")
    if (ascending[..., 1:] == ascending[..., :-1]).any():
        raise ValueError("a deck holds a card twice")
    return np.ascontiguousarray(given, np.int8)


def _first_state() -> NDArray[np.int32]:
    """Return the row of a battle at tick 0, without cards."""
    battles = empty(1)
    battles.outcome[:] = rules.RUNNING
    battles.elixir[:] = rules.ELIXIR_START
    battles.counted_elixir[:] = rules.ELIXIR_START
    battles.tower_hp[:] = rules.TOWER_HP
    battles.tower_target[:] = rules.LOST_TARGET
    row: NDArray[np.int32] = battles.raw[0]
    return row


_FIRST_STATE = _first_state()


@compiled
def _deal(  # noqa: PLR0917 - compiled functions take no keyword-only arguments
    raw: NDArray[np.int32],
    which: NDArray[np.int64],
    seed: np.uint64,
    battle_ids: NDArray[np.int64],
    ordinals: NDArray[np.int64],
    decks: NDArray[np.int8],
    swapped: NDArray[np.bool_],
) -> None:
    for k in range(len(which)):
        for seat in range(SEATS):
            dealt = 1 - seat if swapped[k] else seat
            begin = SEAT_STARTS[seat]
            own = raw[which[k], begin : begin + SEAT_WORDS]
            if len(decks) > 0:
                for place in range(DECK_SIZE):
                    own[DECK + place] = decks[k, dealt, place]
            else:
                key = random_key(seed, battle_ids[k], ordinals[k], PURPOSE_DECK[dealt])
                _draw_deck(own, key)
            _shuffle(own, random_key(seed, battle_ids[k], ordinals[k], PURPOSE_ORDER[dealt]))


@compiled
def _draw_deck(own: NDArray[np.int32], key: np.uint64) -> None:
    """Choose a deck, ascending."""
    chosen = 0
    for card in range(NUM_CARDS):
        # Selection sampling: of the cards left, as many as are still wanted, with equal chances.
        if random_below(key, card, NUM_CARDS - card) < DECK_SIZE - chosen:
            own[DECK + chosen] = card
            chosen += 1


@compiled
def _shuffle(own: NDArray[np.int32], key: np.uint64) -> None:
    """Deal the deck in drawn order: four cards to the hand, then four to the queue."""
    # Hand and queue lie side by side, as one pile of eight.
    for place in range(DECK_SIZE):
        own[HAND + place] = own[DECK + place]
    for place in range(DECK_SIZE - 1):
        here = HAND + place
        there = here + random_below(key, place, DECK_SIZE - place)
        own[here], own[there] = own[there], own[here]
