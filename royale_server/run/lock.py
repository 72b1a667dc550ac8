"""One process per run: a kernel lock on the run's ``lock`` file, with a record of who holds it.

The kernel drops the lock when its process dies, however it dies, so it cannot go stale. A record
whose lock is free is taken over, unless its process verifiably still runs: then this file system
has no working locks. Never waits longer than a fifth of a second, never kills anything.
"""

from __future__ import annotations

import json
import os
import sys
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from royale_client.wire.errors import RoyaleError
from royale_server.run.process import Evidence, ProcessMark, evidence, this_process

if sys.platform == "win32":
    import msvcrt

    # Windows keeps others from reading locked bytes; this one lies beyond the record.
    _LOCKED_OFFSET = 1 << 30
else:
    import fcntl

_TRIES = 10
_PAUSE_S = 0.02
_OPTIONAL = (("boot_id", str), ("start_ticks", int), ("pid_namespace", str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(ProcessMark):
    """Who holds, or held, the lock of a run."""

    since: str
    """UTC, ISO 8601."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class RunInUseError(RoyaleError):
    """Another process works on the run.

    Args:
        path: The run's directory.
        owner: Who it is, as far as its record says.
    """

    def __init__(self, path: Path, owner: Owner | None) -> None:
        who = str(owner) if owner else "another process"
        super().__init__(f"{path} is in use by {who}; stop it first, or choose another --exp-name")
        self.path = path
        self.owner = owner


class RunLock:
    """The lock of a run, held. Release it, or end the process.

    Args:
        path: The ``lock`` file; made if missing. Its folder must exist.

    Raises:
        RunInUseError: If another process holds it.
        OSError: If the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = _acquire(path)
        self.previous = _read_owner(self._descriptor)
        """Who held it before and did not release it; ``None`` after a clean end."""
        self.evidence: Evidence | None = self._judge_previous()
        """What became of that process, and how it is known."""
        owner = Owner(**asdict(this_process()), since=_now())
        _write_record(self._descriptor, json.dumps(asdict(owner)))
        _held.add(self)

    def _judge_previous(self) -> Evidence | None:
        if self.previous is None:
            return None
        found = evidence(self.previous)
        if found.fate == "alive" and self.previous.pid != os.getpid():
            self.abandon()
            raise RunInUseError(self.path.parent, self.previous)
        return found

    def release(self) -> None:
        """Give the lock up and clear the record. Does nothing the second time."""
        if self._descriptor is None:
            return
        _write_record(self._descriptor, "")
        self.abandon()

    def abandon(self) -> None:
        """Close the file and leave the record as it is."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _held.discard(self)


def holder(path: Path) -> Owner | None:
    """Say who holds the lock of a run, without taking it or creating anything.

    Args:
        path: The ``lock`` file.

    Returns:
        The owner, or ``None`` if nobody holds it. An owner whose record cannot be read has pid 0.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if _try_lock(descriptor, shared=True):
            return None
        return _read_owner(descriptor) or Owner(pid=0, host="an unknown host", since="unknown time")
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Open and lock the file that has this path, also while somebody moves the run aside."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)  # a reader that only asks holds it for microseconds
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if _try_lock(descriptor, shared=False) and _is_at(descriptor, path):
            return descriptor
        owner = _read_owner(descriptor)
        os.close(descriptor)
    raise RunInUseError(path.parent, owner)


def _try_lock(descriptor: int, *, shared: bool) -> bool:
    """Take the kernel lock if it is free. Closing the descriptor drops it."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _LOCKED_OFFSET, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _read_owner(descriptor: int) -> Owner | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        record: Any = json.loads(os.read(descriptor, 4096))
        return Owner(
            pid=int(record["pid"]),
            host=str(record["host"]),
            since=str(record["since"]),
            **{name: record[name] for name, kind in _OPTIONAL if type(record.get(name)) is kind},
        )
    except (ValueError, KeyError, TypeError):
        return None


def _write_record(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, text.encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _abandon_in_child() -> None:
    """A forked child must not keep the run locked after its parent died."""
    for lock in list(_held):
        lock.abandon()


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
