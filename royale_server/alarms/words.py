"""Alarms as text: lines for the console, tables for the command and the docs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import Change


def change_line(change: Change) -> str:
    """Say that an alarm is raised or over, in one line."""
    alarm = change.alarm
    if change.kind == "clear":
        return f"alarm over: {alarm.name}: {values_text(change.values)}"
    values = values_text(change.values)
    return f"alarm [{alarm.severity}] {alarm.name}: {values} -- {alarm.meaning}"


def values_text(values: Mapping[str, object]) -> str:
    """Show numbers by key."""
    return ", ".join(
        f"{key}={value:.6g}" if isinstance(value, (int, float)) else f"{key}={value}"
        for key, value in values.items()
    )


def rule_text(alarm: Alarm, limits: Mapping[str, float], *, names: bool = True) -> str:
    """Say when an alarm's condition holds, with the numbers of the settings.

    Args:
        alarm: The alarm.
        limits: Thresholds by name.
        names: Whether the settings are named beside their numbers.
    """
    text = alarm.when.words()
    for limit in alarm.when.limits:
        if isinstance(limit, str):
            number = f"{limits[limit]:g}" if limit in limits else _flag(limit)
            shown = f"{number} (`{_flag(limit)}`)" if names and limit in limits else number
            text = text.replace(f"{{{limit}}}", shown)
    return text


def default_limits() -> dict[str, float]:
    """Return the thresholds that hold if nothing is set."""
    return AlarmConfig().limits()


def _flag(limit: str) -> str:
    """Name the flag of a limit; the one that is no threshold is the server's own."""
    name = limit.replace("_", "-")
    return f"--alarms.{name}" if limit in default_limits() else f"--{name}"
