"""A plug-in whose alarms have bundles written in every way there is; ``--plugin`` this file."""

from __future__ import annotations

from royale_server.alarms.conditions import at_least
from royale_server.alarms.declaration import Alarm, Severity, Source
from royale_server.registry import Registry

WARNS, SAMPLED, HALTS = "warns_with_bundle", "sampled_with_bundle", "halts_with_bundle"


def _alarm(name: str, key: str, low: float, severity: Severity, source: Source) -> Alarm:
    return Alarm(
        name=name,
        group="Tests",
        when=at_least(key, low),
        population="the run",
        severity=severity,
        patience=1,
        meaning="It is asked for.",
        remedy="Look at the bundle.",
        source=source,
        dump=severity == "warn",
    )


def register(registry: Registry) -> None:
    """Offer alarms that speak of a row, between rows, and once a client that trains is lost."""
    registry.add_alarm(_alarm(WARNS, "run/iteration", 2.0, "warn", "row"))
    registry.add_alarm(_alarm(SAMPLED, "sample/no_progress_s", 0.0, "warn", "sample"))
    registry.add_alarm(_alarm(HALTS, "health/worker_restarts", 1.0, "halt", "row"))
