"""Sets up logging: one handler, on the terminal. Called by the command line only.

The chosen level applies to our own packages; libraries are heard from warnings on.
"""

from __future__ import annotations

import logging

from royale_server.monitoring.terminal import Terminal

OUR_PACKAGES = ("royale_server", "royale_client", "algorithms", "checkpoints")
LINE_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
TIME_FORMAT = "%H:%M:%S"


class TerminalHandler(logging.Handler):
    """Writes records as lines of a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal
        self.setFormatter(logging.Formatter(LINE_FORMAT, TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a failing terminal must not end the run."""
        try:
            self._terminal.write_line(self.format(record), record.levelno)
        except Exception:
            self.handleError(record)


def configure(level: str, terminal: Terminal) -> None:
    """Send the log to ``terminal``, in place of whatever handled it before.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        terminal: Where lines go.
    """
    root = logging.getLogger()
    for handler in [*root.handlers]:
        root.removeHandler(handler)
    root.addHandler(TerminalHandler(terminal))
    root.setLevel(logging.WARNING)
    for package in OUR_PACKAGES:
        logging.getLogger(package).setLevel(level.upper())
    logging.captureWarnings(True)
