"""What the writer thread writes to: row files, identity, checkpoints, and then the trackers.

Used from one thread. Keeps the order that makes a run readable after a crash: a row is durable
before anybody hears of it, and before the checkpoint that cites it. Never decides that a failure
ends the run; it tells whoever asked.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from checkpoints import CheckpointContents, CheckpointWriteError, prune, save
from royale_server import crash_points
from royale_server.monitoring.trackers import TrackerThread
from royale_server.run.identity_record import IdentityRecord, write_identity
from royale_server.run.layout import RunLayout
from royale_server.run.records import AppendFile, last_record, plain_record, render, to_line

logger = logging.getLogger(__name__)

StreamName = Literal["metrics", "episodes", "events", "heat_maps", "alarms"]
Row: TypeAlias = Mapping[str, object]
Acknowledge: TypeAlias = Callable[[dict[str, Any]], None]


class Judge(Protocol):
    """What looks at every row that is on disk. Called on the writer's thread."""

    def written(self, row: Mapping[str, Any]) -> Sequence[Row]:
        """Judge a row; return the lines of ``alarms.jsonl`` that follow from it."""

    def completed(self, contents: CheckpointContents) -> CheckpointContents:
        """Add to a checkpoint what was found in the rows before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailure:
    """The disk has begun to refuse lines. They are kept and tried again with the next ones."""

    stream: StreamName
    path: Path
    error: OSError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which checkpoints stay; see ``checkpoints.prune``."""

    keep_last: int | None = None
    keep_every: int | None = None


