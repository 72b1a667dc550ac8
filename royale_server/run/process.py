"""Which process this is, and what became of another one that was recorded.

A process number alone proves nothing: it is compared together with the machine, its last start, the
container and the moment at which the process began. Reads the process table, never signals anybody.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Fate = Literal["alive", "gone", "unknown"]

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process, told apart from every other one as far as the system allows."""

    pid: int
    host: str
    boot_id: str | None = None
    """Changes with every start of the machine. None where the system does not say."""
    start_ticks: int | None = None
    """When the process began, in clock ticks since the start of the machine."""
    pid_namespace: str | None = None
    """Which set of process numbers ``pid`` is from; containers have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What can be said about a recorded process."""

    fate: Fate
    sentence: str


def this_process() -> ProcessMark:
    """The mark of this process."""
    return ProcessMark(
        pid=os.getpid(),
        host=socket.gethostname(),
        boot_id=_boot_id(),
        start_ticks=_start_ticks(os.getpid()),
        pid_namespace=_pid_namespace(),
    )


def evidence(recorded: ProcessMark, here: ProcessMark | None = None) -> Evidence:
    """Say what became of a process, and how that is known.

    Args:
        recorded: The process.
        here: This process; for tests.
    """
    here = here or this_process()
    if recorded.host != here.host:
        return _unknown(f"it ran on {recorded.host}, which cannot be asked from here")
    if None in (recorded.boot_id, here.boot_id, recorded.start_ticks):
        return _unknown("this system does not tell one process from another of the same number")
    if recorded.boot_id != here.boot_id:
        return Evidence(
            fate="gone",
            sentence="this machine was started anew since, or another one has its name",
        )
    if recorded.pid_namespace != here.pid_namespace:
        return _unknown("it ran in another container, whose processes cannot be seen from here")
    return _among_local_processes(recorded)


def _among_local_processes(recorded: ProcessMark) -> Evidence:
    ticks = _start_ticks(recorded.pid)
    if ticks == recorded.start_ticks:
        return Evidence(fate="alive", sentence=f"process {recorded.pid} still runs")
    if ticks is None:
        return Evidence(fate="gone", sentence=f"there is no process {recorded.pid} any more")
    return Evidence(fate="gone", sentence=f"process {recorded.pid} is another one now")


def _unknown(why: str) -> Evidence:
    return Evidence(fate="unknown", sentence=f"{why}, so how it ended is unknown")


def _boot_id() -> str | None:
    return _read(_PROC / "sys" / "kernel" / "random" / "boot_id")


def _start_ticks(pid: int) -> int | None:
    """Field 22 of the process's state; its name, in parentheses, may hold anything."""
    text = _read(_PROC / str(pid) / "stat")
    if text is None:
        return None
    try:
        return int(text.rpartition(")")[2].split()[19])
    except (IndexError, ValueError):
        return None


def _pid_namespace() -> str | None:
    try:
        return os.readlink(_PROC / "self" / "ns" / "pid")
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None
