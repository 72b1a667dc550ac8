"""What other programs ask of the running server: one small file a request, taken away when read.

Whoever asks writes the file whole and finds the answer in ``events.jsonl`` under the request's
number. Reads and removes files; does nothing about them.
"""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

ANSWERED = "answered"
"""Kind of the event that answers a request; it has the facts ``request``, ``verb`` and ``ok``."""

_SUFFIX = ".json"
_MOST_BYTES = 4096


class Verb(enum.Enum):
    """What can be asked for."""

    CHECKPOINT = "checkpoint"
    """Write a checkpoint and go on."""
    STOP = "stop"
    """Write a checkpoint and end."""
    PAUSE = "pause"
    """Come to rest until something else is asked for."""
    CONTINUE = "continue"
    """End a pause."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    id: str
    """Hexadecimal; repeated in the answer."""
    verb: Verb


class RequestFolder:
    """Takes requests out of a folder.

    Args:
        path: The folder; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def clear(self) -> None:
        """Forget requests to an earlier start: they were not meant for this one."""
        for file in self._files():
            with contextlib.suppress(OSError):
                file.unlink()
                logger.warning("%s: a request from before this start is not obeyed", file)

    def take(self) -> list[Request]:
        """Take the requests that lie there, oldest first. Blocks for as long as the disk does."""
        taken = [self._take(file) for file in self._files()]
        return [request for request in taken if request is not None]

    def _files(self) -> list[Path]:
        try:
            found = [entry for entry in self._path.iterdir() if entry.suffix == _SUFFIX]
            return sorted(found, key=lambda file: (file.stat().st_mtime_ns, file.name))
        except OSError:
            return []

    def _take(self, file: Path) -> Request | None:
        """Read and remove a file; one that cannot be removed is not obeyed."""
        try:
            with file.open("rb") as opened:
                data = opened.read(_MOST_BYTES)
            file.unlink()
        except OSError as error:
            logger.warning("%s cannot be read and removed: %s", file, error)
            return None
        try:
            document = json.loads(data)
            return Request(str(document["id"]), Verb(document["verb"]))
        except (ValueError, KeyError, TypeError):
            known = ", ".join(verb.value for verb in Verb)
            logger.warning("%s: got %r, expected an id and one of %s", file, data[:80], known)
            return None


def leave_request(folder: Path, verb: Verb) -> Request:
    """Ask something of the server that works on a run.

    Args:
        folder: The folder of requests.
        verb: What is asked for.

    Returns:
        The request; its number is in the answer.

    Raises:
        OSError: If it cannot be written.
    """
    request = Request(secrets.token_hex(8), verb)
    folder.mkdir(exist_ok=True)
    unfinished = folder / f".{request.id}"
    unfinished.write_text(json.dumps({"id": request.id, "verb": verb.value}), "utf-8")
    os.replace(unfinished, folder / f"{request.id}{_SUFFIX}")
    return request
