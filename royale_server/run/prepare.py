"""Decides what a start means for the disk, before anything is touched.

Fresh, resumed or overwriting; refused with the flag that would allow it. Reads only: whatever is
refused here leaves the disk as it was. ``directory`` carries the plan out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from checkpoints import CheckpointNotFoundError, Skipped, newest
from royale_client.wire.errors import ConfigError, RoyaleError
from royale_server.run.layout import RunLayout, next_attempt, timestamp_name
from royale_server.run.lock import RunInUseError, holder

SCHEMA = 1
"""Version of the files of a run; raised when an older reader could not read a newer run."""

Mode = Literal["fresh", "resume", "overwrite"]


class RunExistsError(RoyaleError, FileExistsError):
    """The directory of a fresh run is taken."""


class RunNotFoundError(RoyaleError, FileNotFoundError):
    """There is nothing to resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A start that is possible, as far as can be told without touching anything."""

    layout: RunLayout
    mode: Mode = "fresh"
    attempt: int = 1
    """Number of this start of the run, from 1."""
    checkpoint: Path | None = None
    """With ``resume``, the newest whole checkpoint."""
    skipped: tuple[Skipped, ...] = ()
    """Torn checkpoints that were passed over. The caller says so."""
    is_named: bool = True
    """False if the name was made from the time, and may change to one that is free."""


def plan(
    base: Path,
    *,
    algorithm: str,
    policy: str,
    name: str | None,
    seed: int,
    resume: bool = False,
    overwrite: bool = False,
    now: datetime | None = None,
) -> RunPlan:
    """Decide what a start means for the disk, and whether it may happen. Touches nothing.

    Args:
        base: Folder of all runs; may be missing.
        algorithm: Uid of the algorithm.
        policy: Uid of the policy.
        name: Name of the run; ``None`` makes one from the time.
        seed: Seed of the run, for such a name.
        resume: Continue the run of that name.
        overwrite: Replace the run of that name, if there is one.
        now: Time of the start; for tests.

    Raises:
        ConfigError: If both flags are given, or the name cannot be one.
        RunExistsError: If the run exists and neither flag is given, or it may not be overwritten.
        RunNotFoundError: If there is nothing to resume.
        RunInUseError: If another process works on the run.
    """
    if resume and overwrite:
        raise ConfigError(
            "--resume and --overwrite: got both, expected one; --resume continues the run, "
            "--overwrite starts it anew"
        )
    folder = base / algorithm / policy
    if name is None and resume:
        raise RunNotFoundError(f"--resume: needs --exp-name, a run in {folder}; {_runs_in(folder)}")
    layout = RunLayout(
        base=base,
        algorithm=algorithm,
        policy=policy,
        name=name or timestamp_name(now or datetime.now(UTC), seed, _names_in(folder)),
    )
    if resume:
        return _plan_resume(layout)
    if is_free(layout.directory):
        return RunPlan(layout=layout, is_named=name is not None)
    if overwrite:
        return _plan_overwrite(layout)
    raise RunExistsError(
        f"{layout.directory} exists; add --resume to continue it, --overwrite to start it anew, or "
        "choose another --exp-name"
    )


def is_free(directory: Path) -> bool:
    """Whether nothing is there, or an empty directory, in which nothing could be lost."""
    if directory.is_symlink():
        return False
    return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))


def read_run_record(layout: RunLayout) -> dict[str, Any]:
    """Read what a run says about itself.

    Raises:
        RunNotFoundError: If it says nothing, or nothing this program understands.
    """
    where = f"{layout.directory}: there is no run to resume"
    try:
        record = json.loads(layout.run_json.read_bytes())
    except FileNotFoundError as error:
        raise RunNotFoundError(
            f"{where}; check --checkpoint-base-dir, --exp-name, policy and algorithm, or leave out "
            "--resume to start it"
        ) from error
    except (OSError, ValueError) as error:
        raise RunNotFoundError(
            f"{where}: {layout.run_json.name} cannot be read: {error}"
        ) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or "id" not in record:
        raise RunNotFoundError(
            f"{where} that this program understands: expected schema {SCHEMA} in "
            f"{layout.run_json.name}; use the version of Royale that wrote it"
        )
    return record


def _plan_resume(layout: RunLayout) -> RunPlan:
    read_run_record(layout)
    _refuse_if_in_use(layout)
    try:
        path, skipped = newest(layout.directory)
    except CheckpointNotFoundError as error:
        raise RunNotFoundError(
            f"{layout.directory}: the run {error.reason}; --overwrite starts it anew"
        ) from error
    return RunPlan(
        layout=layout,
        mode="resume",
        attempt=next_attempt([*_names_in(layout.directory), *_names_in(layout.logs)]),
        checkpoint=path,
        skipped=tuple(skipped),
    )


def _plan_overwrite(layout: RunLayout) -> RunPlan:
    folders = (layout.base / layout.algorithm, layout.siblings, layout.directory)
    for link in [folder for folder in folders if folder.is_symlink()]:
        raise RunExistsError(
            f"{layout.directory}: --overwrite does not follow the link {link}; remove the link or "
            "choose another --exp-name"
        )
    if not layout.run_json.is_file() and not layout.lock.is_file():
        raise RunExistsError(
            f"{layout.directory} is not a run (it has no {layout.run_json.name}), so --overwrite "
            "leaves it alone; move it away or choose another --exp-name"
        )
    _refuse_if_in_use(layout)
    return RunPlan(layout=layout, mode="overwrite")


def _refuse_if_in_use(layout: RunLayout) -> None:
    owner = holder(layout.lock)
    if owner is not None:
        raise RunInUseError(layout.directory, owner)


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _runs_in(folder: Path) -> str:
    names = sorted(path.parent.name for path in folder.glob("*/run.json"))
    return f"the last ones there are {', '.join(names[-3:])}" if names else "there is none"
