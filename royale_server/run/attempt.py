"""One start of the server on a run: its directory, its writer, and what it resumes from.

A run that never began (refused, or stopped before its first client) leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from checkpoints import CheckpointContents, load
from royale_server.config import ServerConfig
from royale_server.config_document import digest, to_document
from royale_server.monitoring.trackers import TrackedRun, Tracker, make_tracker
from royale_server.run.directory import RunDirectory, create
from royale_server.run.output import Retention, WriteFailure
from royale_server.run.prepare import RunPlan, plan
from royale_server.run.writer import Writer

logger = logging.getLogger(__name__)

WRITER_CLOSE_S = 60.0
"""How long the end of a run waits for the disk."""


class Attempt:
    """What the rest of the server needs of the run's directory. Made by `open_attempt`.

    Args:
        directory: The locked directory.
        writer: Writes its files.
        resumed: The checkpoint to continue from, or None.
        facts: Digests for every checkpoint's manifest.
    """

    def __init__(
        self,
        directory: RunDirectory,
        writer: Writer,
        resumed: CheckpointContents | None,
        facts: Mapping[str, Any],
    ) -> None:
        self.writer = writer
        self.resumed = resumed
        self.facts = facts
        self.number = directory.attempt
        self.run_id = directory.run_id
        self.name = directory.layout.name
        self.path: Path = directory.layout.directory
        self.log_file = directory.layout.server_log(directory.attempt)
        self.taken_over = directory.taken_over
        self.has_begun = False

    def begin(self) -> None:
        """The engine is built: from here on the directory stays."""
        self.has_begun = True


@contextlib.contextmanager
def open_attempt(
    config: ServerConfig, on_write_failure: Callable[[WriteFailure], None]
) -> Iterator[Attempt]:
    """Plan, load, create, and at the end give the directory back.

    Args:
        config: Settings of the server.
        on_write_failure: Called, on the writer's thread, when the disk refuses lines.

    Raises:
        RunExistsError: If the run exists and neither resume nor overwrite was asked for.
        RunNotFoundError: If there is nothing to resume.
        RunInUseError: If another process works on it.
    """
    planned = _plan(config)
    resumed = None if planned.checkpoint is None else load(planned.checkpoint)
    trackers = _trackers(config)
    document = to_document(config)
    directory = create(planned, config=document, seed=config.seed, argv=sys.argv)
    try:
        writer = _writer(config, directory, trackers, document, on_write_failure)
    except BaseException:
        directory.discard()
        raise
    attempt = Attempt(directory, writer, resumed, {"config_digest": digest(document)})
    try:
        yield attempt
    finally:
        report = writer.close(WRITER_CLOSE_S)
        if not report.flushed:
            logger.error(
                "the disk did not take everything; the last lines of %s are missing", attempt.path
            )
        if attempt.has_begun:
            directory.close()
        else:
            directory.discard()


def _plan(config: ServerConfig) -> RunPlan:
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
        logger.warning("passed over %s: %s", skipped.path, skipped.reason)
    return planned


def _trackers(config: ServerConfig) -> list[Tracker]:
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
    )
    writer.start()
    return writer
