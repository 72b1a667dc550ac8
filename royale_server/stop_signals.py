"""Ctrl-C and SIGTERM: the first stops, the second gives up a learn step, the third leaves at once.

The handlers stay until the process ends. A run takes a moment to end, and that is when an impatient
person presses again: the handlers of an event loop are gone by then, and an exception in the midst
of the last lines would hide how the run ended.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from types import FrameType

from royale_server.exit_codes import ExitCode
from royale_server.trainer import End

ENDS = {signal.SIGINT: End.OPERATOR, signal.SIGTERM: End.TERMINATED}
LEAVE_AT = 3
LAST_WORDS = b"royale-server: third signal: leaving at once; saved checkpoints are whole\n"
STDERR = 2


def interrupt_on_sigterm() -> None:
    """Let SIGTERM do what Ctrl-C does, which undoes a start, until the run can be stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def handle_stop_signals(stop: Callable[[End, str], None]) -> None:
    """Let the first two signals stop the run, and the third end the process.

    Args:
        stop: Takes how the run shall end, and why. Called from the signal handler, so in the midst
            of whatever the main thread does; also after the run has ended.
    """
    received = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received >= LEAVE_AT:
            os.write(STDERR, LAST_WORDS)  # the log may be in the midst of a line
            os._exit(ExitCode.INTERRUPTED)
        name = signal.Signals(number)
        stop(ENDS[name], f"{name.name} received")

    for number in ENDS:
        signal.signal(number, handle)
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    """The interpreter is ending: nothing is left that a signal could change but the exit code."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
