"""Write a checkpoint so that it appears whole or not at all.

The files are written and flushed in a directory of another name, the manifest last; then that is
renamed and its parent flushed. A process killed anywhere on the way leaves the earlier checkpoints
as they were. Never writes the same twice; a whole checkpoint of the same step but with other facts,
such as one taken before its frames were learnt from, gives way once the new one is whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from checkpoints.contents import CheckpointContents
from checkpoints.disk import sync_directory
from checkpoints.documents import DocumentError, encode
from checkpoints.errors import CheckpointContentError, CheckpointError, CheckpointWriteError
from checkpoints.manifest import (
    DOCUMENT_SUFFIX,
    MANIFEST_NAME,
    TENSOR_SUFFIX,
    FileRecord,
    Manifest,
    is_stem,
    verify,
)
from checkpoints.tensors import TensorFile, TensorFileError, plan

logger = logging.getLogger(__name__)

LATEST_NAME = "latest"

Reached: TypeAlias = Callable[[str], None]
"""Told how far a save has got; see ``save``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveResult:
    """What became of a save."""

    path: Path
    """The checkpoint's directory, ``<run>/<step>``."""
    step: int
    written: bool
    """False if a whole checkpoint of this step was there already and nothing was done."""
    size_bytes: int
    """Bytes of its files, the manifest left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DocumentFile:
    """A document as the bytes of its file; written like a ``TensorFile``."""

    data: bytes

    def write(self, file: BinaryIO) -> str:
        file.write(self.data)
        return hashlib.sha256(self.data).hexdigest()


def save(
    run_dir: Path, contents: CheckpointContents, reached: Reached = lambda _: None
) -> SaveResult:
    """Save ``contents`` as ``<run_dir>/<step>``.

    Args:
        run_dir: Directory of the run; must exist. One writer at a time (the run's lock sees to it).
        contents: What to save. Must not change meanwhile.
        reached: Told how far it is, for tests that end the process there: ``save:<file>`` when a
            file is written, ``publish`` when the directory has its name, ``link`` when the link
            ``latest`` is about to be replaced.

    Returns:
        Where it is, and whether anything had to be written: not if a whole checkpoint of this step
        has the same facts. A torn one is replaced, and one with other facts.

    Raises:
        CheckpointContentError: If something in ``contents`` has no form in the format.
        CheckpointWriteError: If the disk refuses; nothing older is touched.
    """
    files = _files(run_dir, contents)
    target = run_dir / str(contents.step)
    existing = _whole(target)
    if existing is not None and existing.facts == dict(contents.facts):
        logger.info("checkpoint %s is there already and whole: nothing saved", target)
        return _result(target, existing, written=False)
    if existing is None and os.path.lexists(target):
        logger.warning("checkpoint %s was not whole and is replaced", target)
    staging = run_dir / f".tmp-{contents.step}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        manifest = _write_all(staging, files, contents, reached)
        _publish(staging, target, reached)
    except OSError as error:
        raise CheckpointWriteError(
            target,
            f"could not be saved: {error.strerror or error}; older checkpoints are untouched; "
            "check free space and permissions",
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _link_latest(target, reached)
    return _result(target, manifest, written=True)


def check_saveable(run_dir: Path, contents: CheckpointContents) -> int:
    """Try everything about a save but the disk, so that it cannot fail hours later.

    Returns:
        Bytes the checkpoint would take, the manifest left out.

    Raises:
        CheckpointContentError: If something in ``contents`` has no form in the format.
    """
    files = _files(run_dir, contents)
    return sum(f.size_bytes if isinstance(f, TensorFile) else len(f.data) for f in files.values())


def _files(run_dir: Path, contents: CheckpointContents) -> dict[str, TensorFile | _DocumentFile]:
    """Lay out every file before the first byte is written."""
    path = run_dir / str(contents.step)
    if type(contents.step) is not int or contents.step < 0:
        raise CheckpointContentError(path, f"step is {contents.step!r}, expected an int, 0 or more")
    bad = sorted(stem for stem in [*contents.tensors, *contents.documents] if not is_stem(stem))
    if bad:
        raise CheckpointContentError(path, f"{bad}: not usable as file names of a checkpoint")
    files: dict[str, TensorFile | _DocumentFile] = {}
    name = MANIFEST_NAME
    try:
        encode(dict(contents.facts))
        for stem, tensors in contents.tensors.items():
            name = stem + TENSOR_SUFFIX
            files[name] = plan(tensors)
        for stem, document in contents.documents.items():
            name = stem + DOCUMENT_SUFFIX
            files[name] = _DocumentFile(data=encode(document))
    except (TensorFileError, DocumentError) as error:
        raise CheckpointContentError(path, f"{name}: {error}") from error
    return files


def _write_all(
    staging: Path,
    files: dict[str, TensorFile | _DocumentFile],
    contents: CheckpointContents,
    reached: Reached,
) -> Manifest:
    staging.mkdir()
    records: dict[str, FileRecord] = {}
    for name, file in files.items():
        digest = _write_file(staging / name, file)
        records[name] = FileRecord(size_bytes=(staging / name).stat().st_size, sha256=digest)
        reached(f"save:{name}")
    manifest = Manifest(step=contents.step, files=records, facts=dict(contents.facts))
    _write_file(staging / MANIFEST_NAME, _DocumentFile(data=manifest.render()))
    reached(f"save:{MANIFEST_NAME}")
    sync_directory(staging)
    return manifest


def _write_file(path: Path, content: TensorFile | _DocumentFile) -> str:
    with path.open("xb") as file:
        digest = content.write(file)
        file.flush()
        os.fsync(file.fileno())
    return digest


def _publish(staging: Path, target: Path, reached: Reached) -> None:
    """Give the finished directory its name; whatever has the name goes first."""
    old: Path | None = None
    if os.path.lexists(target):
        old = target.with_name(f".torn-{target.name}-{secrets.token_hex(4)}")
        target.rename(old)
    staging.rename(target)
    reached("publish")
    sync_directory(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _link_latest(target: Path, reached: Reached) -> None:
    """Point ``latest`` at the checkpoint, for people; nothing reads it, so it may fail."""
    link = target.with_name(LATEST_NAME)
    if os.path.lexists(link) and not link.is_symlink():
        return
    fresh = target.with_name(f".tmp-{LATEST_NAME}-{secrets.token_hex(4)}")
    try:
        fresh.symlink_to(target.name, target_is_directory=True)
        reached("link")
        fresh.replace(link)
    except OSError as error:
        logger.debug("cannot link %s to %s: %s", link, target.name, error)


def _whole(target: Path) -> Manifest | None:
    try:
        return verify(target)
    except CheckpointError:
        return None


def _result(target: Path, manifest: Manifest, *, written: bool) -> SaveResult:
    size = sum(record.size_bytes for record in manifest.files.values())
    return SaveResult(path=target, step=manifest.step, written=written, size_bytes=size)
