"""The terminal that the server writes to: plain lines, and a progress bar where a person watches.

A bar is drawn only on a terminal, with rich, below the lines; anywhere else there are lines only.
NO_COLOR is honoured. Logging and the bar share one lock, so that they never tear each other.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress, TaskID

_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class Terminal:
    """Lines and at most one bar.

    Args:
        stream: Where lines go.
        rich_console: A console on ``stream`` that can draw, or None for lines only.
    """

    def __init__(self, stream: TextIO, rich_console: RichConsole | None = None) -> None:
        self._stream = stream
        self._rich = rich_console

    @classmethod
    def of_stderr(cls) -> Terminal:
        """The process's standard error; it can draw if it is a terminal and rich is installed."""
        stream = sys.stderr
        if not stream.isatty() or os.environ.get("TERM") == "dumb":
            return cls(stream)
        try:
            from rich.console import Console as RichConsole
        except ImportError:
            return cls(stream)
        return cls(stream, RichConsole(file=stream))

    def write_line(self, text: str, level: int = logging.INFO) -> None:
        """Write one line, above the bar if there is one.

        Args:
            text: The line, without its end.
            level: Level of the message; warnings and errors are coloured where colours are wanted.
        """
        if self._rich is None:
            self._stream.write(text + "\n")
            self._stream.flush()
            return
        style = _STYLES.get(level)
        self._rich.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def new_bar(self) -> ProgressBar | None:
        """Return a bar, or None where none can be drawn."""
        return None if self._rich is None else ProgressBar(self._rich)


class ProgressBar:
    """One bar that is redrawn when it is told to; it starts no thread."""

    def __init__(self, rich_console: RichConsole) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=rich_console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID = self._progress.add_task("")
        self._is_drawn = False

    def show(self, description: str, done: int, total: int) -> None:
        """Draw the bar at ``done`` of ``total``."""
        if not self._is_drawn:
            self._progress.start()
            self._is_drawn = True
        self._progress.update(
            self._task, description=description, completed=done, total=total, refresh=True
        )

    def hide(self) -> None:
        """Take the bar off the screen; ``show`` brings it back."""
        if self._is_drawn:
            self._progress.stop()
            self._is_drawn = False
