"""The table that shows each alarm firing on a fault and silent on a healthy run."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import AlarmSet, Change
from royale_server.alarms.keeper import ITERATION
from royale_server.alarms.live import READINGS, SAMPLE_EVERY_S
from tests.alarms.live_faults import FAULTS
from tests.alarms.planted import PLANTED, Planted
from tests.alarms.record_healthy import FILE, rows_of

LIMITS = {**AlarmConfig().limits(), "save_every": 10}
SPOKEN = {
    "tile_spam": "from iteration 96 on the policy put 30 to 70 % of its plays on one tile",
    "artefact_exploit": "from iteration 178 on ten pairs of card and tile held half of all plays",
}
"""Alarms that speak on the recorded run of the arena, and what they are right about."""


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:
    recorded: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return recorded


@functools.cache
def healthy_runs() -> dict[str, list[dict[str, Any]]]:
    """The recorded runs by name; what alarms read of every row."""
    return {name: rows_of(run["columns"]) for name, run in _recorded().items()}


def spoke(name: str) -> set[str]:
    """Alarms that spoke while a recorded run ran."""
    return set(_recorded()[name]["raised"])


def fires_at(alarm: Alarm, planted: Planted) -> int | None:
    """In which row of the fault the alarm is raised, from 1."""
    alarms = AlarmSet([alarm], LIMITS)
    rows = [planted.bad[min(i, len(planted.bad) - 1)] for i in range(alarm.patience + 1)]
    for number, row in enumerate(rows, start=1):
        if alarms.evaluate(row, number, alarm.source):
            return number
    return None


def raised(alarm: Alarm, rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """What an alarm says to rows."""
    alarms = AlarmSet([alarm], LIMITS)
    return [c for row in rows for c in alarms.evaluate(row, int(row.get(ITERATION, 0)), "row")]


def asked(alarm: Alarm, rows: Sequence[Mapping[str, Any]]) -> int:
    """How many rows have everything that an alarm reads, or had it when they were written."""
    if alarm.source != "row":
        return 0
    return sum(all(key in row or key in READINGS for key in alarm.keys) for row in rows)


def longest_streak(alarm: Alarm, rows: Iterable[Mapping[str, Any]]) -> int:
    """Most rows running in which the condition held."""
    alarms = AlarmSet([alarm], LIMITS)
    longest = 0
    for row in rows:
        alarms.evaluate(row, 0)
        longest = max(longest, alarms.state()[alarm.name]["bad"])
    return longest


def table() -> str:
    """Return the table as Markdown."""
    runs = healthy_runs()
    lines = [
        "| alarm | fault it was seen firing on | rows it took | silent on |",
        "| --- | --- | --- | --- |",
    ]
    for alarm in BUILT_IN_ALARMS:
        live = FAULTS.get(alarm.name)
        planted = PLANTED[alarm.name]
        what = live.what if live else f"{planted.what} (planted row; not yet seen live)"
        at = fires_at(alarm, planted)
        lines.append(f"| `{alarm.name}` | {what} | {at} | {_silence(alarm, runs)} |")
    return "\n".join(lines)


def _silence(alarm: Alarm, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    said = []
    for name, rows in runs.items():
        count = asked(alarm, rows)
        if count and raised(alarm, rows):
            said.append(f"*not* on {name}, and rightly: {SPOKEN[alarm.name]}")
        elif alarm.source == "sample":
            said.append(f"samples of {name}, one in {SAMPLE_EVERY_S:g} s")
        elif count:
            streak = longest_streak(alarm, rows)
            said.append(
                f"{count} rows of {name}"
                + (f" (condition at most {streak} running of {alarm.patience})" if streak else "")
            )
    return "; ".join(said) if said else "planted rows just inside the limit"
