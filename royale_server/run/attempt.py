"""One start of the server on a run: its directory, its writer, and what it resumes from.

A run that never began (refused, or stopped before its first client) leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints import CheckpointContents, load
from royale_client.wire.errors import ConfigError, RoyaleError
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import AlarmSet
from royale_server.alarms.keeper import AlarmKeeper
from royale_server.config import ServerConfig
from royale_server.config_document import digest, to_document
from royale_server.monitoring.trackers import TrackedRun, Tracker, make_tracker
from royale_server.run.directory import RunDirectory, create
from royale_server.run.finished import refuse_finished
from royale_server.run.identity import DRIFT_MARK, Difference, environment_difference
from royale_server.run.identity_check import CheckedIdentity, fresh_identity, resumed_identity
from royale_server.run.judge import AlarmJudge, DiskGauge
from royale_server.run.layout import RunLayout
from royale_server.run.opening import (
    drift_event,
    events_of_opening,
    full_event,
    warnings_of_opening,
)
from royale_server.run.output import Retention, WriteFailure
from royale_server.run.prepare import RunPlan, plan
from royale_server.run.writer import Writer
from royale_server.saved_run import ALARMS, STATE

logger = logging.getLogger(__name__)

WRITER_CLOSE_S = 60.0
"""How long the end of a run waits for the disk."""


class Attempt:
    """What the rest of the server needs of the run's directory. Made by `open_attempt`.

    Args:
        directory: The locked directory.
        writer: Writes its files.
        alarms: Judged by the writer.
        resumed: The checkpoint to continue from, or None.
        identity: What this attempt is, compared with what the run was.
        config_digest: Digest of its settings.
    """

    def __init__(
        self,
        directory: RunDirectory,
        *,
        writer: Writer,
        alarms: AlarmKeeper,
        resumed: CheckpointContents | None,
        identity: CheckedIdentity,
        config_digest: str,
    ) -> None:
        self.writer = writer
        self.alarms = alarms
        self.resumed = resumed
        self.facts: Mapping[str, Any] = {
            "config_digest": config_digest,
            "identity_digest": digest(identity.record.fields),
        }
        """Digests for every checkpoint's manifest."""
        self.number = directory.attempt
        self.run_id = directory.run_id
        self.name = directory.layout.name
        self.layout: RunLayout = directory.layout
        self.path: Path = directory.layout.directory
        self.log_file = directory.layout.server_log(directory.attempt)
        self.has_begun = False
        self._directory = directory
        self._identity = identity
        self._record = identity.record
        self._is_unwritten = identity.is_new and directory.plan.mode == "resume"
        self._is_full_said = False
        self._alarms_resumed = None if resumed is None else _resume_alarms(alarms, resumed)

    @property
    def row_marks(self) -> dict[str, float]:
        """What every metrics row must carry: that the run is no longer what it began as."""
        return self._record.marks

    def announce(self) -> None:
        """Say what is worth knowing about this start. Call it once the run's log is open."""
        for sentence in warnings_of_opening(self._directory, self._identity):
            logger.warning("%s", sentence)
        for change in self._identity.changed:
            logger.info("changed: %s: %s -> %s", change.field, change.old, change.new)

    def begin(self) -> None:
        """The engine is built: from here on the directory stays, and what was allowed counts."""
        self.has_begun = True
        self._hand_over_identity()
        if self._alarms_resumed is not None and self.layout.alarms.exists():
            self.writer.alarms([self._alarms_resumed])

    def environment_difference(self, env_id: str, env_digest: str) -> Difference | None:
        """Say how a client's environment differs from those of the run that is resumed.

        Args:
            env_id: Id of the environment.
            env_digest: Digest of its version and settings.

        Returns:
            None for one that has taken part before, and in a run that begins.
        """
        if self._directory.plan.mode != "resume":
            return None
        return environment_difference(self._record.environments, env_id, env_digest)

    def note_environment(self, env_id: str, env_digest: str) -> None:
        """Remember that an environment takes part; one that differs marks all later rows.

        It is on disk before any row that follows. Once ``MAX_ENVIRONMENTS`` are known, further ones
        change nothing, which is said once; the first of them still marks a run that is resumed.

        Args:
            env_id: Id of the environment.
            env_digest: Digest of its version and settings.
        """
        if (env_id, env_digest) in self._record.environments:
            return
        if self._record.is_full:
            if self._is_full_said:
                return
            self._say_full(env_id)
        self._remember(env_id, env_digest)
        if self.has_begun:
            self._hand_over_identity()

    def _say_full(self, env_id: str) -> None:
        self._is_full_said = True
        event = full_event(len(self._record.environments), env_id)
        logger.warning("%s", event["message"])
        self.writer.event(event)

    def _remember(self, env_id: str, env_digest: str) -> None:
        before = self._record
        difference = self.environment_difference(env_id, env_digest)
        if difference is not None:
            self._record = self._record.with_change(self.number, DRIFT_MARK, [difference])
            logger.warning("allowed: %s", difference)
            self.writer.event(drift_event(DRIFT_MARK, [difference]))
        self._record = self._record.with_environment(env_id, env_digest)
        self._is_unwritten |= self._record is not before

    def _hand_over_identity(self) -> None:
        """Clients bring environments, and a disk is slow: only the writer's thread waits for it."""
        if self._is_unwritten:
            self.writer.identity(self._record)
            self._is_unwritten = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that an attempt begins with, found out without touching anything."""

    plan: RunPlan
    identity: CheckedIdentity
    resumed: CheckpointContents | None = None
    """The checkpoint to continue from."""
    trackers: list[Tracker]


@contextlib.contextmanager
def open_attempt(
    config: ServerConfig,
    on_write_failure: Callable[[WriteFailure], None],
    check_changed: Callable[[CheckpointContents], None] = lambda _: None,
    alarms: Sequence[Alarm] = (),
    prepared: Prepared | None = None,
) -> Iterator[Attempt]:
    """Plan, compare, load, create, and at the end give the directory back.

    Args:
        config: Settings of the server.
        on_write_failure: Called, on the writer's thread, when the disk begins to refuse lines.
        check_changed: Raises if the checkpoint does not fit a run that was allowed to change.
        alarms: What is asked of every metrics row.
        prepared: What the preflight has found out; None finds it out here.

    Raises:
        RunExistsError: If the run exists and neither resume nor overwrite was asked for.
        RunNotFoundError: If there is nothing to resume.
        RunInUseError: If another process works on it.
        RunFinishedError: If it has reached its limit.
        IdentityDriftError: If it would no longer be the run that it was.
        ConfigError: If the disk refuses; the start is undone.
    """
    with _disk_errors_as_refusals(config.checkpoint_base_dir):
        prepared = prepared or _prepared(config, check_changed)
        directory, attempt = _opened(config, on_write_failure, prepared, alarms)
    writer = attempt.writer
    try:
        yield attempt
    finally:
        report = writer.close(WRITER_CLOSE_S)
        if not report.flushed:
            logger.error(
                "the disk did not take everything; what came last in %s is missing", attempt.path
            )
        if attempt.has_begun:
            directory.close()
        else:
            directory.discard()


def _opened(
    config: ServerConfig,
    on_write_failure: Callable[[WriteFailure], None],
    prepared: Prepared,
    alarms: Sequence[Alarm],
) -> tuple[RunDirectory, Attempt]:
    planned, identity, resumed = prepared.plan, prepared.identity, prepared.resumed
    trackers = prepared.trackers
    document = to_document(config)
    directory = create(
        planned,
        config=document,
        seed=config.seed,
        argv=sys.argv,
        identity=identity.record,
        source_diff=identity.source_diff,
    )
    gauge = DiskGauge(directory.layout.directory)
    limits = {**config.alarms.limits(), "save_every": config.save_every}
    keeper = AlarmKeeper(AlarmSet(alarms, limits), attempt=directory.attempt, machine=gauge.numbers)
    judge = AlarmJudge(keeper, gauge)
    try:
        writer = _writer(config, directory, trackers, document, on_write_failure, judge=judge)
    except BaseException:
        directory.discard()
        raise
    attempt = Attempt(
        directory,
        writer=writer,
        alarms=keeper,
        resumed=resumed,
        identity=identity,
        config_digest=digest(document),
    )
    for event in events_of_opening(directory, identity):
        writer.event(event)
    return directory, attempt


def _resume_alarms(alarms: AlarmKeeper, resumed: CheckpointContents) -> dict[str, Any]:
    """Let alarms go on from a checkpoint; return the line that says so."""
    state = resumed.documents.get(STATE, {}).get(ALARMS, {})
    return alarms.resume(state, int(resumed.facts.get("metrics_row", 0)))


@contextlib.contextmanager
def _disk_errors_as_refusals(base: Path) -> Iterator[None]:
    """What the disk refuses at the start is no defect: say what it was."""
    try:
        yield
    except RoyaleError:
        raise
    except OSError as error:
        raise ConfigError(
            f"{error.filename or base}: {error.strerror or error}; a run is written there: check "
            "free space and permissions, or choose another --checkpoint-base-dir"
        ) from error


def _prepared(
    config: ServerConfig, check_changed: Callable[[CheckpointContents], None]
) -> Prepared:
    planned = plan_attempt(config)
    check_unfinished(config, planned)
    identity = check_identity(config, planned, choose_device_kind(config))
    resumed = load_resumed(planned, identity, check_changed)
    return Prepared(
        plan=planned, identity=identity, resumed=resumed, trackers=make_trackers(config)
    )


def plan_attempt(config: ServerConfig) -> RunPlan:
    """Decide what the start means for the disk; see `prepare.plan`."""
    planned = plan(
        config.checkpoint_base_dir,
        algorithm=config.pair.algo,
        policy=config.pair.policy,
        name=config.exp_name,
        seed=config.seed,
        resume=config.resume,
        overwrite=config.overwrite,
    )
    for skipped in planned.skipped:
        logger.warning("passed over: %s", skipped.reason)
    return planned


def check_unfinished(config: ServerConfig, planned: RunPlan) -> None:
    """Refuse to resume a run that has reached its limit; see `refuse_finished`."""
    if planned.checkpoint is not None:
        arguments, name = sys.argv[1:], planned.layout.name
        refuse_finished(config, planned.checkpoint, run_name=name, arguments=arguments)


def choose_device_kind(config: ServerConfig) -> str:
    """Return ``cpu`` or ``cuda``; raises ConfigError if the device is not there."""
    from royale_server.model.build import choose_device  # torch: no earlier than it must

    return choose_device(config.device).type


def load_resumed(
    planned: RunPlan,
    identity: CheckedIdentity,
    check_changed: Callable[[CheckpointContents], None],
) -> CheckpointContents | None:
    """Load the checkpoint to continue from, if there is one, and see whether it still fits."""
    if planned.checkpoint is None:
        return None
    resumed = load(planned.checkpoint)
    if identity.accepted:
        check_changed(resumed)
    return resumed


def check_identity(config: ServerConfig, planned: RunPlan, device_kind: str) -> CheckedIdentity:
    """Compare the start with the run that it resumes; raises IdentityDriftError."""
    if planned.mode == "resume":
        return resumed_identity(config, device_kind, planned.layout, planned.attempt)
    return fresh_identity(config, device_kind)


def make_trackers(config: ServerConfig) -> list[Tracker]:
    """Make the trackers that the settings ask for; raises ConfigError if one cannot be used."""
    track = config.track
    if not track.enabled:
        return []
    return [make_tracker(track.tracker, project=track.project, mode=track.mode)]


def _writer(
    config: ServerConfig,
    directory: RunDirectory,
    trackers: list[Tracker],
    document: Mapping[str, Any],
    on_write_failure: Callable[[WriteFailure], None],
    *,
    judge: AlarmJudge,
) -> Writer:
    layout = directory.layout
    writer = Writer(
        layout,
        attempt=directory.attempt,
        on_failure=on_write_failure,
        on_saved=directory.first_checkpoint_written,
        retention=Retention(keep_last=config.keep_last, keep_every=config.keep_every),
        trackers=trackers,
        tracked_run=TrackedRun(
            run_id=directory.run_id,
            name=layout.name,
            directory=layout.trackers,
            config=dict(document),
        )
        if trackers
        else None,
        judge=judge,
    )
    writer.start()
    return writer
