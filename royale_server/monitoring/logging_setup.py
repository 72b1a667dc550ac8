"""Sets up logging: lines on the terminal, and the same lines in the log file of the attempt.

The chosen level applies to our own packages; libraries are heard from warnings on. The file is
written by a thread of its own, so that a slow disk never delays who logs.
"""

from __future__ import annotations

import contextlib
import logging
import queue
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

from royale_server.monitoring.terminal import Terminal
from royale_server.run.records import AppendFile

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


class LogFile(logging.Handler):
    """Writes records to a file; what a full disk refuses is kept and written with the next line.

    Args:
        path: The file; lines are appended.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = AppendFile(path)
        self.setFormatter(logging.Formatter(LINE_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. The terminal has the line as well, and the rows say what is wrong."""
        with contextlib.suppress(OSError):
            self._file.append((self.format(record) + "\n").encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Try the refused lines a last time and close the file."""
        with contextlib.suppress(OSError):
            self._file.write_pending()
        self._file.close()
        super().close()


@contextlib.contextmanager
def copied_to(path: Path) -> Iterator[None]:
    """Write every line to a file as well, with the date, while the block runs.

    Args:
        path: The file; lines are appended.
    """
    file_handler = LogFile(path)
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = QueueListener(lines, file_handler)
    handler = QueueHandler(lines)
    root = logging.getLogger()
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        listener.stop()
        file_handler.close()
