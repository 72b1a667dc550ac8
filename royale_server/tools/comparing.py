"""Compares the metrics rows of two runs, number by number, to the last bit.

Pure: rows in, differences out. Only keys that are declared deterministic count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]

ITERATION = "run/iteration"
ATTEMPT = "run/attempt"
NONFINITE = "nonfinite"
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One number that is not the same in both runs."""

    key: str
    iteration: int
    a: str
    b: str


def history(rows: Iterable[Row]) -> dict[int, Row]:
    """Rows by iteration as a reader sees them: the last attempt wins above its start.

    What an earlier attempt wrote beyond the point from which a later one went on is history that
    did not happen.

    Args:
        rows: All rows of a run in the order of its file.
    """
    seen: dict[int, Row] = {}
    attempt: object = None
    for row in rows:
        if row[ATTEMPT] != attempt:
            attempt = row[ATTEMPT]
            seen = {i: kept for i, kept in seen.items() if i < row[ITERATION]}
        seen[row[ITERATION]] = row
    return seen


def differences(
    a: Mapping[int, Row], b: Mapping[int, Row], keys: Collection[str], *, last_iteration: int
) -> list[Difference]:
    """List every deterministic number that differs, a missing row or key included.

    Args:
        a: Rows of one run by iteration.
        b: Rows of the other.
        keys: Keys that must agree.
        last_iteration: Iterations 1 to this one are compared.
    """
    found: list[Difference] = []
    for iteration in range(1, last_iteration + 1):
        one, other = a.get(iteration), b.get(iteration)
        if one is None or other is None:
            found.append(Difference("(row)", iteration, _presence(one), _presence(other)))
            continue
        for key in sorted(keys):
            texts = value_text(one, key), value_text(other, key)
            if texts[0] != texts[1]:
                found.append(Difference(key, iteration, *texts))
    return found


def never_written(rows: Iterable[Row], keys: Collection[str]) -> list[str]:
    """List the keys that no row has: equal they are in both runs, and nothing was compared.

    Args:
        rows: Rows of both runs.
        keys: Keys that a row always has.
    """
    return sorted(set(keys).difference(*rows))


def value_text(row: Row, key: str) -> str:
    """The number as text that tells any two apart: the shortest that gives the same bits again."""
    if key not in row:
        return ABSENT
    nonfinite = row.get(NONFINITE, {})
    return str(nonfinite[key]) if key in nonfinite else repr(row[key])


def _presence(row: Row | None) -> str:
    return ABSENT if row is None else "written"
