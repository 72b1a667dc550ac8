"""What ``alarms.jsonl`` says: which alarms of a run are open, and when each was raised and over.

Pure: records in, spans out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

RESUMED = "resumed"
"""Kind of the record that says which alarms are open where an attempt begins."""

Ending = Literal["open", "cleared", "undone", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An alarm from when it was raised until it was over."""

    alarm: str
    severity: str
    since: int
    """Iteration in which it was raised."""
    until: int | None
    """Iteration in which it was over; None while it is open."""
    ending: Ending
    """``cleared``: its condition was gone; ``undone``: the run was resumed from before it;
    ``ended``: it stopped the run, or belonged to a start of the server that is over."""
    record: Mapping[str, Any]
    """The record that raised it."""


def spans(records: Iterable[Mapping[str, Any]]) -> list[Span]:
    """Return all alarms of a run, in the order in which they were raised.

    Args:
        records: Lines of ``alarms.jsonl``; what cannot be read is passed over.
    """
    found: list[Span] = []
    for record in records:
        match record.get("kind"):
            case "raise":
                found.append(_raised(record))
            case "clear":
                found = [_cleared(span, record) for span in found]
            case kind if kind == RESUMED:
                found = [_resumed(span, record) for span in found]
    return found


def open_spans(records: Iterable[Mapping[str, Any]]) -> list[Span]:
    """Return the alarms that are raised and not over."""
    return [span for span in spans(records) if span.ending == "open"]


def _raised(record: Mapping[str, Any]) -> Span:
    return Span(
        alarm=str(record.get("alarm")),
        severity=str(record.get("severity")),
        since=int(record.get("iteration", 0)),
        until=None,
        ending="open",
        record=record,
    )


def _cleared(span: Span, record: Mapping[str, Any]) -> Span:
    if span.ending != "open" or span.alarm != record.get("alarm"):
        return span
    return replace(span, until=int(record.get("iteration", 0)), ending="cleared")


def _resumed(span: Span, record: Mapping[str, Any]) -> Span:
    """What came after the checkpoint has not happened; what it does not name is over."""
    iteration = int(record.get("iteration", 0))
    if span.since > iteration:
        return replace(span, until=span.until or iteration, ending="undone")
    is_named = span.alarm in record.get("open", ())
    if span.ending == "open" and not is_named:
        return replace(span, until=iteration, ending="ended")
    if span.ending == "cleared" and is_named and (span.until or 0) > iteration:
        return replace(span, until=None, ending="open")
    return span
