"""A run's directory, owned by this process: made, locked, described, and given back.

Never deletes a run before the one that replaces it has a checkpoint; a start that fails half-way is
undone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import secrets
import shutil
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from checkpoints import remove_unfinished, sync_directory
from royale_client.wire.errors import RoyaleError
from royale_server.run.identity_record import IdentityRecord, write_identity
from royale_server.run.layout import RunLayout
from royale_server.run.lock import Owner, RunLock
from royale_server.run.prepare import (
    SCHEMA,
    RunExistsError,
    RunPlan,
    is_free,
    read_run_record,
)
from royale_server.run.versions import decisive_versions, installed
from royale_server.shown_words import without_secrets

logger = logging.getLogger(__name__)

_ALSO_RECORDED = ("websockets", "msgpack", "swanlab")


class RunDirectory:
    """The directory of a run, locked by this process. Made by ``create``.

    Args:
        plan: What was planned.
        lock: Its lock, held.
        set_aside: Where the run that this one overwrites lies meanwhile.
    """

    def __init__(self, plan: RunPlan, lock: RunLock, set_aside: Path | None) -> None:
        self.plan = plan
        self.layout = plan.layout
        self.attempt = plan.attempt
        self.set_aside = set_aside
        self.record: dict[str, Any] = {}
        """What ``run.json`` says."""
        self._lock = lock

    @property
    def run_id(self) -> str:
        """What identifies the run in all its attempts."""
        return str(self.record["id"])

    @property
    def taken_over(self) -> Owner | None:
        """The process that worked on the run before and never gave it back, if there was one."""
        return self._lock.previous

    @property
    def takeover_evidence(self) -> str:
        """What became of that process, and how it is known, as a sentence; empty without one."""
        return "" if self._lock.evidence is None else self._lock.evidence.sentence

    def first_checkpoint_written(self) -> None:
        """Remove the run that this one overwrites. May be called after every checkpoint."""
        siblings = self.layout.siblings
        for path in [path for path in siblings.iterdir() if self.layout.is_set_aside(path)]:
            shutil.rmtree(path, ignore_errors=True)
            logger.info("removed the overwritten run %s", path)
        self.set_aside = None

    def discard(self) -> None:
        """Undo the start of a run that never began, and put back what it was to overwrite.

        An attempt to resume stays; it changed nothing but its own log folder.
        """
        if self.plan.mode != "resume":
            if os.name == "nt":  # an open file pins its folder there
                self._lock.release()
            shutil.rmtree(self.layout.directory, ignore_errors=True)
            if self.set_aside is not None:
                self.set_aside.rename(self.layout.directory)
                self.set_aside = None
        self._lock.release()

    def close(self) -> None:
        """Release the lock; say where an overwritten run lies that was never replaced."""
        if self.set_aside is not None:
            logger.warning(
                "no checkpoint was written; the run that was to be overwritten is kept as %s",
                self.set_aside,
            )
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def create(
    plan: RunPlan,
    *,
    config: Mapping[str, object],
    seed: int,
    argv: Sequence[str] = (),
    identity: IdentityRecord | None = None,
    source_diff: bytes = b"",
    facts: Mapping[str, object] | None = None,
) -> RunDirectory:
    """Make the directory of a planned run, lock it and write what the run is.

    Args:
        plan: The plan.
        config: Resolved settings as plain data.
        seed: Seed of the run.
        argv: Command line; values that look like secrets are left out.
        identity: What the run is, written for a fresh one. A resumed run's stays as it is until the
            attempt has begun, so that a start that is undone has changed nothing.
        source_diff: Uncommitted changes of the code; empty if there are none.
        facts: Further plain data for ``run.json``.

    Returns:
        The directory. Close it.

    Raises:
        RunInUseError: If another process was faster.
        RunExistsError: If the directory appeared since it was planned.
        OSError: If the disk refuses; the start is undone.
    """
    set_aside = _move_aside(plan.layout) if plan.mode == "overwrite" else None
    try:
        plan = plan if plan.mode == "resume" else _made(plan)
        run = RunDirectory(plan, _lock(plan), set_aside)
    except RoyaleError:
        raise  # the name is somebody else's by now
    except OSError:
        _put_back(plan, set_aside)
        raise
    try:
        if plan.mode == "resume":
            remove_unfinished(plan.layout.directory)
            run.first_checkpoint_written()
        else:
            record = _run_record(plan.layout, seed=seed, argv=argv)
            _write_new(plan.layout.run_json, {**record, **(facts or {})})
            if identity is not None:
                write_identity(plan.layout.identity, identity)
        _write_attempt(plan.layout, plan.attempt, config)
        if source_diff:
            plan.layout.source_diff(plan.attempt).write_bytes(source_diff)
        run.record = read_run_record(plan.layout)
    except BaseException:
        run.discard()
        raise
    return run


def _made(plan: RunPlan) -> RunPlan:
    """Make the directory; a name made from the time gives way to whoever was faster."""
    layout = plan.layout
    layout.siblings.mkdir(parents=True, exist_ok=True)
    try:
        layout.directory.mkdir()
    except FileExistsError as error:
        if not plan.is_named:
            return _made(replace(plan, layout=replace(layout, name=f"{layout.name}-2")))
        if not is_free(layout.directory):
            raise RunExistsError(
                f"{layout.directory} was made by another process just now; choose another "
                "--exp-name"
            ) from error
    for folder in (layout.siblings, layout.siblings.parent, layout.base):
        sync_directory(folder)
    return plan


def _lock(plan: RunPlan) -> RunLock:
    """Take the lock; a run that somebody else began and ended since the plan is left alone."""
    lock = RunLock(plan.layout.lock)
    if plan.mode != "resume" and plan.layout.run_json.exists():
        lock.release()
        raise RunExistsError(f"{plan.layout.directory} was used by another process just now")
    return lock


def _move_aside(layout: RunLayout) -> Path:
    """Move the run out of the way while holding its lock, so that nobody works on it meanwhile."""
    lock = RunLock(layout.lock)
    try:
        aside = layout.fresh_set_aside()
        if os.name == "nt":  # an open file pins its folder there
            lock.release()
        layout.directory.rename(aside)
    finally:
        lock.release()
    logger.info("moved the run %s aside to %s", layout.directory, aside.name)
    return aside


def _put_back(plan: RunPlan, set_aside: Path | None) -> None:
    """Undo a start that could not even lock its directory; what is not empty is not ours."""
    if plan.mode == "resume":
        return
    plan.layout.lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        plan.layout.directory.rmdir()
    if set_aside is not None and not plan.layout.directory.exists():
        set_aside.rename(plan.layout.directory)


def _write_attempt(layout: RunLayout, attempt: int, config: Mapping[str, object]) -> None:
    layout.attempt_logs(attempt).mkdir(parents=True)
    _write_new(layout.attempt_config(attempt), config)
    fresh = layout.config.with_name(f".{layout.config.name}.tmp")
    fresh.unlink(missing_ok=True)
    _write_new(fresh, config)
    fresh.replace(layout.config)
    _link_latest_logs(layout, attempt)


def _run_record(layout: RunLayout, *, seed: int, argv: Sequence[str]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "id": uuid.uuid4().hex,
        "name": layout.name,
        "algorithm": layout.algorithm,
        "policy": layout.policy,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "seed": seed,
        "argv": without_secrets(argv),
        "versions": {
            "system": platform.platform(),
            **decisive_versions(),
            **installed(_ALSO_RECORDED),
        },
    }


def _write_new(path: Path, document: Mapping[str, object]) -> None:
    """Write a file that is written once, durably."""
    with path.open("x", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _link_latest_logs(layout: RunLayout, attempt: int) -> None:
    """Point ``logs/latest`` at this attempt, for people; systems without links go without."""
    fresh = layout.latest_logs.with_name(f".latest-{secrets.token_hex(4)}")
    try:
        fresh.symlink_to(layout.attempt_logs(attempt).name, target_is_directory=True)
        fresh.replace(layout.latest_logs)
    except OSError as error:
        logger.debug("cannot link %s: %s", layout.latest_logs, error)
