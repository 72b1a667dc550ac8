"""What an alarm is: a name, a condition, how patient it is, and what a person is told.

A declaration evaluates nothing and keeps no state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from royale_server.alarms.conditions import Condition

Severity: TypeAlias = Literal["warn", "halt"]
Source: TypeAlias = Literal["row", "sample"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm.

    Raises:
        ValueError: If the name, the patience or the severity cannot be.
    """

    name: str
    """Lower-case letters, digits and underscores."""
    group: str
    """Heading under which it is listed."""
    when: Condition
    """What is asked of every row."""
    population: str
    """Which rows of data its numbers are computed over."""
    severity: Severity
    """``warn``: say so and go on; ``halt``: say so, save, and stop with exit code 2."""
    patience: int
    """Rows running for which the condition must hold."""
    meaning: str
    """What it says about the run; one sentence."""
    remedy: str
    """What to do about it."""
    source: Source = "row"
    """``row``: asked of every metrics row once it is on disk. ``sample``: asked of what the server
    knows about itself, every few seconds, also while the disk does not answer."""
    dump: bool = False
    """Whether a bundle is written although the run goes on."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"alarm {self.name!r}: expected a name of lower-case letters, digits and "
                "underscores, the first a letter"
            )
        if self.patience < 1:
            raise ValueError(f"alarm {self.name}: patience is {self.patience}, expected 1 or more")
        if self.severity not in ("warn", "halt"):
            raise ValueError(f"alarm {self.name}: severity is {self.severity!r}, not warn or halt")

    @property
    def uid(self) -> str:
        """The name it is registered under."""
        return self.name

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys without which it is not asked."""
        return self.when.keys
