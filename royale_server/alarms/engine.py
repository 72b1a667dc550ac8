"""Asks every alarm about one row after the other, and says which are raised and which are over.

Pure: rows in, changes out. Keeps how often each condition has held running; that is plain data,
goes into checkpoints and continues from there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from royale_server.alarms.conditions import Memory, Numbers, Reading
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm, Severity, Source

logger = logging.getLogger(__name__)

Row: TypeAlias = Mapping[str, Any]
Kind: TypeAlias = Literal["raise", "clear"]

NONFINITE_KEY = "nonfinite"
"""Of a row: what its nulls were, by key."""
NONFINITE_COUNT = "row/nonfinite"
"""What alarms read of it: how many there are."""

MOST_TO_CLEAR = 5
"""Rows running without the condition that end an alarm: as many as its patience, this at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An alarm is raised, or over."""

    kind: Kind
    alarm: Alarm
    iteration: int
    consecutive: int
    """Rows running with the condition, or without it."""
    values: Mapping[str, float | str]
    """What it read, by key; numbers that are not finite by their names."""
    limits: Mapping[str, float]
    """What that was held against."""

    @property
    def is_halt(self) -> bool:
        """Whether the run must stop."""
        return self.kind == "raise" and self.alarm.severity == "halt"

    def record(self) -> dict[str, Any]:
        """Return it as a line of ``alarms.jsonl``."""
        return {
            "kind": self.kind,
            "alarm": self.alarm.name,
            "severity": self.alarm.severity,
            "iteration": self.iteration,
            "consecutive": self.consecutive,
            "patience": self.alarm.patience,
            "values": dict(self.values),
            "limits": dict(self.limits),
            "meaning": self.alarm.meaning,
        }


@dataclass(slots=True)
class _Standing:
    """How one alarm stands."""

    bad: int = 0
    """Rows running with the condition."""
    good: int = 0
    """Rows running without it, while it is open."""
    is_open: bool = False
    memory: Memory = field(default_factory=dict)


class AlarmSet:
    """Alarms and how they stand.

    Args:
        alarms: What is asked, with its final patience and severity.
        limits: Thresholds by name.
    """

    def __init__(self, alarms: Sequence[Alarm], limits: Numbers) -> None:
        self._alarms = tuple(alarms)
        self._limits = dict(limits)
        self._standings = {alarm.name: _Standing() for alarm in self._alarms}
        self._broken: set[str] = set()

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Everything that is asked."""
        return self._alarms

    @property
    def open(self) -> list[str]:
        """Names of the alarms that are raised and not over."""
        return [name for name, standing in self._standings.items() if standing.is_open]

    def evaluate(self, row: Row, iteration: int, source: Source = "row") -> list[Change]:
        """Ask every alarm of a source about one row.

        An alarm one of whose keys is missing or not finite is not asked: its counts stay.

        Args:
            row: Numbers by key, as on disk: null where a number is not finite.
            iteration: Of the row; goes into the changes.
            source: What kind of row it is.

        Returns:
            What changed, in the order of the alarms.
        """
        values = numbers_of(row)
        changes = []
        for alarm in self._alarms:
            if alarm.source != source or not all(key in values for key in alarm.keys):
                continue
            holds = self._ask(alarm, values)
            if holds is None:
                continue
            kind = self._count(alarm, holds=holds)
            if kind is not None:
                changes.append(self._change(kind, alarm, _read(alarm, values, row), iteration))
        return changes

    def state(self) -> dict[str, Any]:
        """Return how every alarm stands, as plain data."""
        return {
            name: {
                "bad": standing.bad,
                "good": standing.good,
                "is_open": standing.is_open,
                "memory": dict(standing.memory),
            }
            for name, standing in self._standings.items()
        }

    def load_state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from what `state` returned; alarms that are new begin, those that are gone go.

        One that stopped the run is raised again at the next row that has its condition, so that a
        run which is resumed without a cure stops again.
        """
        for alarm in self._alarms:
            saved = state.get(alarm.name)
            if saved is None:
                continue
            is_open = bool(saved["is_open"]) and alarm.severity != "halt"
            memory = dict(saved["memory"])
            good = int(saved["good"])
            self._standings[alarm.name] = _Standing(int(saved["bad"]), good, is_open, memory)

    def _ask(self, alarm: Alarm, values: Numbers) -> bool | None:
        """Ask a condition; one that raises is a plug-in's bug and is asked no more."""
        if alarm.name in self._broken:
            return None
        memory = self._standings[alarm.name].memory
        try:
            return alarm.when.holds(Reading(values, self._limits, memory))
        except Exception:
            logger.exception("alarm %s cannot be asked and is left out from now on", alarm.name)
            self._broken.add(alarm.name)
            return None

    def _count(self, alarm: Alarm, *, holds: bool) -> Kind | None:
        """Count the row; return what changes by it."""
        standing = self._standings[alarm.name]
        standing.bad = standing.bad + 1 if holds else 0
        standing.good = 0 if holds else standing.good + 1
        if holds and not standing.is_open and standing.bad >= alarm.patience:
            standing.is_open = True
            return "raise"
        if standing.is_open and standing.good >= min(alarm.patience, MOST_TO_CLEAR):
            standing.is_open = False
            return "clear"
        return None

    def _change(
        self, kind: Kind, alarm: Alarm, values: Mapping[str, float | str], iteration: int
    ) -> Change:
        standing = self._standings[alarm.name]
        return Change(
            kind=kind,
            alarm=alarm,
            iteration=iteration,
            consecutive=standing.bad if kind == "raise" else standing.good,
            values=values,
            limits={n: self._limits[n] for n in alarm.when.limits if isinstance(n, str)},
        )


def _read(alarm: Alarm, values: Numbers, row: Row) -> dict[str, float | str]:
    """Return what an alarm read of a row."""
    when = alarm.when
    read: dict[str, float | str] = {
        key: values[key] for key in (*when.keys, *when.optional_keys) if key in values
    }
    return {**read, **row.get(NONFINITE_KEY, {})} if NONFINITE_COUNT in read else read


def numbers_of(row: Row) -> dict[str, float]:
    """Return the finite numbers of a row, and how many of its numbers are not finite."""
    numbers = {
        key: float(value)
        for key, value in row.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
    return {**numbers, NONFINITE_COUNT: float(len(row.get(NONFINITE_KEY) or {}))}


def configured(alarms: Iterable[Alarm], config: AlarmConfig) -> list[Alarm]:
    """Return the alarms that are asked, with the patience and severity that the settings give."""
    if not config.enabled:
        return []
    patience, severity = config.patience_of(), config.severity_of()
    kept = []
    for alarm in alarms:
        if alarm.name not in config.disabled:
            loudness: Severity = "halt" if severity.get(alarm.name) == "halt" else "warn"
            kept.append(
                replace(
                    alarm,
                    patience=patience.get(alarm.name, alarm.patience),
                    severity=loudness if alarm.name in severity else alarm.severity,
                )
            )
    return kept
