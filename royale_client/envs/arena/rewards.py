"""Rewards of both seats: who won, and a potential that rewards progress without moving the goal.

A step earns a seat

    terminal + gamma * Phi(after) - Phi(before)

with terminal = +1 for a win, -1 for a loss, 0 for a draw and while the battle runs. Phi is a
weighted sum of three differences between the seats, so what one seat gains the other loses. Phi of
a finished battle is 0; a battle cut off by the caller keeps its Phi.

Why shaping cannot change which policy is best: let F(t) = gamma * Phi(t+1) - Phi(t). The discounted
sum over an episode of T steps is

    sum_t gamma^t F(t) = sum_t gamma^(t+1) Phi(t+1) - sum_t gamma^t Phi(t)
                       = gamma^T Phi(T) - Phi(0),

since everything between cancels. With Phi(T) = 0 that is -Phi(0), whatever was played; and where
the episode was cut off, gamma^T Phi(T) is what the bootstrapped value of the last state gives back.

gamma may change from one decision to the next, as long as each frame is shaped by the discount that
it is learnt with: since Phi does not depend on gamma, the value of a state is at any gamma what it
would be without shaping, less Phi of the state, and F is what keeps the two apart by just that.

Source:
    Ng, Harada, Russell: Policy invariance under reward transformations, ICML 1999.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules
from royale_client.envs.arena.cards import COST, COUNT, HP
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.reward_config import NUM_SHAPING, NUM_TERMS, RewardConfig
from royale_client.envs.arena.rules import (
    CROWNS_TO_WIN,
    DRAWN,
    ELIXIR_CAP,
    RUNNING,
    SEAT_0_WON,
    TOWERS,
    UNIT_SLOTS,
)
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tensors import Words, block_of

Floats: TypeAlias = NDArray[np.float64]

HP_VALUE: Floats = COST / np.maximum(HP.astype(np.int64) * COUNT, 1)
"""Elixir in 28ths that a hit point of a card's units is worth; nothing reads that of spells."""
TOWER_HP = np.array(rules.TOWER_HP, np.int64)


class Rewards:
    """Rewards of N battles, step by step.

    Args:
        config: Weights and discount.
        num_battles: N.
    """

    def __init__(self, config: RewardConfig, num_battles: int) -> None:
        self.gamma = config.gamma
        """Discount of the next step."""
        self.terms: Floats = np.zeros((num_battles, 2, NUM_TERMS))
        """``(N, 2, 4)``: the last step's terms, weighted, in the order of `TERMS`."""
        self.rewards: Floats = np.zeros((num_battles, 2))
        """``(N, 2)``: their sums."""
        self.potentials: Floats = np.zeros((num_battles, NUM_SHAPING))
        """``(N, 3)``: weighted potentials of seat 0 before the next step; seat 1 has the negative.
        They follow from the states, so `begin` also takes up battles that were restored."""
        self.settled: NDArray[np.bool_] = np.ones(num_battles, np.bool_)
        """``(N,)``: the battle's end was rewarded; nothing more comes of it until `begin`."""
        self._weights = config.weights

    def begin(self, battles: Battles, which: NDArray[np.int64]) -> None:
        """Take the state of battles that were started or restored as the one to go on from.

        Args:
            battles: N battles.
            which: Indices of those, ``(k,)``.
        """
        _begin(battles.raw, which, self._weights, self.potentials, self.settled)

    def step(self, battles: Battles) -> None:
        """Write `terms` and `rewards` of the decision that led to these states.

        Args:
            battles: N battles after `kernels.step`.
        """
        _step(
            battles.raw,
            self.gamma,
            self._weights,
            (self.potentials, self.settled),
            (self.terms, self.rewards),
        )


@compiled
def _begin(
    raw: Words,
    which: NDArray[np.int64],
    weights: Floats,
    potentials: Floats,
    settled: NDArray[np.bool_],
) -> None:
    for k in range(which.shape[0]):
        i = which[k]
        settled[i] = raw[i, layout.OUTCOME] != RUNNING
        for term in range(NUM_SHAPING):
            potentials[i, term] = 0.0
        if not settled[i]:
            write_potentials(block_of(raw, i, 0), block_of(raw, i, 1), weights, potentials[i])


@compiled
def _step(
    raw: Words,
    gamma: float,
    weights: Floats,
    kept: tuple[Floats, NDArray[np.bool_]],
    out: tuple[Floats, Floats],
) -> None:
    potentials, settled = kept
    terms, rewards = out
    after = np.zeros(NUM_SHAPING)
    for i in range(raw.shape[0]):
        terms[i] = 0.0
        rewards[i] = 0.0
        if settled[i]:
            continue
        outcome = raw[i, layout.OUTCOME]
        if outcome == RUNNING:
            write_potentials(block_of(raw, i, 0), block_of(raw, i, 1), weights, after)
        else:
            after[:] = 0.0
            settled[i] = True
            if outcome != DRAWN:
                terms[i, 0, 0] = weights[0] if outcome == SEAT_0_WON else -weights[0]
        for term in range(NUM_SHAPING):
            terms[i, 0, 1 + term] = gamma * after[term] - potentials[i, term]
            potentials[i, term] = after[term]
        for term in range(NUM_TERMS):
            # 0 - x and not -x: a term of nothing is +0 for both seats.
            terms[i, 1, term] = 0.0 - terms[i, 0, term]
            rewards[i, 0] += terms[i, 0, term]
        rewards[i, 1] = 0.0 - rewards[i, 0]


@compiled
def write_potentials(first: Words, second: Words, weights: Floats, out: Floats) -> None:
    """Write the weighted potentials of a running battle's first seat, for kernels.

    Differences come before divisions, so exchanged seats give exactly the negative.

    Args:
        first: Block of the seat.
        second: Block of its enemy.
        weights: ``(4,)``, in the order of `TERMS`.
        out: ``(3,)``: crowns, tower hit points, elixir.
    """
    hp_share = 0.0
    for t in range(TOWERS):
        hp_share += (first[layout.TOWER_HP + t] - second[layout.TOWER_HP + t]) / TOWER_HP[t]
    value = _board_value(first) - _board_value(second)
    bar = first[layout.ELIXIR] - second[layout.ELIXIR]
    out[0] = weights[1] * ((first[layout.CROWNS] - second[layout.CROWNS]) / CROWNS_TO_WIN)
    out[1] = weights[2] * (hp_share / TOWERS)
    out[2] = weights[3] * ((bar + value) / ELIXIR_CAP)


@compiled
def _board_value(block: Words) -> float:
    """Return the cost of a seat's units by their share of hit points, in 28ths of an elixir."""
    value = 0.0
    for u in range(UNIT_SLOTS):
        card = block[layout.UNIT_CARD + u]
        if card >= 0:
            value += HP_VALUE[card] * block[layout.UNIT_HP + u]
    return value
