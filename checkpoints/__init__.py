"""Checkpoints: named tensors and JSON documents of one step, in a directory whole or absent.

Knows the format, how to publish it atomically, how to verify it, which one is the newest and which
may go. Never knows an algorithm, a policy or an environment, never writes or reads pickle, never
decides when to save.

::

    <run>/<step>/model.safetensors      named tensors, one file a stem
                 optimizer.safetensors
                 state.json             documents, one file a stem
                 rng.json
                 manifest.json          written last: step, sizes, SHA-256, facts

Importing this package is cheap; torch is loaded with ``save``, ``load``, ``check_saveable`` and
``copy_contents``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from checkpoints.contents import CheckpointContents
from checkpoints.disk import sync_directory
from checkpoints.errors import (
    CheckpointContentError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointIncompatibleError,
    CheckpointNotFoundError,
    CheckpointWriteError,
)
from checkpoints.listing import CheckpointEntry, Skipped, list_checkpoints, list_steps, newest
from checkpoints.manifest import FORMAT_VERSION, FileRecord, Manifest, read_manifest, verify
from checkpoints.reading import read_document
from checkpoints.retention import (
    best,
    is_pinned,
    pin,
    prune,
    remove_unfinished,
    surplus,
    unpin,
)
from checkpoints.scoring import POLICY_VERSION, enter_facts

if TYPE_CHECKING:
    from checkpoints.loading import load
    from checkpoints.saving import SaveResult, check_saveable, save
    from checkpoints.tensors import copy_contents

__all__ = [
    "FORMAT_VERSION",
    "POLICY_VERSION",
    "CheckpointContentError",
    "CheckpointContents",
    "CheckpointCorruptError",
    "CheckpointEntry",
    "CheckpointError",
    "CheckpointIncompatibleError",
    "CheckpointNotFoundError",
    "CheckpointWriteError",
    "FileRecord",
    "Manifest",
    "SaveResult",
    "Skipped",
    "best",
    "check_saveable",
    "copy_contents",
    "enter_facts",
    "is_pinned",
    "list_checkpoints",
    "list_steps",
    "load",
    "newest",
    "pin",
    "prune",
    "read_document",
    "read_manifest",
    "remove_unfinished",
    "save",
    "surplus",
    "sync_directory",
    "unpin",
    "verify",
]

_NEEDS_TORCH = {
    "SaveResult": "checkpoints.saving",
    "check_saveable": "checkpoints.saving",
    "copy_contents": "checkpoints.tensors",
    "load": "checkpoints.loading",
    "save": "checkpoints.saving",
}


def __getattr__(name: str) -> object:
    """Import what needs torch on first use, so that validating a run's directory does not."""
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_NEEDS_TORCH[name]), name)
    return value
