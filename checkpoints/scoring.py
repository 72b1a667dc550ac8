"""Scores of checkpoints that become known after they were saved.

Changes the facts of a manifest and nothing else of a checkpoint, whole or not at all. Only for the
process that holds the run's lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkpoints.disk import sync_directory
from checkpoints.listing import CheckpointEntry, list_checkpoints
from checkpoints.manifest import MANIFEST_NAME
from checkpoints.retention import EVALUATION, SCORE, SCORE_IN, SCORE_OF

logger = logging.getLogger(__name__)

POLICY_VERSION = "policy_version"
"""Fact of a manifest: the version of the policy whose weights the checkpoint has."""

_NEW_NAME = f"{MANIFEST_NAME}.new"
"""What a killed process may leave in a checkpoint; no part of it, and written over by the next."""


def evaluation_facts(score: float, subject: str) -> dict[str, Any]:
    """Return the facts of a checkpoint that was evaluated.

    Args:
        score: How good it is, finite; more is better.
        subject: What was played. Scores of different subjects are not compared.
    """
    return {SCORE: score, SCORE_OF: EVALUATION, SCORE_IN: subject}


def enter_facts(run_dir: Path, version: int, facts: Mapping[str, Any]) -> list[Path]:
    """Add facts to the checkpoints of a run that have the weights of a policy version.

    Args:
        run_dir: Directory of the run.
        version: The policy version.
        facts: What is known of it now; facts of the same names are replaced.

    Returns:
        The paths of those checkpoints, oldest first.
    """
    entries = [
        entry
        for entry in list_checkpoints(run_dir)[0]
        if entry.manifest.facts.get(POLICY_VERSION) == version
    ]
    return [entry.path for entry in entries if _enter(entry, facts)]


def _enter(entry: CheckpointEntry, facts: Mapping[str, Any]) -> bool:
    """Replace the manifest; its file time stays that of the save."""
    manifest = replace(entry.manifest, facts={**entry.manifest.facts, **facts})
    path, new = entry.path / MANIFEST_NAME, entry.path / _NEW_NAME
    try:
        status = path.stat()
        with new.open("wb") as file:
            file.write(manifest.render())
            file.flush()
            os.fsync(file.fileno())
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        new.replace(path)
        sync_directory(entry.path)
    except OSError as error:
        logger.warning("cannot enter what the checkpoint %s scored: %s", entry.path, error)
        return False
    return True
