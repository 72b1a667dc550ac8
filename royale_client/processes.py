"""Several client processes under one command: started together, started again, ended together.

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


def run_processes(
    arguments: Sequence[str], num_procs: int, leave: LeaveRequest, *, restarts: int = 0
) -> int:
    """Run ``num_procs`` children until all have ended.

    A child that is killed or crashes is started again under its name, up to ``restarts`` times.
    With one that fails otherwise, or once more, all end.

    Args:
        arguments: The command line of a client, without the program.
        num_procs: Number of children.
        leave: Flag that asks all of them to leave.
        restarts: How often each child may be started again.

    Returns:
        Exit code: 0 if all ended in order, 130 if asked to leave, otherwise the code of the first
        that failed (128 + n if signal n ended it).
    """
    children = [_Child(index, _start(index, arguments), restarts) for index in range(num_procs)]
    try:
        return _watch(children, leave, arguments)
    finally:
        for child in children:
            _end(child.process)


@dataclass(slots=True)
class _Child:
    """One of the processes."""

    index: int
    process: subprocess.Popen[bytes]
    restarts_left: int
    has_ended: bool = False

    def is_healed_by_restart(self, code: int) -> bool:
        """Whether starting it again may help; a refusal stays one."""
        return self.restarts_left > 0 and (code < 0 or code == EXIT_CRASHED)


def _start(index: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "royale_client.processes", str(index), str(os.getpid())]
    # A group of its own: Ctrl-C reaches the parent only, which then asks the children to leave.
    if os.name == "nt":
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        return subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, creationflags=flags)
    return subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, process_group=0)


def _watch(children: Sequence[_Child], leave: LeaveRequest, arguments: Sequence[str]) -> int:
    """Wait for all children; end the others as soon as one fails for good."""
    failed: int | None = None
    leave_by_s: float | None = None
    while not all(child.has_ended for child in children):
        for child in children:
            code = None if child.has_ended else child.process.poll()
            if code is None:
                continue
            is_unwanted = code != EXIT_FINISHED and leave_by_s is None
            if is_unwanted and child.is_healed_by_restart(code) and not leave():
                _restart(child, code, len(children), arguments)
                continue
            child.has_ended = True
            if is_unwanted:
                failed = 128 - code if code < 0 else code
                others = sum(not other.has_ended for other in children)
                logger.error("%s; ending the other %d", _obituary(child, code), others)
        if leave_by_s is None and (failed is not None or leave()):
            leave_by_s = time.monotonic() + _GRACE_S
            for child in children:
                _ask_to_leave(child.process)
        if leave_by_s is not None and time.monotonic() > leave_by_s:
            break
        time.sleep(_POLL_S)
    if failed is not None:
        return failed
    return EXIT_INTERRUPTED if leave() else EXIT_FINISHED


def _restart(child: _Child, code: int, num_procs: int, arguments: Sequence[str]) -> None:
    """Start a child again; what it did not report of its episodes is gone."""
    child.restarts_left -= 1
    logger.warning(
        "%s, and with it the episodes under way in 1 / %d of all environments; starting it again "
        "(%d more times at most)",
        _obituary(child, code),
        num_procs,
        child.restarts_left,
    )
    _end(child.process)
    child.process = _start(child.index, arguments)


def _obituary(child: _Child, code: int) -> str:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"process {child.index} (pid {child.process.pid}) ended with {how}"


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
