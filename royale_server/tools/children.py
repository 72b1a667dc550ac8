"""Processes that a check starts: their output goes to files, and all of them are ended.

Each is the leader of a group of its own, so that a Ctrl-C at the terminal reaches the check alone,
which then ends them, theirs included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

END_S = 10.0
TAIL_LINES = 15


class Child:
    """One running command.

    Args:
        words: The command.
        log: File that its output is appended to.
        environment: Variables besides those of this process.
    """

    def __init__(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.words = tuple(words)
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def tail(self) -> list[str]:
        """The last lines it wrote."""
        return self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; say whether it came in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.code is not None

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and whatever it started, at once."""
        if self.code is None:  # else its number may be somebody else's by now
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Ask it to end, then make sure."""
        if self.code is None:
            self.terminate()
            self.wait(END_S)
        self.kill()
