"""Declaration of one metric beside the code that emits it.

A declaration says how a number is to be read. It computes nothing and knows no tracker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(r"[a-z0-9_]+(/[a-z0-9_.]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """How to read one key of a metrics row.

    Raises:
        ValueError: If the key is not of the form ``group/name`` in lower case.
    """

    key: str
    """``group/name``, for example ``losses/policy``."""

    unit: str
    """Unit of the number, ``1`` for a ratio or a plain count."""

    meaning: str
    """One sentence: what the number says about the iteration."""

    statistic: str = "mean"
    """How the values behind it were reduced to one: mean, sum, last, max, …"""

    deterministic: bool = True
    """Whether two runs with the same seed must write the same number (durations may not)."""

    population: str = ""
    """The rows it is computed over, where that is not «every frame that was trained on»."""

    absent_when: str = ""
    """When the key is left out of the row; empty if it is always there."""

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(
                f"metric key {self.key!r} is not of the form group/name "
                "(lower-case letters, digits, underscores); rename it where it is declared"
            )
