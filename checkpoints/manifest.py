"""The manifest: what a checkpoint consists of, and the check that all of it is there unaltered.

Reads and hashes files; never loads a tensor, never writes, never imports torch.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoints.documents import DocumentError, decode, encode
from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointIncompatibleError,
    CheckpointNotFoundError,
)

FORMAT_VERSION = 1
"""Raised when an older program could not read what a newer one writes."""

MANIFEST_NAME = "manifest.json"
TENSOR_SUFFIX = ".safetensors"
DOCUMENT_SUFFIX = ".json"

_KIND = "royale-checkpoint"
_STEM = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """What one file of a checkpoint must look like."""

    size_bytes: int
    """Exact length."""
    sha256: str
    """Hash of its bytes, 64 hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The table of contents of a checkpoint."""

    step: int
    """Stored frames of the run; what checkpoints are ordered by, whatever their names."""
    files: Mapping[str, FileRecord]
    """By file name, the manifest itself left out."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the saver wanted to be readable without loading anything."""

    def render(self) -> bytes:
        """The manifest as the bytes of its file. Equal manifests give equal bytes."""
        files = {n: {"size": r.size_bytes, "sha256": r.sha256} for n, r in self.files.items()}
        document = {
            "kind": _KIND,
            "format": FORMAT_VERSION,
            "step": self.step,
            "files": files,
            "facts": dict(self.facts),
        }
        return encode(document, readable=True)


def is_stem(stem: str) -> bool:
    """Whether ``stem`` may name a file of a checkpoint."""
    return _STEM.fullmatch(stem) is not None and stem + DOCUMENT_SUFFIX != MANIFEST_NAME


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the checkpoint at ``path`` without looking at the other files.

    Raises:
        CheckpointNotFoundError: If there is no directory at ``path``.
        CheckpointCorruptError: If it has no manifest, or a torn or altered one.
        CheckpointIncompatibleError: If a newer version of this program wrote it.
    """
    if not path.is_dir():
        raise CheckpointNotFoundError(path, "there is no checkpoint directory here")
    try:
        data = (path / MANIFEST_NAME).read_bytes()
    except FileNotFoundError as error:
        raise CheckpointCorruptError(
            path, f"has no {MANIFEST_NAME}, so it is not a checkpoint or its save was cut short"
        ) from error
    except OSError as error:
        raise CheckpointCorruptError(path, f"cannot read {MANIFEST_NAME}: {error}") from error
    return _parse(path, data)


def verify(path: Path, manifest: Manifest | None = None) -> Manifest:
    """Check that the checkpoint at ``path`` is whole: every file, its size and its hash.

    Args:
        path: Directory of the checkpoint.
        manifest: Its manifest, if it was read before.

    Returns:
        The manifest.

    Raises:
        CheckpointNotFoundError: If there is no directory at ``path``.
        CheckpointCorruptError: If anything is missing or altered; names the file.
        CheckpointIncompatibleError: If a newer version of this program wrote it.
    """
    manifest = manifest or read_manifest(path)
    check_sizes(path, manifest)
    for name, record in manifest.files.items():
        try:
            with (path / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CheckpointCorruptError(path, f"cannot read {name}: {error}") from error
        check_hash(path, name, found, record)
    return manifest


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Check that every file is a plain file of the recorded size; raises as ``verify`` does."""
    for name, record in manifest.files.items():
        try:
            status = (path / name).lstat()
        except OSError as error:
            raise CheckpointCorruptError(path, f"{name} is missing: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointCorruptError(path, f"{name} is not a plain file")
        if status.st_size != record.size_bytes:
            raise CheckpointCorruptError(
                path, f"{name} has {status.st_size} bytes, its manifest says {record.size_bytes}"
            )


def check_hash(path: Path, name: str, found: str, record: FileRecord) -> None:
    """Compare a file's hash with its record; raises as ``verify`` does."""
    if found != record.sha256:
        raise CheckpointCorruptError(
            path, f"{name} has SHA-256 {found[:12]}…, its manifest says {record.sha256[:12]}…"
        )


def _parse(path: Path, data: bytes) -> Manifest:
    try:
        document = decode(data)
    except DocumentError as error:
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} {error}") from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} is not that of a checkpoint")
    if document.get("format") != FORMAT_VERSION:
        raise CheckpointIncompatibleError(
            path,
            f"has format {document.get('format')!r}, this program reads format {FORMAT_VERSION}; "
            "use the version of Royale that wrote it",
        )
    manifest = _from_document(path, document)
    # Nothing hashes the manifest itself, so any byte that its own rendering lacks counts as damage.
    if manifest.render() != data:
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} was altered after it was written")
    return manifest


def _from_document(path: Path, document: dict[str, Any]) -> Manifest:
    step, files, facts = (document.get(key) for key in ("step", "files", "facts"))
    if type(step) is not int or step < 0:
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} has step {step!r}")
    if not isinstance(files, dict) or not isinstance(facts, dict):
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} lacks its files or facts")
    records = {name: _record(path, name, record) for name, record in files.items()}
    return Manifest(step=step, files=records, facts=facts)


def _record(path: Path, name: object, record: object) -> FileRecord:
    """Read one entry; a name that could lead out of the directory is refused."""
    stem, dot, suffix = str(name).rpartition(".")
    if dot + suffix not in (TENSOR_SUFFIX, DOCUMENT_SUFFIX) or not is_stem(stem):
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} lists {str(name)[:80]!r}")
    size = record.get("size") if isinstance(record, dict) else None
    digest = record.get("sha256") if isinstance(record, dict) else None
    if type(size) is not int or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise CheckpointCorruptError(path, f"{MANIFEST_NAME} has no size and hash for {name}")
    return FileRecord(size_bytes=size, sha256=digest)
