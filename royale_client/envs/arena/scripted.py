"""Scripted players without foresight, for many battles at once; they keep no state of their own.

What a bot draws is keyed by the row (`bot_keys`) and the tick, so an action depends on nothing but
the state it is asked about and its key. Exchanged seats with exchanged keys get exchanged actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.cards import KIND
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.heuristics import (
    defend_action,
    heuristic_action,
    push_action,
)
from royale_client.envs.arena.randomness import PURPOSE_BOT, random_below, random_key
from royale_client.envs.arena.rules import ELIXIR_UNIT, HAND_SIZE, NO_OP, RUNNING, SEATS, TILES
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tensors import Words, block_of, open_tiles, sides_open_to
from royale_client.envs.arena.territory import ZONES

Keys: TypeAlias = NDArray[np.uint64]
Seats: TypeAlias = NDArray[np.bool_]
Actions: TypeAlias = NDArray[np.int32]

DRAWS = 64
"""Random numbers a bot may use per tick."""


class Bot(ABC):
    """A player of any number of battles."""

    @abstractmethod
    def act(self, battles: Battles, seats: Seats, keys: Keys) -> Actions:
        """Choose an action for some seats.

        Args:
            battles: N battles; they are not changed.
            seats: ``(N, 2)``: which seats to play for.
            keys: ``(N, 2)``: key of what each seat draws, as of `bot_keys`.

        Returns:
            ``(N, 2)``: legal actions; the no-op for other seats and in battles that are over.
        """


def bot_keys(battles: Battles) -> Keys:
    """Return the keys of both seats' draws in N battles, ``(N, 2)``: by seed, battle, ordinal."""
    keys = np.zeros((len(battles.tick), SEATS), np.uint64)
    _write_keys(battles.seed, battles.battle, battles.ordinal, keys)
    return keys


class NoOpBot(Bot):
    """Never plays a card."""

    def act(self, battles: Battles, seats: Seats, keys: Keys) -> Actions:
        """See `Bot.act`."""
        return np.full(seats.shape, NO_OP, np.int32)


class RandomBot(Bot):
    """Draws evenly from the legal plays.

    Args:
        wait_percent: How often it does nothing although it could play.
    """

    def __init__(self, wait_percent: int = 0) -> None:
        self._wait_percent = wait_percent

    def act(self, battles: Battles, seats: Seats, keys: Keys) -> Actions:
        """See `Bot.act`."""
        actions = np.full(seats.shape, NO_OP, np.int32)
        _random_actions(battles.raw, seats, keys, self._wait_percent, actions)
        return actions


class RuleBot(Bot):
    """Plays by the rules of thumb in `heuristics`.

    Args:
        style: `DEFEND`, `PUSH` or `HEURISTIC`.
    """

    def __init__(self, style: int) -> None:
        self._style = style

    def act(self, battles: Battles, seats: Seats, keys: Keys) -> Actions:
        """See `Bot.act`; nothing is drawn."""
        actions = np.full(seats.shape, NO_OP, np.int32)
        rule_actions(battles.raw, seats, self._style, actions)
        return actions


DEFEND, PUSH, HEURISTIC = range(3)
EARLY_PUSH_ELIXIR = 5 * ELIXIR_UNIT
"""With so much the push bot attacks, whatever comes at it."""


@compiled
def _write_keys(
    seeds: Keys, battles: NDArray[np.int64], ordinals: NDArray[np.int64], keys: Keys
) -> None:
    for i in range(seeds.shape[0]):
        for seat in range(SEATS):
            keys[i, seat] = random_key(seeds[i], battles[i], ordinals[i], PURPOSE_BOT[seat])


@compiled
def _random_actions(
    raw: Words, seats: Seats, keys: Keys, wait_percent: int, actions: Actions
) -> None:
    for i in range(raw.shape[0]):
        for seat in range(SEATS):
            if not seats[i, seat] or raw[i, layout.OUTCOME] != RUNNING:
                continue
            counter = raw[i, layout.TICK] * DRAWS
            if random_below(keys[i, seat], counter, 100) >= wait_percent:
                own, foe = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
                actions[i, seat] = random_play(own, foe, keys[i, seat], counter + 1)


@compiled
def random_play(own: Words, foe: Words, key: np.uint64, counter: int) -> int:
    """Return one of the legal plays, each as likely as the next; the no-op if there is none."""
    total = 0
    for slot in range(HAND_SIZE):
        total += open_tiles(own, foe, slot)
    if total == 0:
        return NO_OP
    left = random_below(key, counter, total)
    sides = sides_open_to(foe)
    for slot in range(HAND_SIZE):
        tiles = open_tiles(own, foe, slot)
        if left >= tiles:
            left -= tiles
            continue
        zone = ZONES[KIND[own[layout.HAND + slot]], sides]
        for tile in range(TILES):
            if zone[tile] != 0:
                if left == 0:
                    return 1 + slot * TILES + tile
                left -= 1
    return NO_OP


@compiled
def rule_actions(raw: Words, seats: Seats, style: int, actions: Actions) -> None:
    """Write the actions of `RuleBot` for kernels: rows, ``(N, 2)``, a style, ``(N, 2)``."""
    for i in range(raw.shape[0]):
        for seat in range(SEATS):
            if not seats[i, seat] or raw[i, layout.OUTCOME] != RUNNING:
                continue
            own, foe = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            if style == DEFEND:
                actions[i, seat] = defend_action(own, foe)
            elif style == PUSH:
                actions[i, seat] = push_action(own, foe, EARLY_PUSH_ELIXIR)
            else:
                actions[i, seat] = heuristic_action(own, foe)
