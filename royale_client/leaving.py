"""How a client process ends: the request to leave, the signals that make it, the exit codes."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

logger = logging.getLogger(__name__)

EXIT_FINISHED = 0
"""The episodes are complete, or the server stopped."""
EXIT_CRASHED = 1
"""The environment or the client failed."""
EXIT_REFUSED = 2
"""Bad flags, or a refusal that trying again cannot change."""
EXIT_UNREACHABLE = 75
"""No server, after trying for as long as was asked for."""
EXIT_TOKEN = 77
"""The server wants another token."""
EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C or SIGTERM."""


class LeaveRequest:
    """A flag that asks a client to leave; safe to set from a signal handler or another thread."""

    def __init__(self) -> None:
        self.is_made = False

    def make(self) -> None:
        """Ask for it."""
        self.is_made = True

    def __call__(self) -> bool:
        """Say whether somebody asked."""
        return self.is_made


@contextlib.contextmanager
def leaving_on_signals(leave: LeaveRequest) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a request to leave; the second Ctrl-C interrupts at once.

    Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(signum: int, _frame: FrameType | None) -> None:
        if leave.is_made and signum == signal.SIGINT:
            raise KeyboardInterrupt
        logger.info("leaving in order; Ctrl-C again ends at once")
        leave.make()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, ask) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
