"""Medians, spreads and ratios of what was measured: as a table, and as a JSON document.

Pure: samples in, text and plain data out. A claim is a ratio of medians; the smallest and largest
ratio of single rounds beside it say how far to trust it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from royale_server.bench.plan import Claim
from royale_server.bench.rounds import Measured, Samples
from royale_server.tools.checkpoint_list import columns

FEWEST_ROUNDS = 3
"""Below that nothing is claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of a claim."""

    claim: Claim
    value: float
    low: float
    """The smallest of the rounds."""
    high: float
    holds: bool | None
    """Whether the bar is reached; None without a bar, or with too few rounds."""


def found(samples: Samples, claims: Iterable[Claim]) -> list[Found]:
    """Judge the claims whose contenders took part."""
    return [
        _judged(samples, claim)
        for claim in claims
        if claim.of in samples and (claim.over is None or claim.over in samples)
    ]


def _judged(samples: Samples, claim: Claim) -> Found:
    mine = _column(samples, claim.of, claim.figure)
    others = [1.0] * len(mine)
    if claim.over is not None:
        others = _column(samples, claim.over, claim.over_figure or claim.figure)
    value = median(mine) / median(others)
    single = [a / b for a, b in zip(mine, others, strict=True)]
    return Found(
        claim=claim,
        value=value,
        low=min(single),
        high=max(single),
        holds=claim.holds(value) if len(mine) >= FEWEST_ROUNDS else None,
    )


def _column(samples: Samples, contender: str, figure: str) -> list[float]:
    return [figures[figure] for figures in samples[contender]]


def failures(measured: Sequence[Measured]) -> list[Found]:
    """The claims whose bar is not reached."""
    return [one for m in measured for one in found(m.samples, m.bench.claims) if one.holds is False]


# --- as text ----------------------------------------------------------------------------------


def as_text(measured: Measured) -> str:
    """Lay out one bench: its figures, then its claims."""
    bench, samples = measured.bench, measured.samples
    figures: list[tuple[str, ...]] = [("contender", "figure", "median", "min", "max")]
    for name, rows in samples.items():
        for figure in bench.shown:
            values = [row[figure] for row in rows if figure in row]
            if values:
                numbers = (median(values), min(values), max(values))
                figures.append((name, figure, *map(_number, numbers)))
    parts = [f"{bench.name}: {bench.title}"]
    if samples:
        parts.append(columns(figures, left=(0, 1)).rstrip("\n"))
    claims = found(samples, bench.claims)
    if claims:
        head = ("claim", "ratio of medians", "rounds", "bar", "aim", "")
        cells = [head, *map(_claim_cells, claims)]
        parts.append(columns(cells, left=(0, 2, 3, 5)).rstrip("\n"))
    parts.extend(f"left out: {line}" for line in measured.left_out)
    if measured.problem is not None:
        parts.append(f"NOT MEASURED: {measured.problem}")
    return "\n".join(parts) + "\n"


def _claim_cells(one: Found) -> tuple[str, ...]:
    claim = one.claim
    sign = "≤" if claim.at_most else "≥"
    verdict = {True: "reached", False: "NOT REACHED", None: ""}[one.holds]
    return (
        claim.text,
        f"{_number(one.value)} {claim.unit}".strip(),
        f"{_number(one.low)} … {_number(one.high)}",
        "" if claim.bar is None else f"{sign} {claim.bar:g}",
        "" if claim.aim is None else f"{claim.aim:g}",
        verdict if claim.bar is None or one.holds is not None else "too few rounds",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# --- as data ----------------------------------------------------------------------------------


def as_document(measured: Sequence[Measured], **surroundings: object) -> dict[str, Any]:
    """Everything that was measured, as plain data.

    Args:
        measured: The benches.
        surroundings: The machine, the settings; whatever belongs beside the numbers.
    """
    return {**surroundings, "benches": [_bench_document(one) for one in measured]}


def _bench_document(measured: Measured) -> dict[str, Any]:
    return {
        "name": measured.bench.name,
        "title": measured.bench.title,
        "duration_s": round(measured.duration_s, 1),
        "left_out": list(measured.left_out),
        "problem": measured.problem,
        "contenders": [
            {"name": name, "rounds": rows, "medians": _medians(rows)}
            for name, rows in measured.samples.items()
        ],
        "claims": [
            {
                "claim": one.claim.text,
                "figure": one.claim.figure,
                "value": one.value,
                "rounds": [one.low, one.high],
                "bar": one.claim.bar,
                "aim": one.claim.aim,
                "at_most": one.claim.at_most,
                "holds": one.holds,
            }
            for one in found(measured.samples, measured.bench.claims)
        ],
    }


def _medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(row[name] for row in rows) for name in rows[0]} if rows else {}
