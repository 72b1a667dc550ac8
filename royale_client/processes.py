"""Several client processes under one command: started together, ended together.

Each child reads a pipe from its parent: a byte asks it to leave in order, the end of the pipe says
that the parent is gone and ends the child at once. Linux also kills a child whose parent dies,
should the child hang. What a child is (name, seed) follows from its number alone. The parent runs
no environment and opens no connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from royale_client.leaving import EXIT_CRASHED, EXIT_FINISHED, EXIT_INTERRUPTED, LeaveRequest

logger = logging.getLogger(__name__)

_LEAVE = b"q"
_POLL_S = 0.1
_GRACE_S = 15.0
_KILL_AFTER_S = 2.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ChildIdentity:
    """Which of the processes this one is."""

    index: int
    """Number of the process, from 0."""

    def name(self, base: str) -> str:
        """Return the client name of this process."""
        return f"{base}-{self.index}"

    def seed(self, base: int | None, num_envs: int) -> int | None:
        """Return the seed of this process's first environment."""
        return None if base is None else base + self.index * num_envs


def run_processes(arguments: Sequence[str], num_procs: int, leave: LeaveRequest) -> int:
    """Run ``num_procs`` children until all have ended.

    Args:
        arguments: The command line of a client, without the program.
        num_procs: Number of children.
        leave: Flag that asks all of them to leave.

    Returns:
        Exit code: 0 if all ended in order, 130 if asked to leave, otherwise the code of the first
        that failed (128 + n if signal n ended it).
    """
    children = [_start(index, arguments) for index in range(num_procs)]
    try:
        return _watch(children, leave)
    finally:
        for child in children:
            _end(child)


def _start(index: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "royale_client.processes", str(index), str(os.getpid())]
    # A group of its own: Ctrl-C reaches the parent only, which then asks the children to leave.
    if os.name == "nt":
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        return subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, creationflags=flags)
    return subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, process_group=0)


def _watch(children: Sequence[subprocess.Popen[bytes]], leave: LeaveRequest) -> int:
    """Wait for all children; end the others as soon as one fails."""
    failed: int | None = None
    leave_by_s: float | None = None
    reported: set[int] = set()
    while len(reported) < len(children):
        for index, child in enumerate(children):
            code = child.poll()
            if code is None or index in reported:
                continue
            reported.add(index)
            if code != EXIT_FINISHED and leave_by_s is None:
                failed = 128 - code if code < 0 else code
                logger.error(
                    "process %d (pid %d) ended with %s; ending the other %d",
                    index,
                    child.pid,
                    f"signal {-code}" if code < 0 else f"exit code {code}",
                    len(children) - len(reported),
                )
        if leave_by_s is None and (failed is not None or leave()):
            leave_by_s = time.monotonic() + _GRACE_S
            for child in children:
                _ask_to_leave(child)
        if leave_by_s is not None and time.monotonic() > leave_by_s:
            break
        time.sleep(_POLL_S)
    if failed is not None:
        return failed
    return EXIT_INTERRUPTED if leave() else EXIT_FINISHED


def _ask_to_leave(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(OSError):  # it ended by itself meanwhile
        child.stdin.write(_LEAVE)
        child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Make sure that a child is gone and that nothing of it is left here."""
    if child.poll() is None:
        logger.warning("process with pid %d does not leave; ending it", child.pid)
        child.terminate()
        try:
            child.wait(_KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    assert child.stdin is not None
    with contextlib.suppress(OSError):  # the pipe may be broken already
        child.stdin.close()


def tie_to_parent(parent_pid: int, pipe: int, leave: LeaveRequest) -> None:
    """Make this process leave when its parent asks, and end when its parent ends.

    Args:
        parent_pid: Process number of the parent.
        pipe: File descriptor of the pipe from it.
        leave: Flag to set when it asks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died before the line above
            os._exit(EXIT_CRASHED)
    threading.Thread(target=_obey, args=(pipe, leave), name="parent", daemon=True).start()


def _obey(pipe: int, leave: LeaveRequest) -> None:
    # Not through sys.stdin: its lock would be held here when the interpreter shuts down.
    while os.read(pipe, 1) == _LEAVE:
        leave.make()
    os._exit(EXIT_CRASHED)


def main(arguments: Sequence[str]) -> int:
    """Be a child: number, parent's process number, then the command line of a client."""
    from royale_client.cli import run_command

    index, parent_pid, *rest = arguments
    leave = LeaveRequest()
    tie_to_parent(int(parent_pid), sys.stdin.fileno(), leave)
    return run_command(rest, leave, ChildIdentity(int(index)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
