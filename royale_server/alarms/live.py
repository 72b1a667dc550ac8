"""What the server knows about itself between two rows: is anything moving, is the disk answering.

Pure: times are given. The numbers are what alarms of the source ``sample`` read.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

SAMPLE_EVERY_S = 5.0
"""How often the server looks at itself."""

FLAPPING_WINDOW_S = 600.0
"""Clients lost longer ago than this no longer count."""

LEARN_FACTOR = 5.0
LEARN_LEAST_S = 120.0
"""A learn step stalls beyond this multiple of the usual time between two of its passes, and never
earlier than the latter."""
WAIT_FACTOR = 2.0
"""A collection stalls beyond this multiple of what a client may take to answer."""

_GAPS_KEPT = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """How the writer fares."""

    busy_s: float
    """How long it has been at one thing."""
    unwritten: int
    """Lines that the disk refuses."""
    dropped: int
    """Lines given up."""
    tracker_lost: int
    """Rows that trackers did not take."""
    tracker_queued: int
    """Most rows that wait for one tracker."""


class LiveMeter:
    """Follows what moves.

    Args:
        feedback_wait_timeout_s: What a client may take to answer.
        now: Monotonic seconds.
    """

    def __init__(self, feedback_wait_timeout_s: float, now: float) -> None:
        self._wait_bound_s = WAIT_FACTOR * feedback_wait_timeout_s
        self._moved_at = now
        self._is_learning = False
        self._gaps: deque[float] = deque(maxlen=_GAPS_KEPT)
        self._losses: deque[float] = deque()
        self._num_lost = 0

    def moved(self, now: float) -> None:
        """A batch was inferred, or nothing is expected to move."""
        self._moved_at = now

    def learning(self, now: float) -> None:
        """A learn step begins."""
        self._is_learning = True
        self._moved_at = now

    def passed(self, now: float) -> None:
        """A pass of the learn step is done, or the whole of it."""
        self._gaps.append(now - self._moved_at)
        self._moved_at = now

    def learned(self, now: float) -> None:
        """The learn step is over."""
        self.passed(now)
        self._is_learning = False

    def lost(self, total: int, now: float) -> None:
        """So many clients are gone without a goodbye, since the start."""
        self._losses.extend([now] * (total - self._num_lost))
        self._num_lost = total

    def sample(self, now: float, disk: DiskState) -> dict[str, float]:
        """Return the numbers of this moment."""
        while self._losses and now - self._losses[0] > FLAPPING_WINDOW_S:
            self._losses.popleft()
        return {
            "sample/no_progress_s": now - self._moved_at,
            "sample/stall_bound_s": self._bound_s(),
            "sample/clients_lost": float(len(self._losses)),
            "sample/writer_wait_s": disk.busy_s,
            "sample/writer_unwritten": float(disk.unwritten),
            "sample/writer_dropped": float(disk.dropped),
            "sample/tracker_lost": float(disk.tracker_lost),
            "sample/tracker_queued": float(disk.tracker_queued),
        }

    def _bound_s(self) -> float:
        if not self._is_learning:
            return self._wait_bound_s
        usual_s = statistics.median(self._gaps) if self._gaps else 0.0
        return max(LEARN_LEAST_S, LEARN_FACTOR * usual_s)


READINGS = {
    "row/nonfinite": "numbers of the row that are not finite",
    "disk/spare_mb": "megabytes free where the run is written, less room for two checkpoints",
    "sample/no_progress_s": "seconds since a batch was inferred or a pass of a learn step ended; "
    "0 while nobody is connected, paused or saving",
    "sample/stall_bound_s": "seconds that this may take: twice `--feedback-wait-timeout` while "
    "collecting; 5 times the usual pass, at least 120, while learning",
    "sample/clients_lost": "clients lost without a goodbye within the last ten minutes",
    "sample/writer_wait_s": "seconds for which the disk has kept one thing waiting",
    "sample/writer_unwritten": "lines that the disk refuses",
    "sample/writer_dropped": "episodes and events given up since this start of the server",
    "sample/tracker_lost": "rows that trackers did not take since this start of the server",
    "sample/tracker_queued": "most rows that wait for one tracker",
}
"""What alarms read beside the keys of ``metrics.jsonl``, by key."""
