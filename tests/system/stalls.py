"""A plug-in that holds a server at a point of its work until a test lets it go on.

``STALL_AT=infer:2`` holds it where it reaches ``infer`` for the second time, says so, and goes on
when the file that GATE names exists. The points are those of ``royale_server.crash_points``, and
``assemble``, before it listens, and ``build``, before it makes the model. Also offers the tracker
``dead``, which never finishes anything.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from royale_server import crash_points
from royale_server.monitoring import trackers
from royale_server.monitoring.trackers import TrackedRun
from royale_server.registry import Registry

POLL_S = 0.01
BESIDES = {"assemble": "royale_server.app", "build": "royale_server.trainer"}
"""Further points: functions by the module that calls them by their name."""

logger = logging.getLogger("royale_server.stalls")


class Stall:
    """Stands in for ``crash_points.reach``."""

    def __init__(self, where: str, gate: Path) -> None:
        self._plan = crash_points.parse(where)
        self._gate = gate
        self._lock = threading.Lock()

    def __call__(self, name: str, last_act: Callable[[], object] | None = None) -> None:
        del last_act  # half a row, for a process that dies
        with self._lock:
            if name != self._plan.name:
                return
            self._plan.left -= 1
            is_here = self._plan.left == 0
        if is_here:
            hold(name, self._gate)


class Dead:
    """A tracker whose service has gone: every call waits for ever."""

    name = "dead"

    def __init__(self, **_options: Any) -> None:
        self._never = threading.Event()

    def start(self, run: TrackedRun) -> None:
        del run

    def log(self, row: Mapping[str, float], step: int) -> None:
        del row, step
        self._never.wait()

    def finish(self) -> None:
        self._never.wait()


def register(_registry: Registry) -> None:
    """Offer the tracker, and hold the server if it is to be held."""
    trackers.BUILT_IN["dead"] = f"{__name__}:Dead"
    if "STALL_AT" not in os.environ:
        return
    where, gate = os.environ["STALL_AT"], Path(os.environ["GATE"])
    if where in BESIDES:
        hold_before(where, gate)
    else:
        crash_points.reach = Stall(where, gate)


def hold_before(name: str, gate: Path) -> None:
    """Hold the server where it is about to call a function."""
    module = importlib.import_module(BESIDES[name])
    function = getattr(module, name)

    def held(*arguments: Any, **options: Any) -> Any:
        hold(name, gate)
        return function(*arguments, **options)

    setattr(module, name, held)


def hold(where: str, gate: Path) -> None:
    """Say where, and wait for the gate."""
    logger.warning("held at %s", where)
    while not gate.exists():
        threading.Event().wait(POLL_S)
