"""What can be told about the checkpoints of a run, as rows and as text. Reads only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checkpoints import (
    CheckpointEntry,
    CheckpointError,
    best,
    is_pinned,
    list_checkpoints,
    verify,
)
from checkpoints.manifest import MANIFEST_NAME, check_sizes

_HEADINGS = ("step", "iteration", "score", "size", "age", "state")
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_STEP_OF_BYTES = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One checkpoint, or what merely looks like one."""

    path: Path
    step: int | None
    """None if it cannot be read."""
    iteration: int | None
    """Iterations that were complete; None if its manifest does not say."""
    score: float | None
    score_of: str | None
    score_in: str | None
    """What an evaluation was played in."""
    size_bytes: int
    saved_at: float
    """Seconds since 1970."""
    marks: tuple[str, ...]
    """``newest``, ``best``, ``pinned``."""
    problem: str | None
    """Why it is not whole; None if it is, as far as was looked."""

    @property
    def state(self) -> str:
        """The last column."""
        torn = [] if self.problem is None else [f"torn: {self.problem}"]
        return ", ".join([*self.marks, *torn])

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "path": str(self.path),
            "step": self.step,
            "iteration": self.iteration,
            "score": self.score,
            "score_of": self.score_of,
            "score_in": self.score_in,
            "size_bytes": self.size_bytes,
            "saved_at": round(self.saved_at, 3),
            "marks": list(self.marks),
            "whole": self.problem is None,
            "problem": self.problem,
        }


def read_rows(run: Path, *, hashes: bool) -> list[CheckpointRow]:
    """List the checkpoints of a run by step, oldest first, those that cannot be read at the end.

    Args:
        run: Its directory.
        hashes: Hash every file; otherwise presence and sizes are compared.
    """
    entries, unreadable = list_checkpoints(run)
    favourite = best(entries)
    rows = [_row(entry, entry is favourite, hashes=hashes) for entry in entries]
    whole = [i for i, row in enumerate(rows) if row.problem is None]
    if whole:
        newest = rows[whole[-1]]
        rows[whole[-1]] = replace(newest, marks=("newest", *newest.marks))
    return [*rows, *(_unreadable_row(skip.path, _after_path(skip.reason)) for skip in unreadable)]


def _row(entry: CheckpointEntry, is_best: bool, *, hashes: bool) -> CheckpointRow:
    facts = entry.manifest.facts
    score, iteration = facts.get("score"), facts.get("metrics_row")
    pinned = is_pinned(entry.path)
    return CheckpointRow(
        path=entry.path,
        step=entry.step,
        iteration=iteration if isinstance(iteration, int) else None,
        score=float(score) if isinstance(score, (int, float)) else None,
        score_of=None if score is None else str(facts.get("score_of")),
        score_in=facts.get("score_in"),
        size_bytes=entry.size_bytes,
        saved_at=(entry.path / MANIFEST_NAME).stat().st_mtime,
        marks=("best",) * is_best + ("pinned",) * pinned,
        problem=_problem(entry, hashes=hashes),
    )


def _problem(entry: CheckpointEntry, *, hashes: bool) -> str | None:
    try:
        if hashes:
            verify(entry.path, entry.manifest)
        else:
            check_sizes(entry.path, entry.manifest)
    except CheckpointError as error:
        return error.reason
    return None


def _unreadable_row(path: Path, reason: str) -> CheckpointRow:
    files = [file for file in path.iterdir() if file.is_file()]
    return CheckpointRow(
        path=path,
        step=int(path.name) if path.name.isdecimal() else None,
        iteration=None,
        score=None,
        score_of=None,
        score_in=None,
        size_bytes=sum(file.stat().st_size for file in files),
        saved_at=path.stat().st_mtime,
        marks=(),
        problem=reason,
    )


def _after_path(reason: str) -> str:
    """The sentence without the path in front of it: the row names the checkpoint already."""
    return reason.partition(": ")[2] or reason


def table(rows: Sequence[CheckpointRow], now: float | None = None) -> str:
    """Lay the rows out in columns, with a heading."""
    now = time.time() if now is None else now
    cells = [_HEADINGS, *(_cells(row, now) for row in rows)]
    return columns(cells, left=(len(_HEADINGS) - 1,))


def columns(cells: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Lay cells out in columns, to the right but for the columns named."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        placed = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(placed).rstrip())
    return "\n".join(lines) + "\n"


def _cells(row: CheckpointRow, now: float) -> tuple[str, ...]:
    return (
        row.path.name if row.step is None else f"{row.step:,}",
        "" if row.iteration is None else f"{row.iteration:,}",
        "" if row.score is None else f"{row.score:.4g}",
        size_text(row.size_bytes),
        age_text(now - row.saved_at),
        row.state,
    )


def size_text(size_bytes: float) -> str:
    """Say how large something is, with the unit that gives 1 to 3 digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < _STEP_OF_BYTES:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= _STEP_OF_BYTES
    return f"{size_bytes:.1f} TB"


def age_text(seconds: float) -> str:
    """Say how long ago something was, in its largest unit."""
    whole = max(0, int(seconds))
    name, length = next(((n, s) for n, s in _UNITS if whole >= s), _UNITS[-1])
    return f"{whole // length} {name}"
