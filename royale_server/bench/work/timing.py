"""How every yardstick is timed: warm up, then count what is done in a window."""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_UP_S = 2.0
CHUNKS_PER_S = 50
"""How often the clock is looked at: rarely enough to cost nothing."""


def rate(step: Callable[[], int], seconds: float) -> float:
    """Return how much a repeated step gets done per second on the wall.

    Args:
        step: Does a piece of work and returns its amount.
        seconds: Length of the window.
    """
    _, steps, elapsed = _repeat(step, WARM_UP_S, 1, time.perf_counter)
    amount, _, elapsed = _repeat(step, seconds, _chunk(steps, elapsed), time.perf_counter)
    return amount / elapsed


def microseconds(step: Callable[[], int], seconds: float) -> float:
    """Return what a unit of work costs, in microseconds of this process's processor time.

    Unlike time on the wall it does not count what other processes take from this one.

    Args:
        step: Does a piece of work and returns its amount.
        seconds: Length of the window; a warm-up of a fifth comes before.
    """
    _, steps, elapsed = _repeat(step, seconds / 5, 1, time.process_time)
    amount, _, elapsed = _repeat(step, seconds, _chunk(steps, elapsed), time.process_time)
    return 1e6 * elapsed / amount


def microseconds_a_call(call: Callable[[], object], seconds: float) -> float:
    """Return what one call costs; see `microseconds`."""

    def counted() -> int:
        call()
        return 1

    return microseconds(counted, seconds)


def _chunk(steps: int, elapsed_s: float) -> int:
    return max(1, int(steps / elapsed_s / CHUNKS_PER_S))


def _repeat(
    step: Callable[[], int], seconds: float, chunk: int, clock: Callable[[], float]
) -> tuple[int, int, float]:
    """Repeat for a while; return the amount, the number of steps and the time taken."""
    started = clock()
    amount = steps = 0
    while (elapsed := clock() - started) < seconds or not steps:
        for _ in range(chunk):
            amount += step()
        steps += chunk
    return amount, steps, elapsed
