"""One round of evaluation: deals played twice with the seats exchanged, and what comes of it.

Pure: knows results, not battles. A pair is one deal played from both sides, so that neither the
luck of the deal nor a seat decides; a score is 1 for a win, 1/2 for a draw, 0 for a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Results = npt.NDArray[np.int8]

WIN, DRAW, LOSS = 1, 0, -1
Z_95 = 1.959963984540054
"""Of the normal distribution: 95 % lie within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a round came to, from the side of the first player."""

    battles: int
    wins: int
    draws: int
    losses: int
    low: float
    """Lower end of the 95 % interval of the win rate, by Wilson's score."""
    high: float
    """Upper end."""
    score: float
    """Mean score."""
    score_low: float
    """Lower end of the 95 % interval of the mean score, from the spread of the pairs."""
    score_high: float
    """Upper end."""
    correlation: float | None
    """Between the two sides of a deal; None if one side never varies."""

    @property
    def win_rate(self) -> float:
        """Wins by battles; draws count as not won."""
        return self.wins / self.battles


class EvaluationRound:
    """Collects the results of ``num_pairs`` pairs.

    Args:
        num_pairs: Deals, each played twice.
        seed: What all deals follow from.

    Raises:
        ValueError: Fewer than one pair, or a seed out of range.
    """

    def __init__(self, num_pairs: int, seed: int) -> None:
        if num_pairs < 1 or not 0 <= seed < 2**63:
            raise ValueError(f"{num_pairs} pairs from seed {seed}: expected at least 1, seed >= 0")
        self.num_pairs = num_pairs
        self.seed = seed
        self._results: Results = np.zeros((num_pairs, 2), np.int8)
        self._known: npt.NDArray[np.bool_] = np.zeros((num_pairs, 2), np.bool_)

    def enter(self, pairs: npt.NDArray[np.int64], side: int, results: Results) -> None:
        """Enter results.

        Args:
            pairs: Which pairs, ``(k,)``.
            side: Seat of the first player, 0 or 1.
            results: `WIN`, `DRAW` or `LOSS` of the first player, ``(k,)``.

        Raises:
            ValueError: One of them is known already.
        """
        if self._known[pairs, side].any():
            raise ValueError("a battle was entered twice")
        self._results[pairs, side] = results
        self._known[pairs, side] = True

    @property
    def num_known(self) -> int:
        """Battles that are entered."""
        return int(np.count_nonzero(self._known))

    def verdict(self) -> Verdict:
        """Say what it came to, from the pairs of which both sides are known.

        Raises:
            ValueError: There is none.
        """
        results = self._results[self._known.all(axis=1)]
        if not len(results):
            raise ValueError("no pair is complete yet")
        wins, draws, losses = (int(np.count_nonzero(results == r)) for r in (WIN, DRAW, LOSS))
        low, high = wilson(wins, results.size)
        pair_scores = (results.mean(axis=1) + 1) / 2
        score = float(pair_scores.mean())
        margin = (
            Z_95 * float(pair_scores.std(ddof=1)) / math.sqrt(len(results))
            if len(results) > 1
            else 1.0
        )
        return Verdict(
            battles=results.size,
            wins=wins,
            draws=draws,
            losses=losses,
            low=low,
            high=high,
            score=score,
            score_low=max(0.0, score - margin),
            score_high=min(1.0, score + margin),
            correlation=_correlation(results),
        )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share.

    Args:
        successes: At most ``trials``.
        trials: At least 1.

    Source:
        Wilson: Probable inference, the law of succession, and statistical inference, 1927.
    """
    share = successes / trials
    spread = Z_95 * math.sqrt(share * (1 - share) / trials + (Z_95 / (2 * trials)) ** 2)
    middle, scale = share + Z_95**2 / (2 * trials), 1 + Z_95**2 / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def _correlation(results: Results) -> float | None:
    sides = results.astype(np.float64).T
    if len(results) < 2 or not sides.std(axis=1).all():
        return None
    return float(np.asarray(np.corrcoef(sides))[0, 1])
