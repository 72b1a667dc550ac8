"""Which checkpoints may go, and their removal.

Never removes anything unless a newer whole checkpoint is there, and never leaves a half-removed one
under the name of a checkpoint. Decides by step numbers only; the caller names what else to protect.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from checkpoints.errors import CheckpointError
from checkpoints.listing import CheckpointEntry, list_checkpoints
from checkpoints.manifest import verify

logger = logging.getLogger(__name__)

_UNFINISHED = re.compile(r"\.(tmp|torn|del)-(\d+|latest)-[0-9a-f-]+")


def prune(
    run_dir: Path,
    *,
    keep_last: int | None,
    keep_every: int | None = None,
    protect: Collection[int] = (),
) -> list[Path]:
    """Remove the checkpoints of a run that nothing asks to keep.

    Args:
        run_dir: Directory of the run.
        keep_last: How many of the newest stay, at least 1; ``None`` removes nothing.
        keep_every: In each stretch of this many steps the first checkpoint at or after its start
            stays (steps rarely hit a multiple); ``None`` keeps none for that reason.
        protect: Steps that stay in any case, such as the best one.

    Returns:
        The paths that were removed, oldest first; none if the newest is not whole.

    Raises:
        ValueError: If ``keep_last`` or ``keep_every`` is below 1.
    """
    if (keep_last is not None and keep_last < 1) or (keep_every is not None and keep_every < 1):
        raise ValueError(f"keep_last is {keep_last}, keep_every {keep_every}; expected 1 or more")
    entries, _ = list_checkpoints(run_dir)
    kept = _steps_to_keep([entry.step for entry in entries], keep_last, keep_every) | set(protect)
    surplus = [entry for entry in entries if entry.step not in kept]
    if not surplus or not _newest_is_whole(entries):
        return []
    for entry in surplus:
        _remove(entry.path)
    return [entry.path for entry in surplus]


def remove_unfinished(run_dir: Path) -> list[Path]:
    """Remove what a killed process left of unfinished saves and removals.

    Only for the process that holds the run's lock.
    """
    left = [path for path in sorted(run_dir.iterdir()) if _UNFINISHED.fullmatch(path.name)]
    for path in left:
        _delete(path)
    return left


def _steps_to_keep(steps: Sequence[int], keep_last: int | None, keep_every: int | None) -> set[int]:
    ascending = sorted(set(steps))
    if keep_last is None:
        return set(ascending)
    kept = set(ascending[-keep_last:])
    if keep_every is not None:
        first_of: dict[int, int] = {}
        for step in ascending:
            first_of.setdefault(step // keep_every, step)
        first_of.pop(0, None)
        kept |= set(first_of.values())
    return kept


def _newest_is_whole(entries: Sequence[CheckpointEntry]) -> bool:
    newest = entries[-1]
    try:
        verify(newest.path, newest.manifest)
    except CheckpointError as error:
        logger.warning("no checkpoint is removed, since the newest is not whole: %s", error)
        return False
    return True


def _remove(path: Path) -> None:
    # Renamed first: a process killed half-way leaves no torn checkpoint to be wondered about.
    doomed = path.with_name(f".del-{path.name}-{secrets.token_hex(4)}")
    try:
        path.rename(doomed)
    except OSError as error:
        logger.warning("cannot remove the checkpoint %s: %s", path, error)
        return
    _delete(doomed)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
