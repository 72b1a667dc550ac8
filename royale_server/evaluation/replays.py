"""Replays of battles, for the commands that record and show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from royale_client.envs.arena.replay import read
from royale_client.envs.arena.replay_views import as_page, as_text


def text_of(file: Path) -> Iterator[str]:
    """Yield the lines of a replay.

    Raises:
        ReplayError: It is none, or comes to something else than recorded.
    """
    return as_text(read(file))


def page_of(file: Path) -> str:
    """Return a replay as a page.

    Raises:
        ReplayError: It is none, or comes to something else than recorded.
    """
    return as_page(read(file))
