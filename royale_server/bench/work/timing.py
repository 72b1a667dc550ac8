"""How every yardstick is timed: warm up, then count what is done in a window."""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_UP_S = 2.0
CHUNKS_PER_S = 50
"""How often the clock is looked at: rarely enough to cost nothing."""


def rate(step: Callable[[], int], seconds: float, warm_up_s: float = WARM_UP_S) -> float:
    """Return how much a repeated step gets done per second.

    Args:
        step: Does a piece of work and returns its amount.
        seconds: Length of the window.
        warm_up_s: How long to run before it.
    """
    per_chunk = _repeat(step, warm_up_s, 1)[1]
    chunk = max(1, int(per_chunk / max(warm_up_s, 1e-9) / CHUNKS_PER_S))
    amount, _, elapsed = _repeat(step, seconds, chunk)
    return amount / elapsed


def microseconds(step: Callable[[], object], seconds: float, warm_up_s: float = 0.3) -> float:
    """Return what one call costs, in microseconds."""

    def counted() -> int:
        step()
        return 1

    return 1e6 / rate(counted, seconds, warm_up_s)


def _repeat(step: Callable[[], int], seconds: float, chunk: int) -> tuple[int, int, float]:
    """Repeat for a while; return the amount, the number of steps and the time taken."""
    started = time.perf_counter()
    amount = steps = 0
    while (elapsed := time.perf_counter() - started) < seconds or not steps:
        for _ in range(chunk):
            amount += step()
        steps += chunk
    return amount, steps, elapsed
