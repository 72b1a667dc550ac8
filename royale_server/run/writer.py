"""The writer thread: rows, episodes, events and checkpoints go to disk here, in the order given.

What cites a row is written after that row is durable. A tracker never delays it, and it never
delays whoever hands it something: everything but ``flush`` and ``close`` returns at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from checkpoints import CheckpointContents, CheckpointError
from royale_client.wire.errors import RoyaleError
from royale_server.monitoring.trackers import TrackedRun, Tracker, TrackerHealth, TrackerThread
from royale_server.run.identity_record import IdentityRecord
from royale_server.run.layout import RunLayout
from royale_server.run.output import (
    Acknowledge,
    Judge,
    Retention,
    Row,
    RunOutput,
    StreamName,
    WriteFailure,
    tell,
)

logger = logging.getLogger(__name__)

ENVELOPE_KEYS = ("seq", "step", "attempt", "wall", "nonfinite")
"""Keys of a metrics row beside those that are declared: the writer adds them."""

LINGER_S = 0.1
"""How long episodes and events may wait for others to be written with."""

TRACKER_CLOSE_S = 5.0
"""Longest that trackers are waited for at the end."""


class WriterBacklogError(RoyaleError):
    """The disk has not taken anything for so long that no further row can be held."""


class CheckpointSupersededError(CheckpointError):
    """A checkpoint was not written, since a newer one was handed over before its turn came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterHealth:
    """How the writer fares."""

    queued: int
    """Jobs waiting."""
    unwritten: int
    """Lines that the disk has refused so far."""
    dropped: int
    """Lines given up because the disk did not keep up."""
    last_seq: int
    """Number of the newest metrics row handed over."""
    busy_s: float
    """How long the job under way has taken so far; 0 between jobs."""
    trackers: tuple[TrackerHealth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseReport:
    """What the end of the writer left behind."""

    flushed: bool
    """Everything handed over is on disk."""
    trackers_finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetricsJob:
    row: Row
    acknowledge: Acknowledge | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinesJob:
    stream: StreamName
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckpointJob:
    contents: CheckpointContents
    done: Callable[[Path | Exception], None] | None
    protect: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _IdentityJob:
    """Writes the newest identity there is by then; never more than one waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskJob:
    """Anything else that belongs to the disk; what it raises is logged."""

    task: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlushJob:
    reached: threading.Event


_Job: TypeAlias = _MetricsJob | _LinesJob | _CheckpointJob | _IdentityJob | _TaskJob | _FlushJob


class Writer:
    """Writes the files of one attempt. Callbacks come from its thread; they must not block.

    Args:
        layout: Where the files lie. The directory must exist and be locked by this process.
        attempt: Number of the attempt; written into every line.
        on_failure: Called when the disk begins to refuse the lines of a file.
        on_saved: Called after each checkpoint that is on disk, before older ones are pruned.
        retention: Which checkpoints stay; by default all.
        trackers: Mirrors of the metrics rows.
        tracked_run: What they are told; needed if there are any.
        judge: Looks at every metrics row that is on disk.
        capacity: Jobs that may wait. Beyond it, episodes and events are dropped and counted.
        wall_clock: Seconds since 1970; for tests.
        clock: Monotonic seconds; for tests.

    Raises:
        OSError: If a file cannot be opened.
    """

    def __init__(
        self,
        layout: RunLayout,
        *,
        attempt: int,
        on_failure: Callable[[WriteFailure], None],
        on_saved: Callable[[], None] | None = None,
        retention: Retention | None = None,
        trackers: Iterable[Tracker] = (),
        tracked_run: TrackedRun | None = None,
        judge: Judge | None = None,
        capacity: int = 10_000,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout = layout
        self._attempt = attempt
        self._capacity = capacity
        self._wall_clock = wall_clock
        self._clock = clock
        self._busy_since: float | None = None
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._identity: IdentityRecord | None = None
        self._is_closing = False
        self._is_urgent = False  # something waits that is not to wait for more
        self._dropped = 0
        self._trackers = [self._tracker_thread(tracker, tracked_run) for tracker in trackers]
        self._output = RunOutput(
            layout,
            trackers=self._trackers,
            retention=retention or Retention(),
            on_failure=on_failure,
            on_saved=on_saved,
            judge=judge,
            stamp=self._stamp,
        )
        self._seq = self._output.last_seq
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)

    def start(self) -> None:
        """Start the thread and the trackers."""
        self._thread.start()
        for tracker in self._trackers:
            tracker.start()
        torn = self._output.torn_files
        if torn:
            self.event({"kind": "torn_tail", "message": "isolated a cut last line", "files": torn})

    def metrics(self, row: Row, step: int, acknowledge: Acknowledge | None = None) -> int:
        """Hand over a metrics row.

        Args:
            row: Values by key. Must not change afterwards.
            step: Stored frames of the run at this row.
            acknowledge: Called with the row as it is on disk, once it is.

        Returns:
            Its number in the run, 1 for the first; attempts continue the count.

        Raises:
            WriterBacklogError: If the disk has not kept up for very long.
        """
        with self._changed:
            if len(self._jobs) >= self._capacity:
                raise WriterBacklogError(
                    f"{self._layout.metrics}: {len(self._jobs)} things wait to be written and the "
                    "disk takes nothing; check it, then resume from the newest checkpoint"
                )
            envelope = {"seq": self._seq + 1, "step": step, **self._stamp()}
            self._put(_MetricsJob(row={**envelope, **row}, acknowledge=acknowledge))
            self._seq += 1
            return self._seq

    def episodes(self, rows: Iterable[Row]) -> None:
        """Hand over finished episodes. They must not change afterwards."""
        stamp = self._stamp()
        self._put_lines("episodes", [{**stamp, **row} for row in rows])

    def heat_maps(self, row: Row) -> None:
        """Hand over where things happened in some iterations."""
        self._put_lines("heat_maps", [{**self._stamp(), **row}])

    def event(self, row: Row) -> None:
        """Hand over something that happened; ``metrics_seq`` says after which metrics row."""
        self._put_lines("events", [{**self._stamp(), "metrics_seq": self._seq, **row}])

    def alarms(self, rows: Iterable[Row]) -> None:
        """Hand over what changed about alarms that no metrics row tells of."""
        stamp = self._stamp()
        self._put_lines("alarms", [{**stamp, **row} for row in rows])

    def task(self, task: Callable[[], None]) -> None:
        """Hand over something else that is to be written, after everything before it.

        Args:
            task: Called on the writer's thread.
        """
        with self._changed:
            self._put(_TaskJob(task=task))

    def checkpoint(
        self,
        contents: CheckpointContents,
        done: Callable[[Path | Exception], None] | None = None,
        *,
        protect: Collection[int] = (),
    ) -> None:
        """Hand over a checkpoint. Its fact ``metrics_seq`` names the newest row before it.

        One that still waits when a newer one is handed over is not written; its ``done`` then gets
        a ``CheckpointSupersededError``, from the caller's thread.

        Args:
            contents: What to save; must not change afterwards.
            done: Called with the checkpoint's path, or with what went wrong.
            protect: Steps that pruning leaves alone.
        """
        job = _CheckpointJob(contents=contents, done=done, protect=frozenset(protect))
        with self._changed:
            self._refuse_if_closing()  # before one that waits is given up for this one
            waiting = [j for j in self._jobs if isinstance(j, _CheckpointJob)]
            for superseded in waiting:
                self._jobs.remove(superseded)
            self._put(job)
        for superseded in waiting:
            path = self._layout.checkpoint(superseded.contents.step)
            reason = f"not written, since the disk is slow and step {contents.step} followed"
            tell(superseded.done, CheckpointSupersededError(path, reason))

    def identity(self, record: IdentityRecord) -> None:
        """Hand over what the run is from now on; on disk before any row that is handed over later.

        Of several that wait only the newest is written. One that the disk refuses is tried again
        with every checkpoint.
        """
        with self._changed:
            if self._identity is None:
                self._put(_IdentityJob())
            self._identity = record

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over so far was written or refused; say whether it was."""
        job = _FlushJob(reached=threading.Event())
        with self._changed:
            self._put(job)
        return job.reached.wait(timeout_s)

    def close(
        self, timeout_s: float | None = None, *, trackers_s: float = TRACKER_CLOSE_S
    ) -> CloseReport:
        """Write what waits, end the trackers, and stop.

        Args:
            timeout_s: How long to wait for the disk; ``None`` waits for as long as it takes.
            trackers_s: How long to wait for all trackers after that.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is None:
            self._output.close()
        else:
            self._thread.join(timeout_s)
        flushed = not self._thread.is_alive() and not self._jobs and self._output.is_complete
        for tracker in self._trackers:  # all at once, so that a stuck one costs the others no time
            tracker.request_close()
        deadline = time.monotonic() + trackers_s
        finished = [t.close(deadline - time.monotonic()) for t in self._trackers]
        return CloseReport(flushed=flushed, trackers_finished=all(finished))

    def health(self) -> WriterHealth:
        """Counts so far; cheap, from any thread."""
        with self._changed:
            busy_since = self._busy_since
            return WriterHealth(
                queued=len(self._jobs),
                unwritten=self._output.num_unwritten,
                dropped=self._dropped + self._output.num_dropped,
                last_seq=self._seq,
                busy_s=0.0 if busy_since is None else self._clock() - busy_since,
                trackers=tuple(tracker.health() for tracker in self._trackers),
            )

    def _stamp(self) -> dict[str, object]:
        return {"attempt": self._attempt, "wall": round(self._wall_clock(), 3)}

    def _refuse_if_closing(self) -> None:
        if self._is_closing:
            raise RuntimeError("the writer is closed")

    def _put(self, job: _Job) -> None:
        self._refuse_if_closing()
        self._jobs.append(job)
        if not isinstance(job, _LinesJob):
            self._is_urgent = True
            self._changed.notify()

    def _put_lines(self, stream: StreamName, rows: Sequence[Row]) -> None:
        """Queue lines that the run can do without; at the end and under overload it does."""
        with self._changed:
            if not self._is_closing and len(self._jobs) < self._capacity:
                self._put(_LinesJob(stream=stream, rows=rows))
                return
            is_first = self._dropped == 0
            self._dropped += len(rows)
        if is_first:
            logger.warning("the writer takes no more %s: dropped and counted", stream)

    def _tracker_thread(self, tracker: Tracker, run: TrackedRun | None) -> TrackerThread:
        if run is None:
            raise ValueError("trackers need tracked_run")
        return TrackerThread(
            tracker,
            run,
            on_failure=lambda text: self.event({"kind": "tracker_failed", "message": text}),
        )

    def _work(self) -> None:
        """On the writer's thread."""
        while (job := self._next()) is not None:
            self._busy_since = self._clock()
            try:
                self._carry_out(job)
            except Exception:  # a thread boundary: one bad job must not end the writer
                logger.exception("the writer could not carry out a %s", type(job).__name__)
            self._busy_since = None
        self._output.close()

    def _next(self) -> _Job | None:
        """Wait for a job. Lines wait a moment for more: each wake-up takes time from the run."""
        with self._changed:
            while not self._jobs and not self._is_closing:
                self._changed.wait_for(lambda: self._is_urgent or self._is_closing, LINGER_S)
            if not self._jobs:
                return None
            job = self._jobs.popleft()
            if isinstance(job, _LinesJob):
                job = _LinesJob(stream=job.stream, rows=[*job.rows, *self._rows_behind(job.stream)])
            self._is_urgent = bool(self._jobs)  # what waits already waits no longer
            return job

    def _rows_behind(self, stream: StreamName) -> list[Row]:
        """Take the rows of the lines that follow at once and go to the same file."""
        rows: list[Row] = []
        while self._jobs and isinstance(job := self._jobs[0], _LinesJob) and job.stream == stream:
            rows.extend(job.rows)
            self._jobs.popleft()
        return rows

    def _carry_out(self, job: _Job) -> None:
        match job:
            case _MetricsJob():
                self._output.write_metrics(job.row, job.acknowledge)
            case _LinesJob():
                self._output.write_lines(job.stream, job.rows)
            case _CheckpointJob():
                tell(job.done, self._output.save(job.contents, job.protect))
            case _IdentityJob():
                self._write_identity()
            case _TaskJob():
                job.task()
            case _FlushJob():
                self._output.retry_refused()
                job.reached.set()

    def _write_identity(self) -> None:
        with self._changed:
            record, self._identity = self._identity, None
        assert record is not None, "handed over together with its job"
        self._output.write_identity(record)
