"""A yardstick as a contender: one module of ``work`` in a fresh process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from royale_server.bench.plan import Figures
from royale_server.bench.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """Calls ``measure`` of a module of ``work``, with how many seconds to take."""

    name: str
    task: str
    """The module."""
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: str | None = None
    """The other library it is about."""

    def measure(self, stage: Stage, seconds: float) -> Figures:
        """Run it; see `Contender.measure`."""
        return stage.work(self.task, {**self.options, "seconds": seconds}, self.peer)
