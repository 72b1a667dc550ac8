"""A bot that looks ahead: it tries some plays, rolls each on, and takes the best.

It copies the whole battle, hidden hands included, and lets the heuristic play both seats in the
copies. So it is no fair player: it shows how much better than the rules of thumb one can be. Slow,
meant for evaluation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.bots import (
    DRAWS,
    HEURISTIC,
    Actions,
    Bot,
    Keys,
    Seats,
    random_play,
    rule_actions,
)
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.heuristics import heuristic_action
from royale_client.envs.arena.kernels import step_rows
from royale_client.envs.arena.reward_config import NUM_SHAPING
from royale_client.envs.arena.rewards import write_potentials
from royale_client.envs.arena.rules import DRAWN, HAND_SIZE, NO_OP, RUNNING, SEATS
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tensors import Words, block_of, open_tiles

_WEIGHTS: NDArray[np.float64] = np.array([0.0, 3.0, 3.0, 0.5])
"""What the differences that `rewards` knows count at the end of a rollout: three crowns, three
towers' hit points, 10 elixir. The first entry, of the terminal term, is not used."""
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
        copies = np.empty((self._tries, battles.raw.shape[1]), np.int32)
        _search(battles.raw, seats, keys, (copies, self._horizon), actions)
        return actions


@compiled
def _search(
    raw: Words, seats: Seats, keys: Keys, rollouts: tuple[Words, int], actions: Actions
) -> None:
    copies, horizon = rollouts
    tried = np.empty(copies.shape[0], np.int32)
    for i in range(raw.shape[0]):
        for seat in range(SEATS):
            if not seats[i, seat] or raw[i, layout.OUTCOME] != RUNNING:
                continue
            own, foe = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            num_plays = 0
            for slot in range(HAND_SIZE):
                num_plays += open_tiles(own, foe, slot)
            if num_plays == 0:
                continue
            first_draw = raw[i, layout.TICK] * DRAWS
            for k in range(tried.shape[0]):
                copies[k] = raw[i]
                if k == 0:
                    tried[k] = NO_OP
                elif k == 1:
                    tried[k] = heuristic_action(own, foe)
                else:
                    tried[k] = random_play(own, foe, keys[i, seat], first_draw + k)
            _roll_on(copies, horizon, seat, tried)
            best = 0
            for k in range(1, tried.shape[0]):
                if _worth(copies, k, seat) > _worth(copies, best, seat):
                    best = k
            actions[i, seat] = tried[best]


@compiled
def _roll_on(copies: Words, horizon: int, seat: int, tried: NDArray[np.int32]) -> None:
    """Play every copy on: one seat begins with what is tried, then both do as the heuristic."""
    everyone = np.ones((copies.shape[0], SEATS), np.bool_)
    chosen = np.empty((copies.shape[0], SEATS), np.int32)
    for decision in range(horizon):
        chosen[:] = NO_OP
        rule_actions(copies, everyone, HEURISTIC, chosen)
        if decision == 0:
            chosen[:, seat] = tried
        step_rows(copies, chosen)


@compiled
def _worth(copies: Words, k: int, seat: int) -> float:
    """Return how good the end of a rollout is for a seat."""
    outcome = copies[k, layout.OUTCOME]
    if outcome == DRAWN:
        return 0.0
    if outcome != RUNNING:
        return _WIN if outcome == seat + 1 else -_WIN
    parts = np.empty(NUM_SHAPING)
    write_potentials(block_of(copies, k, seat), block_of(copies, k, 1 - seat), _WEIGHTS, parts)
    return float(parts.sum())
