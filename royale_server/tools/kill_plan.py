"""When a run is killed in ``royale verify-resume``, and how many iterations that takes.

Pure: looks at rows, kills nobody. A kill is placed behind the first checkpoint and, for what
happens once or more in every iteration, between two checkpoints.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from royale_server import crash_points
from royale_server.tools.comparing import Row

RANDOM = "random"
PER_BATCH = ("collect", "infer")
PER_ITERATION = ("learn", "row")
STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPlan:
    """What kills the run."""

    point: str
    """A crash point, or ``random``."""
    count: int | None
    """The how manieth time; None lets the plan choose."""
    save_every: int
    """Iterations between checkpoints."""
    seed: int = 0
    """Of the random moment."""

    @property
    def by(self) -> Literal["point", "stop", "random"]:
        """Who kills: the point alone, the point after a request to stop, or somebody outside."""
        if self.point == RANDOM:
            return "random"
        return "stop" if self.point == STOP else "point"

    @property
    def middle(self) -> int:
        """An iteration between two checkpoints, by which the first is certainly on disk."""
        return 2 * self.save_every + 1 + self.save_every // 2

    def iteration(self, rows: Mapping[int, Row]) -> int | None:
        """The iteration in which the kill is expected, as far as it can be told.

        Args:
            rows: Rows so far of the run that is not killed.
        """
        if self.by != "point" or (self.count is None and self._is_repeated):
            return 3 * self.save_every if self.by == "random" else self.middle
        if self.point in PER_BATCH:
            return self._iteration_of_batch(rows)
        times = self.count or 2
        return times if self.point in PER_ITERATION else times * self.save_every

    def text(self, rows: Mapping[int, Row]) -> str:
        """The value for the variable of ``crash_points``.

        Args:
            rows: Rows of the run that is not killed, up to the iteration of the kill at least.
        """
        if self.point in PER_BATCH and self.count is None:
            before = sum(num_batches(rows[i]) for i in range(1, self.middle))
            return f"{self.point}:{before + max(1, num_batches(rows[self.middle]) // 2)}"
        if self.point in PER_ITERATION and self.count is None:
            return f"{self.point}:{self.middle}"
        default = 1 if self.by == "stop" else 2
        return f"{self.point}:{self.count or default}"

    def delay_s(self, rows: Mapping[int, Row]) -> float:
        """How long after the first checkpoint a random kill comes: up to one save interval."""
        first, last = rows[self.save_every], rows[2 * self.save_every]
        interval_s = max(0.1, float(last["wall"]) - float(first["wall"]))
        return random.Random(self.seed).uniform(0.0, interval_s)

    @property
    def _is_repeated(self) -> bool:
        return self.point in (*PER_BATCH, *PER_ITERATION)

    def _iteration_of_batch(self, rows: Mapping[int, Row]) -> int | None:
        batches = 0
        for iteration in sorted(rows):
            batches += num_batches(rows[iteration])
            if batches >= (self.count or 1):
                return iteration
        return None


def parse_kill(text: str) -> tuple[str, int | None]:
    """Read ``--kill-at``: a point, with or without a count, or ``random``.

    Raises:
        ConfigError: If there is no such point.
    """
    if text == RANDOM:
        return RANDOM, None
    plan = crash_points.parse(text)
    return plan.name, None if plan.name == text else plan.left


def num_batches(row: Row) -> int:
    """Inference batches of an iteration, from its row."""
    per_batch = row["throughput/rows_per_batch"]
    return round(row["run/frames"] / per_batch) if per_batch else 1
