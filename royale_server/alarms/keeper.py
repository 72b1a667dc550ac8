"""Holds the alarms of one attempt between the thread that writes rows and the one that runs it.

A row is judged on the writer's thread once it is on disk, a sample of the server's own state on the
I/O thread. Whoever judges gets the records to write; the other side is told what changed. Writes no
file and stops no run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from royale_server.alarms.conditions import ATTEMPT
from royale_server.alarms.declaration import Source
from royale_server.alarms.engine import AlarmSet, Change, Row
from royale_server.alarms.history import RESUMED

Record: TypeAlias = dict[str, Any]

ITERATION = "run/iteration"


class AlarmKeeper:
    """The alarms of one attempt.

    Args:
        alarms: The alarms; nobody else may use them.
        attempt: Number of the attempt.
        machine: Numbers about the machine that are judged with every row; may take a moment.
    """

    def __init__(
        self,
        alarms: AlarmSet,
        *,
        attempt: int,
        machine: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._alarms = alarms
        self._attempt = attempt
        self._machine = machine
        self._lock = threading.Lock()
        self._iteration = 0
        self.on_change: Callable[[Sequence[Change]], None] = lambda _changes: None
        """Called with what a row changed, on the writer's thread; must not block."""

    def resume(self, state: Mapping[str, Any], iteration: int) -> Record:
        """Go on from a checkpoint; return the record that says where alarms stand."""
        with self._lock:
            self._alarms.load_state(state)
            self._iteration = iteration
            return {"kind": RESUMED, "iteration": iteration, "open": self._alarms.open}

    def written(self, row: Row) -> list[Record]:
        """Judge a metrics row that is on disk; return the records to write."""
        iteration = int(row.get(ITERATION, self._iteration))
        changes = self._judge({**self._machine(), **row}, iteration, "row")
        if changes:
            self.on_change(changes)
        return [change.record() for change in changes]

    def sampled(self, sample: Mapping[str, float]) -> list[Change]:
        """Judge a sample of the server's own state; the caller writes and shows what changed."""
        return self._judge({ATTEMPT: self._attempt, **sample}, self._iteration, "sample")

    def state(self) -> dict[str, Any]:
        """Return where all alarms stand, as plain data for a checkpoint."""
        with self._lock:
            return self._alarms.state()

    @property
    def open(self) -> list[str]:
        """Names of the alarms that are raised and not over."""
        with self._lock:
            return self._alarms.open

    def _judge(self, row: Row, iteration: int, source: Source) -> list[Change]:
        with self._lock:
            self._iteration = iteration
            return self._alarms.evaluate(row, iteration, source)
