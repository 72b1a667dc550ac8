"""When to try again: delays between connection attempts, as pure functions of the attempt number.

A thousand clients that lose one server must not come back in the same instant, so every delay is
drawn from the whole range between zero and a growing limit. This module never sleeps, reads no
clock and holds no random state of its own.
"""

from __future__ import annotations

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
    cap_s: float = 30.0
    """Limit that is never exceeded."""
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

    def attempt_after(self, attempt: int, connected_s: float) -> int:
        """Return the number of the next attempt once a connection of ``connected_s`` was lost."""
        return 1 if connected_s >= self.stable_s else attempt + 1


FIRST_CONTACT = Backoff(base_s=0.25, factor=2.0, cap_s=2.0)
"""Waiting for a server that has not started yet: a refusal there costs nobody anything."""

AFTER_LOSS = Backoff()
"""Coming back to a server that was lost together with everybody else."""
