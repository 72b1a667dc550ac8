"""Read a file of a checkpoint, checked against its manifest. Imports no torch, never unpickles."""

from __future__ import annotations

import hashlib
from pathlib import Path

from checkpoints.documents import Document, DocumentError, decode
from checkpoints.errors import CheckpointCorruptError, CheckpointNotFoundError
from checkpoints.manifest import DOCUMENT_SUFFIX, Manifest, check_hash, read_manifest


def read_document(
    path: Path, stem: str, manifest: Manifest | None = None, *, verify: bool = True
) -> Document:
    """Read one document of the checkpoint at ``path``, and nothing else of it.

    Args:
        path: Directory of the checkpoint.
        stem: Name of the document's file, without its ending.
        manifest: Its manifest, if it was read before.
        verify: Compare the hash.

    Raises:
        CheckpointNotFoundError: If there is no checkpoint or no such document.
        CheckpointCorruptError: If the file is not what the manifest says.
        CheckpointIncompatibleError: If a newer version of this program wrote it.
    """
    manifest = manifest or read_manifest(path)
    name = stem + DOCUMENT_SUFFIX
    if name not in manifest.files:
        raise CheckpointNotFoundError(path, f"holds no {name}")
    try:
        return decode(read_file(path, name, manifest, verify=verify))
    except DocumentError as error:
        raise CheckpointCorruptError(path, f"{name} {error}") from error


def read_file(path: Path, name: str, manifest: Manifest, *, verify: bool) -> bytes:
    """Read a file once, so that the bytes checked are the bytes used; raises as above."""
    try:
        data = (path / name).read_bytes()
    except OSError as error:
        raise CheckpointCorruptError(path, f"cannot read {name}: {error}") from error
    if verify:
        check_hash(path, name, hashlib.sha256(data).hexdigest(), manifest.files[name])
    return data
