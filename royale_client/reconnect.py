"""When to try again: delays between connection attempts, as pure functions of the attempt number.

A thousand clients that lose one server must not come back in the same instant, so every delay is
drawn from the whole range between zero and a growing limit. Nothing here sleeps, reads a clock or
holds random state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponentially growing limits with full jitter below them.

    Source: the «full jitter» variant of exponential backoff.
    """

    base_s: float = 1.0
    """Limit of the first delay."""
    factor: float = 2.0
    """Growth of the limit from one attempt to the next."""
    cap_s: float = 5.0
    """Limit that is never exceeded: a server that is back should have everybody back soon."""
    stable_s: float = 30.0
    """A connection that lived this long starts the count afresh."""

    def limit_s(self, attempt: int) -> float:
        """Return the longest delay before attempt number ``attempt``.

        Args:
            attempt: 1 for the first attempt after a failure.

        Raises:
            ValueError: If ``attempt`` is below 1.
        """
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, got {attempt}")
        # The exponent is bounded first: a client that waits for days must not overflow a float.
        doublings = min(attempt - 1, 64)
        return min(self.cap_s, self.base_s * self.factor**doublings)

    def delay_s(self, attempt: int, uniform: Callable[[], float]) -> float:
        """Draw the delay before attempt number ``attempt``, evenly from zero to its limit.

        Args:
            attempt: 1 for the first attempt after a failure.
            uniform: Returns a number in [0, 1), for example ``random.random``.
        """
        return uniform() * self.limit_s(attempt)


FIRST_CONTACT = Backoff(base_s=0.25, factor=2.0, cap_s=2.0)
"""Waiting for a server that has not started yet: a refusal there costs nobody anything."""

AFTER_LOSS = Backoff()
"""Coming back to a server that was lost together with everybody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client goes on trying."""

    connect_timeout_s: float = 30.0
    """Seconds to wait for a server that has not started yet."""
    budget_s: float = 120.0
    """Seconds to try after a connection was lost; 0 does not try at all."""
    for_ever: bool = False
    """Never give up, and wait for the next run after the server has stopped."""
    backoff: Backoff = AFTER_LOSS
    """Pauses between attempts after a loss."""


class Retries:
    """Decides after every failure how long to pause, or that it is time to give up.

    Args:
        patience: How long to go on.
        uniform: Returns a number in [0, 1).
        now_s: Monotonic time of the first attempt.
    """

    def __init__(self, patience: Patience, uniform: Callable[[], float], now_s: float) -> None:
        self._patience = patience
        self._uniform = uniform
        self._backoff = FIRST_CONTACT
        self._attempt = 0
        self._connected_s: float | None = None
        self._give_up_s = self._end(now_s, patience.connect_timeout_s)

    def connected(self, now_s: float) -> None:
        """Note that a connection was made."""
        self._connected_s = now_s

    def wait_for_next_run(self) -> None:
        """Start afresh without an end, after the server stopped in order."""
        self._backoff, self._attempt = self._patience.backoff, 0
        self._connected_s, self._give_up_s = None, math.inf

    def next_pause_s(self, now_s: float) -> float | None:
        """Return the pause before the next attempt, or None to give up.

        To be called once after every failed attempt and every lost connection.
        """
        if self._connected_s is not None:
            lasted_s = now_s - self._connected_s
            if self._backoff is FIRST_CONTACT or lasted_s >= self._backoff.stable_s:
                self._attempt = 0
                self._give_up_s = self._end(now_s, self._patience.budget_s)
            self._backoff, self._connected_s = self._patience.backoff, None
        left_s = self._give_up_s - now_s
        if left_s <= 0:
            return None
        self._attempt += 1
        return min(left_s, self._backoff.delay_s(self._attempt, self._uniform))

    def _end(self, now_s: float, span_s: float) -> float:
        return math.inf if self._patience.for_ever else now_s + span_s
