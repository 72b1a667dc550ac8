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
        self._keys: dict[str, dict[str, str]] = {}
        """By client, which may mean something else by a name than others do: name of each metric
        by its key in the rows of episodes."""
        self._has_begun = False
        self._since = 1
        self._episodes = 0
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def declare(self, client: str, metrics: Iterable[EpisodeMetric]) -> None:
        """Learn what a client that joined reports."""
        names = [metric.name for metric in metrics if metric.aggregation == CATEGORIES]
        if self._every and names:
            self._keys[client] = {_PREFIX + name: name for name in names}
            self._has_begun = True

    def left(self, client: str) -> None:
        """A client is gone, and its name may be another's."""
        self._keys.pop(client, None)

    def resumed(self, iteration: int) -> None:
        """Begin after this iteration."""
        self._since = iteration + 1

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count episodes.

        Args:
            rows: Rows of ``episodes.jsonl``, of the learner's training episodes.
        """
        if not self._has_begun:
            return
        self._episodes += len(rows)
        for row in rows:
            for key, name in self._keys.get(row["client"], {}).items():
                if key in row:
                    self._counts[name].update(row[key])

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
