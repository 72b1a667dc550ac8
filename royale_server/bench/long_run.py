"""A long run of small iterations: do time and memory per iteration stay what they were?

Everything is on: records, checkpoints, a tracker. Resident memory is looked at while it runs; the
times are those of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from royale_server.bench import memory
from royale_server.bench.plan import BenchError, Figures
from royale_server.bench.product import Product, Row, rows_of, sleep_beside
from royale_server.bench.stage import START_S, Stage

WARM_UP = 100
"""Iterations that are not looked at."""
SPAN = 100
"""Iterations at the beginning and at the end that are compared."""
LOOK_EVERY_S = 0.5
SILENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun(Product):
    """A server that is measured for a number of iterations in place of seconds."""

    iterations: int

    def measure(self, stage: Stage, seconds: float) -> Figures:
        """Run once; see `Contender.measure`. Takes as long as it takes."""
        server = self.start(stage)
        rows = rows_of(stage.folder)
        stage.wait_for(lambda: bool(rows.read()), server, "its first row", START_S)
        looks: list[tuple[int, float]] = []
        changed_at = time.monotonic()
        while not looks or looks[-1][0] < self.iterations:
            sleep_beside(server, LOOK_EVERY_S)
            looks.append((len(rows.read()), memory.rss_mib(server.pid)))
            if len(looks) < 2 or looks[-1][0] > looks[-2][0]:
                changed_at = time.monotonic()
            if time.monotonic() - changed_at > SILENCE_S:
                raise BenchError(f"{self.name}: no new row for {SILENCE_S:g} s")
        return {**durations(rows.read()[: self.iterations]), **growth(looks)}


def durations(rows: Sequence[Row]) -> Figures:
    """Compare the last iterations with the first ones after warm-up.

    Args:
        rows: One row an iteration, from the first on.

    Returns:
        Milliseconds per iteration, on the wall, and the ratio.
    """
    walls = np.array([row["wall"] for row in rows])
    first_ms = 1000 * (walls[WARM_UP + SPAN - 1] - walls[WARM_UP - 1]) / SPAN
    last_ms = 1000 * (walls[-1] - walls[-1 - SPAN]) / SPAN
    return {
        "first_ms": float(first_ms),
        "last_ms": float(last_ms),
        "last_to_first": float(last_ms / first_ms),
        "median_ms": 1000 * median(np.diff(walls).tolist()),
    }


def growth(looks: Sequence[tuple[int, float]]) -> Figures:
    """Fit a line through resident memory over iterations, after warm-up.

    Args:
        looks: Iterations so far and MiB, in order.
    """
    settled = np.array([look for look in looks if look[0] > WARM_UP + SPAN], np.float64)
    if len(settled) < 3:
        raise BenchError("the run was over before its memory could be looked at three times")
    slope, _ = np.polyfit(settled[:, 0], settled[:, 1], 1)
    return {"mib_per_100": float(100 * slope), "resident_mib": float(settled[-1, 1])}
