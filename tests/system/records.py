"""Reads what a run left on disk, the way anybody would: from its files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a ``.jsonl`` file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the metrics rows of a run."""
    return lines(run / "metrics.jsonl")


def events(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the events of a run, or those of one kind."""
    return [e for e in lines(run / "events.jsonl") if kind in (None, e["kind"])]


def steps(run: Path) -> list[int]:
    """Return the steps of a run's whole checkpoints, in order."""
    return sorted(int(manifest.parent.name) for manifest in run.glob("[0-9]*/manifest.json"))


def discards(row: dict[str, Any]) -> dict[str, float]:
    """Return the counts of a metrics row that are zero unless frames were lost on the way."""
    return {
        key: value
        for key, value in row.items()
        if key.startswith("server/discarded_") or key == "server/no_state_frames"
    }
