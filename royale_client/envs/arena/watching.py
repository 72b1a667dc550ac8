"""`--watch` and `--watch-port`: who shows the first battle of a client, and when.

One group of a process has spectators: the first that asks, until it closes. Never ends a client
because nobody can look at it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TextIO

from royale_client.envs.arena.spectators import HOST, LivePage, Teller
from royale_client.envs.arena.stage import Stage

logger = logging.getLogger(__name__)

_taken = threading.Lock()
"""Held by the group that has the spectators of this process."""


class _Part(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Watching:
    """The spectators of a group's first battle."""

    stage: Stage
    """Where it shows the battle."""
    parts: tuple[_Part, ...]
    free: Callable[[], None]
    """Lets another group have spectators."""

    def close(self) -> None:
        """Show nothing any more."""
        for part in self.parts:
            part.close()
        self.free()


def watched(*, text: bool, port: int | None, out: TextIO | None = None) -> Watching | None:
    """Let people look at a group's first battle.

    Args:
        text: Write lines about it.
        port: Serve a page of it on this port of the loopback address; None for no page.
        out: Where lines go; standard output by default.

    Returns:
        None if nobody wants to look, or another group of this process is looked at.
    """
    if not (text or port is not None) or not _taken.acquire(blocking=False):
        return None
    stage = Stage()
    parts: list[_Part] = [Teller(stage, out or sys.stdout)] if text else []
    page = None if port is None else _page(stage, port)
    if page is not None:
        parts.append(page)
    for part in parts:
        part.start()
    return Watching(stage, tuple(parts), _taken.release)


def _page(stage: Stage, port: int) -> LivePage | None:
    try:
        page = LivePage(stage, port)
    except OSError as error:
        logger.warning(
            "--watch-port %d: nothing is shown there, %s cannot be listened on: %s; take another "
            "port, or 0 for a free one",
            port,
            f"{HOST}:{port}",
            error.strerror or error,
        )
        return None
    logger.info("the first battle is shown at %s", page.url)
    return page
