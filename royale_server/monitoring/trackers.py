"""Trackers: mirrors of the metrics rows in somebody else's tool.

Each runs on a thread of its own behind a bounded queue, so that one that is slow, broken or stuck
costs rows in the mirror and nothing else. Never on the path of a row to disk, never fatal, never
waited for longer than a caller says.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from royale_client.wire.errors import ConfigError

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "royale.trackers"

BUILT_IN = {"swanlab": "royale_server.monitoring.swanlab_tracker:SwanlabTracker"}
"""Trackers that come with Royale, by name. Imported when chosen."""

TrackerMode = Literal["offline", "local", "cloud", "disabled"]
TrackerState = Literal["starting", "running", "failed", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """What a tracker is told about the run."""

    run_id: str
    """The same in all attempts of the run: an attempt continues the same experiment."""
    name: str
    directory: Path
    """Folder for what the tracker keeps on disk; it may not exist yet."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Resolved settings as plain data."""


class Tracker(Protocol):
    """A mirror of metrics rows. Called from one thread, in this order; may raise or be slow."""

    name: str

    def start(self, run: TrackedRun) -> None:
        """Begin or continue the experiment of this run."""

    def log(self, row: Mapping[str, float], step: int) -> None:
        """Take one row.

        Args:
            row: Finite numbers by key; the row's own step and attempt are among them.
            step: Number of the row in the run. Grows by at least one each time, also over a resume
                that goes back in frames.
        """

    def finish(self) -> None:
        """End the experiment for now."""


class TrackerFactory(Protocol):
    """What an entry point of the group ``royale.trackers`` names."""

    def __call__(self, *, project: str, mode: TrackerMode) -> Tracker:
        """Make a tracker; raises ``ConfigError`` for settings it cannot work with."""


def tracker_names() -> list[str]:
    """Names that ``make_tracker`` knows; imports no tracker."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def make_tracker(name: str, *, project: str, mode: TrackerMode = "offline") -> Tracker:
    """Make the tracker of that name, importing it.

    Args:
        name: One of ``tracker_names()``.
        project: What the tracker files the run under.
        mode: ``offline`` and ``local`` write files only, ``cloud`` uploads, ``disabled`` does
            nothing.

    Raises:
        ConfigError: If the name is unknown or claimed twice, or the tracker cannot work here.
    """
    claims = {point.value: point for point in _entry_points() if point.name == name}
    if name in BUILT_IN:
        value = BUILT_IN[name]
        claims.setdefault(value, metadata.EntryPoint(name, value, ENTRY_POINT_GROUP))
    if not claims:
        known = ", ".join(tracker_names())
        raise ConfigError(f"--track.tracker: unknown tracker {name!r}, expected one of: {known}")
    if len(claims) > 1:
        raise ConfigError(
            f"--track.tracker: {name!r} is provided by {' and by '.join(sorted(claims))}; "
            "uninstall one"
        )
    (point,) = claims.values()
    try:
        factory: TrackerFactory = point.load()
    except (ImportError, AttributeError) as error:
        where = f"--track.tracker {name} ({point.value})"
        raise ConfigError(f"{where}: cannot be imported: {error}") from error
    return factory(project=project, mode=mode)


def _entry_points() -> list[metadata.EntryPoint]:
    return list(metadata.entry_points(group=ENTRY_POINT_GROUP))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerHealth:
    """How a tracker fares, in counts since the start of the attempt."""

    name: str
    state: TrackerState
    logged: int
    failed: int
    """Rows at which it raised."""
    dropped: int
    """Rows it never saw, because it failed to start or did not keep up."""
    queued: int
    """Rows that wait for it."""
    last_error: str | None


class TrackerThread:
    """Feeds one tracker.

    Args:
        tracker: The tracker.
        run: What it is told about the run.
        on_failure: Called once, from the tracker's thread, with a sentence, at its first failure.
        capacity: Rows that may wait; beyond it the oldest is dropped.
    """

    def __init__(
        self,
        tracker: Tracker,
        run: TrackedRun,
        *,
        on_failure: Callable[[str], None],
        capacity: int = 1024,
    ) -> None:
        self._tracker = tracker
        self._run = run
        self._on_failure = on_failure
        self._capacity = capacity
        self._changed = threading.Condition()
        self._rows: deque[tuple[Mapping[str, float], int]] = deque()
        self._is_closing = False
        self._state: TrackerState = "starting"
        self._logged = self._failed = self._dropped = 0
        self._last_error: str | None = None
        self._thread = threading.Thread(
            target=self._work, name=f"tracker-{tracker.name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread, which starts the tracker."""
        self._thread.start()

    def offer(self, row: Mapping[str, float], step: int) -> None:
        """Queue a row. Never waits; drops the oldest row if too many wait."""
        with self._changed:
            if self._state in ("failed", "finished"):
                self._dropped += 1
                return
            if len(self._rows) >= self._capacity:
                self._rows.popleft()
                self._dropped += 1
            self._rows.append((row, step))
            self._changed.notify()
            overflowed = self._dropped == 1
        if overflowed:
            self._warn(f"does not keep up; more than {self._capacity} rows wait and the oldest go")

    def request_close(self) -> None:
        """Let the tracker finish once it has taken what waits. Does not wait for it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Let the tracker take what waits and finish, for so long at most.

        Returns:
            Whether it did. If not, its thread is left to itself and ends with the process.
        """
        if self._thread.ident is None:
            return True
        self.request_close()
        self._thread.join(max(0.0, timeout_s))
        if self._thread.is_alive():
            logger.warning("tracker %s did not finish in time and is left", self._tracker.name)
            return False
        return True

    def health(self) -> TrackerHealth:
        """Counts so far."""
        with self._changed:
            return TrackerHealth(
                name=self._tracker.name,
                state=self._state,
                logged=self._logged,
                failed=self._failed,
                dropped=self._dropped,
                queued=len(self._rows),
                last_error=self._last_error,
            )

    def _work(self) -> None:
        if not self._attempt("start", partial(self._tracker.start, self._run)):
            self._give_up()
            return
        with self._changed:
            self._state = "running"
        while (item := self._next()) is not None:
            row, step = item
            succeeded = self._attempt("log a row", partial(self._tracker.log, row, step))
            with self._changed:
                self._logged += succeeded
                self._failed += not succeeded
        self._attempt("finish", self._tracker.finish)
        with self._changed:
            self._state = "finished"

    def _next(self) -> tuple[Mapping[str, float], int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._rows or self._is_closing)
            return self._rows.popleft() if self._rows else None

    def _give_up(self) -> None:
        with self._changed:
            self._state = "failed"
            self._dropped += len(self._rows)
            self._rows.clear()

    def _attempt(self, what: str, call: Callable[[], None]) -> bool:
        """Call into the tracker; whatever it raises is told once and counted."""
        try:
            call()
        except (Exception, SystemExit) as error:  # third-party code at a thread boundary
            sentence = f"failed to {what}: {type(error).__name__}: {error}"
            logger.debug("tracker %s %s", self._tracker.name, sentence, exc_info=True)
            self._warn(sentence)
            return False
        return True

    def _warn(self, sentence: str) -> None:
        """Tell the first failure; later ones are only counted."""
        with self._changed:
            is_first = self._last_error is None
            self._last_error = sentence
        if is_first:
            text = f"tracker {self._tracker.name} {sentence}; the run and metrics.jsonl go on"
            logger.warning("%s", text)
            self._on_failure(text)
