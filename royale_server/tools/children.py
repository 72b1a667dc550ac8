"""Processes that a check starts: their output goes to files, and all of them are ended.

Each is the leader of a group of its own, so that a Ctrl-C at the terminal reaches the check alone,
which then ends them, theirs included. What a process started does not outlive it: its group is
killed when its end is noticed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

END_S = 10.0
POLL_S = 0.05
TAIL_LINES = 15


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: everything that was started is ended on the way out."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


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
        if self._process.returncode is None and self._has_ended():
            self._kill_group()
            self._process.wait()
        return self._process.returncode

    @property
    def tail(self) -> list[str]:
        """The last lines it wrote."""
        return self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; say whether it came in time."""
        deadline = time.monotonic() + timeout_s
        while self.code is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_S, left))
        return True

    def terminate(self) -> None:
        """Ask it to end."""
        if self.code is not None:
            return
        if sys.platform == "win32":
            self._process.terminate()
        else:
            os.kill(self._process.pid, signal.SIGTERM)  # not by Popen, which might reap it

    def kill(self) -> None:
        """End it and whatever it started, at once."""
        if self.code is None:  # else its group is dead, and its number may be somebody else's
            self._kill_group()
            self._process.wait()

    def end(self) -> None:
        """Ask it to end, then make sure."""
        if self.code is None:
            self.terminate()
            self.wait(END_S)
        self.kill()

    def _has_ended(self) -> bool:
        """Whether it has, still holding on to its number, where the system offers that."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _kill_group(self) -> None:
        if sys.platform == "win32":
            self._process.kill()
        else:
            # Nobody is left, which macOS calls a lack of permission while the leader is unreaped.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