class RunOutput:
    """The open files of one attempt.

    Args:
        layout: Where they lie. The directory must exist and be locked by this process.
        trackers: Get every row once it is durable.
        retention: Which checkpoints stay.
        on_failure: Called when the disk begins to refuse the lines of a file.
        on_saved: Called after each checkpoint that is on disk, before older ones are pruned.
        judge: Looks at every row that is on disk.
        stamp: What every line of ``alarms.jsonl`` begins with.

    Raises:
        OSError: If a file cannot be opened.
    """

    def __init__(
        self,
        layout: RunLayout,
        *,
        trackers: Sequence[TrackerThread],
        retention: Retention,
        on_failure: Callable[[WriteFailure], None],
        on_saved: Callable[[], None] | None,
        judge: Judge | None,
        stamp: Callable[[], Row],
    ) -> None:
        self._layout = layout
        self._trackers = trackers
        self._retention = retention
        self._on_failure = on_failure
        self._on_saved = on_saved
        self._judge = judge
        self._stamp = stamp
        self.last_seq = _last_seq(layout.metrics)
        """Number of the newest metrics row on disk, over all attempts; 0 if there is none."""
        self._unacknowledged: deque[tuple[dict[str, Any], Acknowledge | None]] = deque()
        self._files: dict[StreamName, AppendFile] = {
            "metrics": AppendFile(layout.metrics),
            "episodes": AppendFile(layout.episodes),
            "events": AppendFile(layout.events),
            "heat_maps": AppendFile(layout.heat_maps),
            "alarms": AppendFile(layout.alarms, is_lazy=True),
        }
        self._refused: set[StreamName] = set()
        self._unwritten_identity: IdentityRecord | None = None
        self._is_identity_refused = False

    @property
    def torn_files(self) -> list[str]:
        """Names of the files that were found with a cut last line."""
        return [file.path.name for file in self._files.values() if file.had_torn_tail]

    @property
    def num_unwritten(self) -> int:
        """Lines that the disk has refused so far."""
        return sum(file.num_unwritten for file in self._files.values())

    @property
    def is_complete(self) -> bool:
        """Whether the disk has taken everything that was not given up."""
        return self.num_unwritten == 0 and self._unwritten_identity is None

    @property
    def num_dropped(self) -> int:
        """Lines given up because it refused too many."""
        return sum(file.num_dropped for file in self._files.values())

    def write_metrics(self, row: Row, acknowledge: Acknowledge | None) -> None:
        """Write a metrics row, durably; then tell the trackers and whoever waits for it."""
        plain = plain_record(row)
        self._unacknowledged.append((plain, acknowledge))
        file, line = self._files["metrics"], render(plain)
        crash_points.reach("row", partial(file.append, line[: len(line) // 2]))
        with self._noting_refusals("metrics"):
            file.append(line)
        self._sync_metrics()
        self._acknowledge()

    def write_lines(self, stream: StreamName, rows: Sequence[Row]) -> None:
        """Write rows of the other files. They are flushed with the next checkpoint."""
        lines = []
        for row in rows:
            try:
                lines.append(to_line(row))
            except ValueError:
                logger.exception("a row of %s was left out", stream)
        with self._noting_refusals(stream):
            self._files[stream].append(*lines)

    def write_identity(self, record: IdentityRecord) -> None:
        """Replace ``identity.json``, durably. One that is refused keeps no checkpoint waiting."""
        self._unwritten_identity = record
        self._retry_identity()

    def retry_refused(self) -> None:
        """Try again to write what the disk refused."""
        self._retry_identity()
        for stream, file in self._files.items():
            with self._noting_refusals(stream):
                file.write_pending()
        self._acknowledge()

    def save(self, contents: CheckpointContents, protect: frozenset[int]) -> Path | Exception:
        """Save a checkpoint after all rows before it, then prune.

        Returns:
            Its path, or what went wrong.
        """
        path = self._layout.checkpoint(contents.step)
        try:
            self._make_rows_durable(path)
            facts = {**contents.facts, "metrics_seq": self.last_seq}
            contents = replace(contents, facts=facts)
            if self._judge is not None:
                contents = self._judge.completed(contents)
            save(self._layout.directory, contents, crash_points.reach)
        except Exception as error:  # a thread boundary: whatever it is, the caller decides
            logger.debug("no checkpoint %s", path, exc_info=True)
            return error
        self._announce_saved()
        self._prune(protect)
        return path

    def close(self) -> None:
        """Try the refused lines a last time and close the files."""
        self.retry_refused()
        for file in self._files.values():
            file.close()

    def _sync_metrics(self) -> None:
        with self._noting_refusals("metrics"):
            self._files["metrics"].sync()

    def _retry_identity(self) -> None:
        record, path = self._unwritten_identity, self._layout.identity
        if record is None:
            return
        try:
            write_identity(path, record)
        except OSError as error:
            if not self._is_identity_refused:
                logger.error(
                    "%s cannot be written: %s; it is tried again with every checkpoint",
                    path,
                    error.strerror or error,
                )
            self._is_identity_refused = True
            return
        if self._is_identity_refused:
            logger.info("%s is written again", path)
        self._unwritten_identity, self._is_identity_refused = None, False

    def _acknowledge(self) -> None:
        """Let others see the metrics rows, once all of them are on disk."""
        if self._files["metrics"].num_unwritten:
            return
        while self._unacknowledged:
            plain, acknowledge = self._unacknowledged.popleft()
            self.last_seq = plain["seq"]
            numbers = {k: v for k, v in plain.items() if type(v) in (int, float) and k != "seq"}
            for tracker in self._trackers:
                tracker.offer(numbers, plain["seq"])
            self._have_judged(plain)
            tell(acknowledge, plain)

    def _have_judged(self, row: Mapping[str, Any]) -> None:
        """Let the row be looked at; what goes wrong there must not keep rows from the disk."""
        if self._judge is None:
            return
        try:
            records = self._judge.written(row)
        except Exception:
            logger.exception("row %s could not be judged", row["seq"])
            return
        if records:
            stamp = self._stamp()
            self.write_lines("alarms", [{**stamp, **record} for record in records])

    @contextlib.contextmanager
    def _noting_refusals(self, stream: StreamName) -> Iterator[None]:
        """Tell when the disk begins to refuse a file, and when it has taken everything again."""
        file = self._files[stream]
        try:
            yield
        except OSError as error:
            if stream not in self._refused:
                self._refused.add(stream)
                failure = WriteFailure(stream=stream, path=file.path, error=error)
                tell(self._on_failure, failure)
            return
        if stream in self._refused and file.num_unwritten == 0:
            self._refused.remove(stream)
            logger.info("%s is written to again; %d lines were lost", file.path, file.num_dropped)

    def _make_rows_durable(self, path: Path) -> None:
        """A checkpoint must not outlive the rows that led to it."""
        self.retry_refused()
        for stream in ("metrics", "episodes", "alarms"):
            file = self._files[stream]
            if file.num_unwritten:
                reason = f"not saved, since {file.path.name} cannot be written; check free space"
                raise CheckpointWriteError(path, reason)
            try:
                file.sync()
            except OSError as error:
                reason = f"not saved, since {file.path.name} cannot be flushed: {error.strerror}"
                raise CheckpointWriteError(path, reason) from error

    def _announce_saved(self) -> None:
        """The checkpoint is on disk; what its owner does about it must not undo that."""
        if self._on_saved is None:
            return
        try:
            self._on_saved()
        except OSError as error:
            logger.warning("cannot tidy up beside %s: %s", self._layout.directory, error)

    def _prune(self, protect: frozenset[int]) -> None:
        keep = self._retention
        try:
            prune(
                self._layout.directory,
                keep_last=keep.keep_last,
                keep_every=keep.keep_every,
                protect=protect,
            )
        except OSError as error:
            logger.warning("cannot prune checkpoints of %s: %s", self._layout.directory, error)


def tell(callback: Callable[[Any], None] | None, value: object) -> None:
    """Call back; what the callback raises is its owner's bug and must not end the writer."""
    if callback is None:
        return
    try:
        callback(value)
    except Exception:
        logger.exception("a callback of the writer failed")


def _last_seq(metrics: Path) -> int:
    record = last_record(metrics) or {}
    seq = record.get("seq", 0)
    return seq if isinstance(seq, int) else 0
