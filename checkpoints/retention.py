"""Which checkpoints may go, and their removal.

Never removes anything unless a newer whole checkpoint is there, never the best or a pinned one, and
never leaves a half-removed one under the name of a checkpoint. Decides by steps, by the fact
``score`` of the manifests and by the file ``pinned`` alone; the caller names what else to protect.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from checkpoints.disk import sync_directory
from checkpoints.errors import CheckpointError
from checkpoints.listing import CheckpointEntry, list_checkpoints
from checkpoints.manifest import read_manifest, verify

logger = logging.getLogger(__name__)

SCORE, SCORE_OF = "score", "score_of"
"""Facts of a manifest: how good the checkpoint is, and by what measure. Absent if not known."""

SCORE_IN = "score_in"
"""Fact of a manifest: what was played for the score of an evaluation."""

EVALUATION = "evaluation"
SCORE_RANKS: Mapping[str, int] = {"return_mean_100": 1, EVALUATION: 2}
"""What a score may be of. A score of higher rank beats any of a lower one: an evaluation plays
whole episodes with the very weights of the checkpoint."""

PINNED_NAME = "pinned"
"""Empty file in a checkpoint that is never pruned. No part of the checkpoint itself."""

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
        protect: Steps that stay in any case. The best one and pinned ones need not be named.

    Returns:
        The paths that were removed, oldest first; none if the newest is not whole.

    Raises:
        ValueError: If ``keep_last`` or ``keep_every`` is below 1.
    """
    entries, _ = list_checkpoints(run_dir)
    doomed = surplus(entries, keep_last=keep_last, keep_every=keep_every, protect=protect)
    if not doomed or not _newest_is_whole(entries):
        return []
    for entry in doomed:
        _remove(entry.path)
    return [entry.path for entry in doomed]


def surplus(
    entries: Sequence[CheckpointEntry],
    *,
    keep_last: int | None,
    keep_every: int | None = None,
    protect: Collection[int] = (),
) -> list[CheckpointEntry]:
    """List what ``prune`` would remove, oldest first; changes nothing.

    Args:
        entries: All checkpoints of the run.
        keep_last: See ``prune``.
        keep_every: See ``prune``.
        protect: See ``prune``.

    Raises:
        ValueError: If ``keep_last`` or ``keep_every`` is below 1.
    """
    if (keep_last is not None and keep_last < 1) or (keep_every is not None and keep_every < 1):
        raise ValueError(f"keep_last is {keep_last}, keep_every {keep_every}; expected 1 or more")
    kept = _steps_to_keep([entry.step for entry in entries], keep_last, keep_every) | set(protect)
    favourite = best(entries)
    if favourite is not None:
        kept.add(favourite.step)
    return [entry for entry in entries if entry.step not in kept and not is_pinned(entry.path)]


def best(entries: Sequence[CheckpointEntry]) -> CheckpointEntry | None:
    """Return the best checkpoint by the facts of its manifest, or ``None`` if none has a score.

    The highest evaluation wins, else the highest mean return of training; of equals the oldest.
    Evaluations in something else than the newest one are not compared: they are no scores.
    """
    scored = [(score, entry) for entry in entries if (score := _score(entry)) is not None]
    evaluated = [entry for (rank, _), entry in scored if rank == SCORE_RANKS[EVALUATION]]
    if evaluated:
        subject = max(evaluated, key=lambda entry: entry.step).manifest.facts.get(SCORE_IN)
        scored = [
            pair
            for pair in scored
            if pair[1] not in evaluated or pair[1].manifest.facts.get(SCORE_IN) == subject
        ]
    if not scored:
        return None
    return max(scored, key=lambda pair: (*pair[0], -pair[1].step))[1]


def is_pinned(path: Path) -> bool:
    """Whether the checkpoint at ``path`` is never to be pruned."""
    return (path / PINNED_NAME).exists()


def pin(path: Path) -> None:
    """Keep the checkpoint at ``path`` from ever being pruned.

    Raises:
        CheckpointError: If there is no checkpoint at ``path``.
        OSError: If the disk refuses.
    """
    read_manifest(path)
    (path / PINNED_NAME).touch()
    sync_directory(path)


def unpin(path: Path) -> None:
    """Let the checkpoint at ``path`` be pruned again, if it was pinned.

    Raises:
        CheckpointError: If there is no checkpoint at ``path``.
        OSError: If the disk refuses.
    """
    read_manifest(path)
    (path / PINNED_NAME).unlink(missing_ok=True)
    sync_directory(path)


def remove_unfinished(run_dir: Path) -> list[Path]:
    """Remove what a killed process left of unfinished saves and removals.

    Only for the process that holds the run's lock.
    """
    left = [path for path in sorted(run_dir.iterdir()) if _UNFINISHED.fullmatch(path.name)]
    for path in left:
        _delete(path)
    return left


def _score(entry: CheckpointEntry) -> tuple[int, float] | None:
    """Rank and score; what is no finite number, or of an unknown kind, is no score."""
    facts = entry.manifest.facts
    score, rank = facts.get(SCORE), SCORE_RANKS.get(str(facts.get(SCORE_OF)))
    if rank is None or isinstance(score, bool) or not isinstance(score, (int, float)):
        return None
    return (rank, float(score)) if math.isfinite(score) else None


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
