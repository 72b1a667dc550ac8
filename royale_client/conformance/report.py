"""What came of a grading, for people and for programs, and the list of all scenarios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from royale_client.conformance.scenario import Outcome, Result, Scenario

_MARKS = {Outcome.PASSED: "pass", Outcome.FAILED: "FAIL", Outcome.SKIPPED: "skip"}


def line(result: Result) -> str:
    """Say in one or two lines how a scenario went."""
    text = f"{_MARKS[result.outcome]}  {result.name:28} {result.title}"
    if result.outcome is Outcome.FAILED:
        text += f"\n      {' '.join(result.broken)}: {result.sentence}"
    elif result.outcome is Outcome.SKIPPED:
        text += f"\n      not graded: {result.sentence}"
    return text


def summary(results: Sequence[Result], peer: str) -> str:
    """Say in one line how it went in all."""
    counts = {outcome: sum(r.outcome is outcome for r in results) for outcome in Outcome}
    parts = [f"{counts[Outcome.PASSED]} passed", f"{counts[Outcome.FAILED]} failed"]
    parts.append(f"{counts[Outcome.SKIPPED]} not graded")
    broken = sorted({clause for r in results for clause in r.broken}, key=lambda c: int(c[1:]))
    text = f"{peer}: {', '.join(parts)} of {len(results)}"
    return f"{text}; broken: {' '.join(broken)}" if broken else text


def as_json(results: Sequence[Result], peer: str) -> str:
    """Return the whole report as one JSON document."""
    document = {
        "peer": peer,
        "passed": all(result.outcome is not Outcome.FAILED for result in results),
        "scenarios": [_entry(result) for result in results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _entry(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "title": result.title,
        "clauses": result.clauses,
        "outcome": result.outcome.value,
        "broken": result.broken,
        "sentence": result.sentence,
        "seconds": round(result.seconds, 3),
    }


def listing(scenarios: Sequence[Scenario[Any]]) -> str:
    """List scenarios for a terminal: name, clauses, what a peer that passes does."""
    return "\n".join(f"{s.name:28} {' '.join(s.clauses):20} {s.title}" for s in scenarios)


def markdown(scenarios: Sequence[Scenario[Any]], watched: Mapping[str, str]) -> str:
    """Return the two tables of one kind of peer for the documentation."""
    always = [f"| {clause} | {meaning} |" for clause, meaning in watched.items()]
    rows = [f"| `{s.name}` | {', '.join(s.clauses)} | {s.title} |" for s in scenarios]
    return "\n".join(
        [
            "Watched in every conversation:",
            "",
            "| clause | what is watched |",
            "| --- | --- |",
            *always,
            "",
            "| scenario | clauses | a peer that passes |",
            "| --- | --- | --- |",
            *rows,
        ]
    )
