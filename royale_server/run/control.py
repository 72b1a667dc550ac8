"""The file ``control`` of a run: one letter in it, written by a person, steers the run.

Reads and removes that file; does nothing about it. Works with what editors and shells make of one
letter: a byte order mark, UTF-16, a line end, capitals.
"""

from __future__ import annotations

import enum
import logging
import stat
import threading
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""How often the file is looked for."""
_MOST_BYTES = 64


class Letter(enum.Enum):
    """What can be asked for."""

    CHECKPOINT = "c"
    """Write a checkpoint now."""
    QUIT = "q"
    """Write a checkpoint and stop."""
    PAUSE = "p"
    """Pause until another letter comes."""


class ControlFile:
    """Takes letters out of the file.

    Args:
        path: Where it is looked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_said_stuck = False

    def clear(self) -> None:
        """Forget a letter to an earlier start: it was not meant for this one."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._say_stuck(error)
            return
        logger.warning("%s: a letter from before this start is not obeyed", self._path)

    def take(self) -> Letter | None:
        """Take the letter, if there is one, and remove the file.

        A file that is still empty is being written: it is left for the next time. What is no letter
        is said and removed. Blocks for as long as the disk does.
        """
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise OSError("it is no plain file")  # a pipe would block for ever
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say_stuck(error)
            return None
        text = _decoded(data).strip()
        if not text:
            return None
        try:
            self._path.unlink()
        except OSError as error:
            # Acting on it would mean acting on it again and again.
            self._say_stuck(error)
            return None
        try:
            return Letter(text.lower())
        except ValueError:
            known = ", ".join(f"{letter.value} ({letter.name.lower()})" for letter in Letter)
            logger.warning("%s: got %r, expected one of %s", self._path, text[:20], known)
            return None

    def _say_stuck(self, error: OSError) -> None:
        if not self._has_said_stuck:
            self._has_said_stuck = True
            logger.warning("%s cannot be read and removed: %s", self._path, error)


class ControlThread:
    """Looks for letters and requests in a thread of its own, since a disk may be slow.

    Args:
        look: What to do at every look; called on that thread.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Does not wait for a disk that hangs."""
        self._is_over.set()

    def _work(self) -> None:
        while not self._is_over.wait(POLL_S):
            self._look()


def _decoded(data: bytes) -> str:
    """Read text in whatever encoding a shell wrote it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")
