"""A bot that looks ahead: it tries some plays, rolls each on, and takes the best.

It copies the whole battle, hidden hands included, and lets the heuristic play both seats in the
copies. So it is no fair player: it shows how much better than the rules of thumb one can be. Slow,
meant for evaluation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.heuristics import heuristic_action
from royale_client.envs.arena.kernels import step_rows
from royale_client.envs.arena.reward_config import NUM_SHAPING
from royale_client.envs.arena.rewards import write_potentials
from royale_client.envs.arena.rules import DRAWN, NO_OP, RUNNING, SEAT_0_WON, SEATS
from royale_client.envs.arena.scripted import (
    DRAWS,
    HEURISTIC,
    Actions,
    Bot,
    Keys,
    Seats,
    random_play,
    rule_actions,
)
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tensors import Words, block_of

_WEIGHTS: NDArray[np.float64] = np.array([0.0, 3.0, 3.0, 0.5])
"""What the differences that `rewards` knows count at the end of a rollout: three crowns, three
towers' hit points, 10 elixir. The first entry, of the terminal term, is not used."""
ROWS_AT_ONCE = 256
"""Seats searched for together; bounds the memory of the copies to some 7 MB at 8 tries."""
_WIN = 100.0
"""What a rollout that ends in a win is worth; more than any difference."""


class SearchBot(Bot):
    """Flat rollouts: the no-op, the heuristic's play and random plays, each rolled on once.

    Args:
        tries: How many actions are tried, at least 2.
        horizon: Decisions that each is rolled on for.

    Raises:
        ValueError: Less than 2 tries, more than a key has draws for, or no decision.
    """

    def __init__(self, tries: int = 8, horizon: int = 24) -> None:
        if not 2 <= tries <= DRAWS or horizon < 1:
            raise ValueError(
                f"search of {tries} tries and {horizon} decisions: expected 2 to {DRAWS} tries and "
                "at least 1 decision"
            )
        self._tries = tries
        self._horizon = horizon

    def act(self, battles: Battles, seats: Seats, keys: Keys) -> Actions:
        """See `Bot.act`; decisions without a choice cost nothing."""
        actions = np.full(seats.shape, NO_OP, np.int32)
        rows = np.argwhere(seats & (battles.outcome == RUNNING)[:, None])
        tried = np.full((len(rows), self._tries), NO_OP, np.int32)
        _propose(battles.raw, rows, keys, tried)
        has_choice = tried.any(axis=1)
        rows, tried = rows[has_choice], tried[has_choice]
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            best = self._best(battles.raw, rows[part], tried[part])
            actions[rows[part, 0], rows[part, 1]] = best
        return actions

    def _best(self, raw: Words, rows: NDArray[np.int64], tried: Actions) -> NDArray[np.int32]:
        """Roll every tried action on; return each row's best, the first of equals."""
        copies = raw[np.repeat(rows[:, 0], self._tries)]
        seat_of = np.repeat(rows[:, 1], self._tries)
        everyone = np.ones((len(copies), SEATS), np.bool_)
        for decision in range(self._horizon):
            chosen = np.full((len(copies), SEATS), NO_OP, np.int32)
            rule_actions(copies, everyone, HEURISTIC, chosen)
            if decision == 0:
                chosen[np.arange(len(copies)), seat_of] = tried.reshape(-1)
            step_rows(copies, chosen)
        worths = np.empty(len(copies))
        _write_worths(copies, seat_of, worths)
        best = worths.reshape(tried.shape).argmax(axis=1)
        found: NDArray[np.int32] = tried[np.arange(len(tried)), best]
        return found


@compiled
def _propose(raw: Words, rows: NDArray[np.int64], keys: Keys, tried: Actions) -> None:
    """Write what each row (battle, seat) tries: no-op, heuristic, random plays."""
    for k in range(rows.shape[0]):
        i, seat = rows[k, 0], rows[k, 1]
        own, foe = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
        tried[k, 1] = heuristic_action(own, foe)
        first_draw = raw[i, layout.TICK] * DRAWS
        for n in range(2, tried.shape[1]):
            tried[k, n] = random_play(own, foe, keys[i, seat], first_draw + n)


@compiled
def _write_worths(copies: Words, seat_of: NDArray[np.int64], worths: NDArray[np.float64]) -> None:
    """Write how good the end of each rollout is for a seat."""
    parts = np.empty(NUM_SHAPING)
    for k in range(copies.shape[0]):
        seat, outcome = seat_of[k], copies[k, layout.OUTCOME]
        if outcome == RUNNING:
            own, foe = block_of(copies, k, seat), block_of(copies, k, 1 - seat)
            write_potentials(own, foe, _WEIGHTS, parts)
            worths[k] = parts.sum()
        elif outcome == DRAWN:
            worths[k] = 0.0
        else:
            worths[k] = _WIN if outcome == SEAT_0_WON + seat else -_WIN
