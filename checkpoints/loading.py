"""Read a checkpoint back, after checking that it is whole. Never writes, never unpickles."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from checkpoints.contents import CheckpointContents, Tensors
from checkpoints.errors import CheckpointCorruptError, CheckpointNotFoundError
from checkpoints.listing import list_checkpoints
from checkpoints.manifest import (
    DOCUMENT_SUFFIX,
    TENSOR_SUFFIX,
    Manifest,
    check_sizes,
    read_manifest,
)
from checkpoints.reading import read_document, read_file
from checkpoints.tensors import TensorFileError, parse


def load(
    path: Path, *, verify: bool = True, tensors: Collection[str] | None = None
) -> CheckpointContents:
    """Load the checkpoint at ``path``.

    Args:
        path: Its directory, ``<run>/<step>``.
        verify: Compare the hash of every file that is read. Sizes are always compared.
        tensors: Stems of the tensor files wanted (a warm start needs ``("model",)``); ``None`` for
            all. Documents are always loaded.

    Returns:
        The contents; arrays are torch tensors on the CPU, packed, and names that shared one array
        are one tensor again.

    Raises:
        CheckpointNotFoundError: If there is nothing at ``path``, or no file for a wanted stem.
        CheckpointCorruptError: If it is not whole.
        CheckpointIncompatibleError: If a newer version of this program wrote it.
    """
    manifest = _manifest(path)
    check_sizes(path, manifest)
    stems = _stems(manifest, TENSOR_SUFFIX)
    missing = sorted(set(tensors or ()) - set(stems))
    if missing:
        raise CheckpointNotFoundError(path, f"holds no {missing}, it holds {stems}")
    wanted = stems if tensors is None else [stem for stem in stems if stem in tensors]
    return CheckpointContents(
        step=manifest.step,
        tensors={s: _tensors(path, s, manifest, verify=verify) for s in wanted},
        documents={
            s: read_document(path, s, manifest, verify=verify)
            for s in _stems(manifest, DOCUMENT_SUFFIX)
        },
        facts=manifest.facts,
    )


def _manifest(path: Path) -> Manifest:
    """Read the manifest; if ``path`` is a run, say which of its checkpoints could be meant."""
    try:
        return read_manifest(path)
    except CheckpointCorruptError as error:
        entries, _ = list_checkpoints(path)
        if not entries:
            raise
        raise CheckpointNotFoundError(
            path, f"is a run, not a checkpoint; its newest checkpoint is {entries[-1].path}"
        ) from error


def _stems(manifest: Manifest, suffix: str) -> list[str]:
    return [name.removesuffix(suffix) for name in manifest.files if name.endswith(suffix)]


def _tensors(path: Path, stem: str, manifest: Manifest, *, verify: bool) -> Tensors:
    name = stem + TENSOR_SUFFIX
    try:
        return parse(read_file(path, name, manifest, verify=verify))
    except TensorFileError as error:
        raise CheckpointCorruptError(path, f"{name} {error}") from error
