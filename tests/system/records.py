"""Reads what a run left on disk, the way anybody would: from its files alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from royale_server.monitoring.declarations import Dictionary
from royale_server.run.writer import ENVELOPE_KEYS


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


def declarations_met(rows: Iterable[dict[str, Any]], specs: Dictionary) -> set[str]:
    """Return the declarations whose keys the rows have; every key must have one."""
    found = {key: specs.find(key) for row in rows for key in row if key not in ENVELOPE_KEYS}
    assert not [key for key, spec in found.items() if spec is None]
    return {spec.key for spec in found.values() if spec is not None}


def constant_keys(rows: Iterable[dict[str, Any]], specs: Dictionary) -> set[str]:
    """Return the keys that say the same in every row although nothing declares that they may."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key in row.keys() - ENVELOPE_KEYS:
            values.setdefault(key, []).append(row[key])
    constant = {key for key, seen in values.items() if len(seen) > 1 and len(set(seen)) == 1}
    return {key for key in constant if not _may_be_constant(key, specs)}


def _may_be_constant(key: str, specs: Dictionary) -> bool:
    spec = specs.find(key)
    return spec is not None and bool(spec.may_be_constant)
