"""The words of the catalog: a bench lets contenders run in turn and makes claims about them.

Pure descriptions; nothing here starts or measures anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from royale_client.wire.errors import RoyaleError

if TYPE_CHECKING:
    from royale_server.bench.stage import Stage

Figures: TypeAlias = dict[str, float]
"""What one measurement of one contender found, by name."""


class BenchError(RoyaleError):
    """A measurement that cannot be carried out."""


class Contender(Protocol):
    """Something that can be measured, in fresh processes each time."""

    @property
    def name(self) -> str:
        """How it is called in the table; unique within its bench."""

    @property
    def peer(self) -> str | None:
        """Name of the other library it belongs to, which need not be installed."""

    def measure(self, stage: Stage, seconds: float) -> Figures:
        """Run once.

        Args:
            stage: Starts processes.
            seconds: How long to measure, after warm-up.

        Raises:
            BenchError: If that is not possible.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A number to be shown: a median, or the ratio of the medians of two contenders."""

    of: str
    """Name of the contender."""
    figure: str
    """Which of its figures."""
    over: str | None = None
    """Contender whose median is divided by; None shows the median itself."""
    over_figure: str | None = None
    """Figure that is divided by; None: the same one."""
    title: str = ""
    """What it says, when that is not plain from the names."""
    unit: str = ""
    """Unit of a median; a ratio has none."""
    bar: float | None = None
    """What must be reached; None: only shown."""
    aim: float | None = None
    """What is wished for."""
    at_most: bool = False
    """The bar is an upper bound."""

    @property
    def text(self) -> str:
        """What the claim is about."""
        if self.title:
            return self.title
        return self.of if self.over is None else f"{self.of} : {self.over}"

    def holds(self, value: float) -> bool | None:
        """Whether a value reaches the bar; None without one."""
        if self.bar is None:
            return None
        return value <= self.bar if self.at_most else value >= self.bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One comparison."""

    name: str
    """The word on the command line."""
    title: str
    """What is measured, in one line."""
    contenders: tuple[Contender, ...]
    """Who is measured, in this order, round after round."""
    claims: tuple[Claim, ...]
    shown: tuple[str, ...]
    """Figures of the table, by name; the JSON document has all of them."""
