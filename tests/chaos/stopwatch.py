"""A plug-in that notes how long clients waited, and the event loop lagged; ``--plugin`` this file.

They go to the file that STOPWATCH_FILE names, as they come: one JSON list a line, of the moment
(monotonic seconds), the name of the client, or "" for a lag of the loop, and the seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from royale_server.iteration_clock import IterationClock
from royale_server.registry import Registry

if TYPE_CHECKING:
    from royale_server.scheduler import Infer

LAG = ""


class Waited(NamedTuple):
    """One line of the file."""

    at: float
    """When it was over, monotonic seconds."""
    client: str
    """Who waited; `LAG` for the event loop itself."""
    seconds: float


def register(_registry: Registry) -> None:
    """Offer nothing, and listen to the clock of the iterations."""
    file = open(os.environ["STOPWATCH_FILE"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115 for good
    inferred, lagged = IterationClock.inferred, IterationClock.lagged

    def note(at: float, client: str, seconds: float) -> None:
        file.write(json.dumps([at, client, seconds]) + "\n")

    def noted_inferred(self: IterationClock, batch: Infer, duration_s: float, now: float) -> None:
        for item in batch.items:
            note(now, item.group.member.name, now - item.request.received_at)
        inferred(self, batch, duration_s, now)

    def noted_lagged(self: IterationClock, lag_s: float) -> None:
        note(time.monotonic(), LAG, lag_s)
        lagged(self, lag_s)

    IterationClock.inferred = noted_inferred  # type: ignore[method-assign]
    IterationClock.lagged = noted_lagged  # type: ignore[method-assign]


def read(file: Path, counts: Callable[[Waited], bool]) -> list[float]:
    """Return the seconds of those lines that count."""
    lines = file.read_text(encoding="utf-8").splitlines()
    waited = (Waited(*json.loads(line)) for line in lines)
    return [one.seconds for one in waited if counts(one)]
