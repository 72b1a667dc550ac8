"""What the tests of the arena share: random play that is mostly legal, and battles as numbers."""

import numpy as np
import pytest

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import COST, KIND
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.state import Battles, empty
from royale_client.envs.arena.territory import ZONES, openness


@pytest.fixture
def deal():
    """Return a function that starts ``n`` battles, each with its own deal."""

    def dealt(n: int, seed: int = 1, **options) -> Battles:
        battles = empty(n)
        start(battles, np.arange(n), seed=seed, battle_ids=np.arange(n), ordinals=0, **options)
        return battles

    return dealt


@pytest.fixture
def random_actions():
    """Return a function that draws both seats' actions: waits, legal plays and nonsense."""
    return draw_actions


def draw_actions(
    battles: Battles, draws: np.random.Generator, wait: float = 0.6, nonsense: float = 0.05
) -> np.ndarray:
    """Return actions ``(N, 2)``; who wants to play takes an affordable card, if any."""
    actions = np.zeros((len(battles.raw), rules.SEATS), np.int32)
    for i, s in np.argwhere(draws.random(actions.shape) >= wait):
        if draws.random() < nonsense:
            actions[i, s] = draws.integers(-3, rules.ACTIONS + 3)
            continue
        hand = battles.hand[i, s]
        slots = np.flatnonzero(COST[hand] <= battles.elixir[i, s])
        if len(slots):
            slot = draws.choice(slots)
            tiles = np.flatnonzero(ZONES[KIND[hand[slot]], openness(battles, i, s)])
            actions[i, s] = 1 + slot * rules.TILES + draws.choice(tiles)
    return actions
