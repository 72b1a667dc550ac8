"""Places at which a server can be told to die, so that what a crash leaves behind can be tested.

``ROYALE_CRASH_AT=learn:3`` kills the process with SIGKILL when it reaches ``learn`` for the third
time: no handler runs, no buffer is flushed, as in a power cut of this one process. Without the
variable a point costs one comparison. Never used by a run that nobody tests.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from royale_client.wire.errors import ConfigError

VARIABLE = "ROYALE_CRASH_AT"
"""Environment variable that names a point, and optionally after a colon the how manieth time."""

SAVE = "save:"
"""Begins the points after each file of a checkpoint: ``save:manifest.json``."""

POINTS: Mapping[str, str] = {
    "collect": "a batch of requests is about to be inferred",
    "infer": "a batch is inferred, and nobody has its actions yet",
    "learn": "the weights are updated, and the row of the iteration is not written",
    "row": "half of a metrics row is written",
    "save:FILE": "FILE of a checkpoint is written, save:manifest.json for the last one",
    "publish": "a checkpoint has got its name, which the disk may still forget",
    "link": "the link `latest` is about to point to the new checkpoint",
    "stop": "the run is about to take its last checkpoint",
}
"""Every point, and what has happened when the process dies there."""

_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows SIGTERM is as merciless


@dataclass(slots=True)
class CrashPlan:
    """Where to die."""

    name: str
    left: int
    """How many times the point is still reached, the last one included."""

    def __str__(self) -> str:
        return f"{self.name}:{self.left}"


def parse(text: str) -> CrashPlan:
    """Read ``name`` or ``name:count``.

    Raises:
        ConfigError: If there is no such point, or the count is not at least 1.
    """
    name, colon, count = text.rpartition(":")
    if not colon or not count.lstrip("-").isdecimal():
        name, count = text, "1"
    is_known = name in POINTS or (name.startswith(SAVE) and len(name) > len(SAVE))
    if not is_known or name == "save:FILE":
        raise ConfigError(
            f"{text!r} is no crash point; expected one of {', '.join(POINTS)}, and optionally "
            "which time, as in learn:3"
        )
    if int(count) < 1:
        raise ConfigError(f"{text!r}: a point is reached 1 time or more, got {count}")
    return CrashPlan(name, int(count))


def planned(environment: Mapping[str, str]) -> CrashPlan | None:
    """Read the variable.

    Raises:
        ConfigError: If it names no point.
    """
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"the variable {VARIABLE}: {error}") from error


def reach(name: str, last_act: Callable[[], object] | None = None) -> None:
    """Die here if that is planned.

    Args:
        name: The point.
        last_act: Done right before, to leave something half done.

    Raises:
        ConfigError: At the first point of all, if the variable names none.
    """
    if _process.is_read and _process.plan is None:
        return
    if _process.is_due(name):
        if last_act is not None:
            last_act()
        os.kill(os.getpid(), _KILL)


class _Process:
    """What is planned for this process. Read late: a fork has its own environment."""

    def __init__(self) -> None:
        self.is_read = False
        self.plan: CrashPlan | None = None

    def is_due(self, name: str) -> bool:
        if not self.is_read:
            self.plan = planned(os.environ)
            self.is_read = True
        if self.plan is None or self.plan.name != name:
            return False
        self.plan.left -= 1
        return self.plan.left == 0


_process = _Process()
