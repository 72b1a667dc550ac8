"""A socket file to listen on, for clients of the same user on this machine.

Whoever can open the file can feed the training, so it is made where nobody else can reach it and
moved to its place when its mode is right. Never replaces a file that somebody listens on, nor one
that is no socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from royale_client.wire.errors import ConfigError

OWNER_ONLY = 0o600
PROBE_TIMEOUT_S = 1.0
BACKLOG = 128


class SocketFile:
    """A listening socket and its file.

    Args:
        path: Where the file goes. Its folder exists; its length is bounded by the system.

    Raises:
        ConfigError: If the file cannot be made there; says why, and what to do.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not hasattr(socket, "AF_UNIX"):
            raise _refusal(self.path, "this system has no socket files; use --host and --port")
        try:
            with _locked(self.path.parent):
                _refuse_if_taken(self.path)
                self.socket = _listening(self.path)
                self._identity = _identity(self.path)
        except FileNotFoundError as error:
            folder = self.path.parent
            raise _refusal(self.path, f"there is no folder {folder}; create it first") from error
        except OSError as error:
            reason = f"{error.strerror or error}; choose another place"
            raise _refusal(self.path, reason) from error

    @property
    def url(self) -> str:
        """What clients take for ``--server-url``."""
        return f"unix://{quote(str(self.path))}"

    def remove(self) -> None:
        """Remove the file, unless it is another server's by now."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one server at a time look at what is there and replace it."""
    import fcntl  # absent where there are no socket files

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_if_taken(path: Path) -> None:
    """Raise unless the place is free or holds what a server that is gone has left."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        answer = probe.connect_ex(str(path))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _refusal(path, "there is a file that is no socket; remove it, or choose another name")
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        raise _refusal(path, "another server listens there; stop it, or choose another name")


def _listening(path: Path) -> socket.socket:
    """Make the file in a folder of its own, which only its owner may enter, and move it out."""
    folder = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    listener = socket.socket(socket.AF_UNIX)
    try:
        hidden = folder / "s"
        listener.bind(str(hidden))
        hidden.chmod(OWNER_ONLY)
        listener.listen(BACKLOG)
        hidden.replace(path)
    except BaseException:
        listener.close()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return listener


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"--unix-socket {path}: {reason}")
