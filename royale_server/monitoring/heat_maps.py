"""Counts of where things happened, over some iterations: rows of ``heatmaps.jsonl``.

What is counted is every episode metric that a client declares with the aggregation ``categories``,
such as card and tile of each play. Pure: nothing is read or written, and no environment is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from royale_client.wire.episodes import EpisodeMetric

CATEGORIES = "categories"
_PREFIX = "metrics/"


class HeatMaps:
    """Counts the categories of the learner's training episodes.

    Args:
        every: Iterations that one row is about; 0 counts nothing.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._keys: dict[str, str] = {}
        """Name of each metric by its key in the rows of episodes."""
        self._since = 1
        self._episodes = 0
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def declare(self, metrics: Iterable[EpisodeMetric]) -> None:
        """Learn what a client reports."""
        if self._every:
            self._keys |= {_PREFIX + m.name: m.name for m in metrics if m.aggregation == CATEGORIES}

    def resumed(self, iteration: int) -> None:
        """Begin after this iteration."""
        self._since = iteration + 1

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count episodes.

        Args:
            rows: Rows of ``episodes.jsonl``, of the learner's training episodes.
        """
        if not self._keys:
            return
        self._episodes += len(rows)
        for row in rows:
            for key in self._keys.keys() & row.keys():
                self._counts[self._keys[key]].update(row[key])

    def take(self, iteration: int, step: int) -> dict[str, Any] | None:
        """Return the row that is due after an iteration, and begin the next; None if none is.

        Args:
            iteration: The iteration that is done.
            step: Stored frames by its end.
        """
        if not self._episodes or iteration % self._every:
            return None
        row = {
            "first_iteration": self._since,
            "iteration": iteration,
            "step": step,
            "episodes": self._episodes,
            "counts": {name: dict(sorted(c.items())) for name, c in sorted(self._counts.items())},
        }
        self._since, self._episodes = iteration + 1, 0
        self._counts.clear()
        return row
