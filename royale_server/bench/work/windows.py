"""The window of a training loop: opened after warm-up, closed by the first iteration beyond it."""

from __future__ import annotations

import time

WARM_UP_S = 2.0


class Window:
    """Counts what whole iterations got done.

    Args:
        seconds: Its length.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started = time.perf_counter()
        self._opened: tuple[float, int] | None = None
        self.rate = 0.0
        """Per second, once it is closed."""

    def is_closed(self, total: int) -> bool:
        """Take note of the end of an iteration.

        Args:
            total: Amount done since the start.
        """
        now = time.perf_counter()
        if self._opened is None:
            if now - self._started >= WARM_UP_S:
                self._opened = now, total
            return False
        since, before = self._opened
        self.rate = (total - before) / (now - since)
        return now - since >= self._seconds
