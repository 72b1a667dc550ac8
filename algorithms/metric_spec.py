"""Declaration of one metric, or of a family of metrics, beside the code that emits it.

A declaration says how a number is to be read. It computes nothing and knows no tracker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(r"[a-z0-9_]+(/([a-z0-9_.]|<[a-z]+>)+)+")
_PLACE = re.compile(r"<([a-z]+)>")

OF_ITERATION = "the whole iteration"
"""Population of a number that is not reduced from rows of anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """How to read one key of a metrics row, or a family of keys that differ in one place.

    Raises:
        ValueError: If the key is not of the form ``group/name`` in lower case.
    """

    key: str
    """``group/name``, for example ``ppo/kl``. ``ppo/kl_epoch<n>`` stands for all numbers in the
    place of ``<n>``, any other ``<word>`` for any text."""

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

    scope: str = "all"
    """Whose numbers they are: ``all``, or one environment id, or one seat."""

    healthy: tuple[float, float] | None = None
    """Smallest and largest value of a run that is well, both included; None where any may be."""

    absent_when: str = ""
    """When the key is left out of the row; empty if it is always there."""

    may_be_constant: str = ""
    """Why a real run may write the same number into every row; empty if that means that nobody
    computes it."""

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(
                f"metric key {self.key!r} is not of the form group/name "
                "(lower-case letters, digits, underscores); rename it where it is declared"
            )

    @property
    def group(self) -> str:
        """What stands before the first slash."""
        return self.key.partition("/")[0]

    @property
    def is_family(self) -> bool:
        """Whether the key stands for several."""
        return "<" in self.key

    def matches(self, key: str) -> bool:
        """Whether this declares ``key``."""
        if not self.is_family:
            return key == self.key
        return re.fullmatch(self._pattern(), key) is not None

    def _pattern(self) -> str:
        parts = _PLACE.split(self.key)
        places = ["[0-9]+" if word == "n" else ".+" for word in parts[1::2]]
        texts = [re.escape(text) for text in parts[::2]]
        return texts[0] + "".join(p + text for p, text in zip(places, texts[1:], strict=True))
