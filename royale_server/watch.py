"""Watches a run for a person: samples its state, shows alarms, and has bundles written.

Runs on the I/O thread and never blocks. Decides nothing about the run: whether an alarm ends it is
the trainer's to carry out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from royale_server.alarms.engine import Change
from royale_server.alarms.keeper import AlarmKeeper
from royale_server.alarms.live import SAMPLE_EVERY_S, DiskState, LiveMeter
from royale_server.alarms.words import change_line
from royale_server.bundle import Incident, write_bundle
from royale_server.model.engine import Inferred
from royale_server.model.invariants import BrokenBatchError
from royale_server.recorder import ActionRecorder
from royale_server.run.layout import RunLayout
from royale_server.run.writer import Writer, WriterHealth

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a bundle says about where it comes from."""

    layout: RunLayout
    seed: int
    resume_command: str


class Watch:
    """Watches one attempt.

    Args:
        alarms: The alarms.
        writer: Writes records and bundles.
        surroundings: For bundles.
        feedback_wait_timeout_s: What a client may take to answer.
        clock: Monotonic seconds.
        post: Hands a callback from the writer's thread to this one.
    """

    def __init__(
        self,
        *,
        alarms: AlarmKeeper,
        writer: Writer,
        surroundings: Surroundings,
        feedback_wait_timeout_s: float,
        clock: Callable[[], float],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._alarms = alarms
        self._writer = writer
        self._surroundings = surroundings
        self._clock = clock
        self._post = post
        self._sample_at = clock() + SAMPLE_EVERY_S
        self.meter = LiveMeter(feedback_wait_timeout_s, clock())
        """Told what moves."""
        self.recorder = ActionRecorder()
        """Told what is answered and what ended."""
        self.worst_ratios: Sequence[Mapping[str, Any]] = ()
        """Of the newest learn step: the frames furthest from a ratio of 1."""

    def inferred(self, result: Inferred) -> None:
        """A batch was answered."""
        self.meter.moved(self._clock())
        self.recorder.inferred(result)

    def tick(self, *, is_busy: bool, clients_lost: int) -> list[Change]:
        """Look at the server's own state now and then.

        Args:
            is_busy: Whether anything should be moving.
            clients_lost: Clients that are gone without a goodbye, since the start.

        Returns:
            What changed about alarms.
        """
        now = self._clock()
        if not is_busy:
            self.meter.moved(now)
        if now < self._sample_at:
            return []
        self._sample_at = now + SAMPLE_EVERY_S
        self.meter.lost(clients_lost, now)
        changes = self._alarms.sampled(self.meter.sample(now, _disk_state(self._writer.health())))
        if changes:
            self._writer.alarms([change.record() for change in changes])
        return changes

    def show(self, changes: Sequence[Change]) -> None:
        """Say what changed."""
        for change in changes:
            level = logging.WARNING if change.kind == "raise" else logging.INFO
            logger.log(level, "%s", change_line(change))

    def dump(
        self,
        changes: Sequence[Change],
        *,
        refusal: BrokenBatchError | None = None,
        iteration: int,
        checkpoint: Path | None,
        done: Callable[[], None],
    ) -> None:
        """Have a bundle written.

        Args:
            changes: The alarms that it is about.
            refusal: Why a batch was not learnt from, if it is about that.
            iteration: Names it.
            checkpoint: The newest checkpoint, or None.
            done: Called once it is on disk, or as much of it as the disk takes.
        """
        incident = Incident(
            layout=self._surroundings.layout,
            seed=self._surroundings.seed,
            resume_command=self._surroundings.resume_command if checkpoint is not None else None,
            iteration=iteration,
            changes=tuple(changes),
            refusal=refusal,
            checkpoint=checkpoint,
            recording=self.recorder.recording(),
            worst_ratios=tuple(self.worst_ratios),
        )
        self._writer.task(partial(self._write, incident, done))

    def _write(self, incident: Incident, done: Callable[[], None]) -> None:
        """On the writer's thread."""
        directory = write_bundle(incident)
        if directory is not None:
            logger.warning("bundle %s", directory)
        self._post(done)


def _disk_state(health: WriterHealth) -> DiskState:
    return DiskState(
        busy_s=health.busy_s,
        unwritten=health.unwritten,
        dropped=health.dropped,
        tracker_lost=sum(tracker.failed + tracker.dropped for tracker in health.trackers),
        tracker_queued=max((tracker.queued for tracker in health.trackers), default=0),
    )
