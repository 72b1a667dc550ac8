"""The terms of a reward and their weights. Imports no numba, so that flags can be made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TERMS = ("terminal", "crowns", "tower_hp", "elixir")
"""Names of the terms a step's reward is the sum of, in order."""
TERMINAL_TERM = "terminal"
"""The one that is the goal itself; all others are shaping."""
NUM_TERMS = len(TERMS)
NUM_SHAPING = NUM_TERMS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Weights of the terms.

    Those of the shaping are about what the differences are worth: least squares of who won, +1 or
    -1, on the three differences in the middle of battles between equal bots. Crowns get no weight
    beside the hit points that were lost with them.
    """

    gamma: float = 0.997
    """Discount of one decision until another is told; must be the learner's, or shaping moves the
    goal."""
    terminal: float = 1.0
    """Reward of a win; a loss is its negative."""
    crowns: float = 0.0
    """Weight of (own crowns - enemy crowns) / 3."""
    tower_hp: float = 3.0
    """Weight of (sum of the own towers' hit point shares - the enemy's) / 3."""
    elixir: float = 0.4
    """Weight of (own committed elixir - the enemy's) / 10: the bar, and the cost of what stands on
    the field by its share of hit points."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: A discount outside [0, 1] or a negative or infinite weight.
        """
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma {self.gamma}: expected a number in [0, 1]")
        for name in TERMS:
            weight = getattr(self, name)
            if not 0 <= weight < float("inf"):
                raise ValueError(f"reward weight {name} {weight}: expected a finite number >= 0")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights in the order of `TERMS`."""
        return np.array([getattr(self, name) for name in TERMS], np.float64)
