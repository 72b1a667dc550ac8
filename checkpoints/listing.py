"""Which checkpoints a run has, and which whole one is the newest.

Order is the step stored inside a checkpoint, as a number; names and file times say nothing. Never
changes anything on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checkpoints.errors import CheckpointError, CheckpointNotFoundError
from checkpoints.manifest import MANIFEST_NAME, TENSOR_SUFFIX, Manifest, read_manifest, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """A directory with a readable manifest. Its files have not been verified."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """The step stored inside."""
        return self.manifest.step

    @property
    def size_bytes(self) -> int:
        """Bytes of its files, the manifest left out."""
        return sum(record.size_bytes for record in self.manifest.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A directory that looks like a checkpoint and is not a whole one."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return self.reason


def list_checkpoints(run_dir: Path) -> tuple[list[CheckpointEntry], list[Skipped]]:
    """List the checkpoints of a run by step, oldest first, and what merely looks like one.

    Unfinished saves, links and directories of another kind are left out. Files are not hashed.

    Args:
        run_dir: Directory of the run; may be missing.
    """
    entries: list[CheckpointEntry] = []
    torn: list[Skipped] = []
    for path in _candidates(run_dir):
        try:
            entries.append(CheckpointEntry(path=path, manifest=read_manifest(path)))
        except CheckpointError as error:
            torn.append(Skipped(path=path, reason=str(error)))
    entries.sort(key=lambda entry: (entry.step, entry.path.name))
    return entries, torn


def list_steps(run_dir: Path) -> list[int]:
    """Steps of the checkpoints of a run, ascending. Files are not hashed."""
    return [entry.step for entry in list_checkpoints(run_dir)[0]]


def newest(run_dir: Path) -> tuple[Path, list[Skipped]]:
    """Find the newest whole checkpoint of a run, hashes included.

    Args:
        run_dir: Directory of the run.

    Returns:
        Its path, and every torn one that was passed over: those that would have been newer, and
        those whose step cannot be read. The caller says so.

    Raises:
        CheckpointNotFoundError: If there is no whole one; ``skipped`` names the torn ones.
    """
    entries, skipped = list_checkpoints(run_dir)
    for entry in reversed(entries):
        try:
            verify(entry.path, entry.manifest)
        except CheckpointError as error:
            skipped.append(Skipped(path=entry.path, reason=str(error)))
        else:
            return entry.path, skipped
    torn = f"; not whole: {', '.join(skip.path.name for skip in skipped)}" if skipped else ""
    raise CheckpointNotFoundError(run_dir, f"holds no whole checkpoint{torn}", skipped)


def _candidates(run_dir: Path) -> list[Path]:
    """Directories that are, or pretend to be, checkpoints."""
    if not run_dir.is_dir():
        return []
    return [path for path in sorted(run_dir.iterdir()) if _looks_like_checkpoint(path)]


def _looks_like_checkpoint(path: Path) -> bool:
    if path.name.startswith(".") or path.is_symlink() or not path.is_dir():
        return False
    if (path / MANIFEST_NAME).exists():
        return True
    # Without a manifest only what clearly was meant as a checkpoint is worth a word.
    return path.name.isdecimal() and any(file.suffix == TENSOR_SUFFIX for file in path.iterdir())
