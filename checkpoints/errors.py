"""What can go wrong with a checkpoint.

::

    RoyaleError
    └── CheckpointError                                  has ``path``
        ├── CheckpointNotFoundError (FileNotFoundError)  nothing there; ``skipped`` names torn ones
        ├── CheckpointCorruptError                       there, but not whole
        ├── CheckpointIncompatibleError                  whole, but not for this program
        ├── CheckpointContentError (TypeError)           cannot be expressed in the format
        └── CheckpointWriteError (OSError)               the disk refused it; older ones are safe
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from royale_client.wire.errors import RoyaleError

if TYPE_CHECKING:
    from checkpoints.listing import Skipped


class CheckpointError(RoyaleError):
    """Root of everything this package raises on purpose.

    Args:
        path: Checkpoint, run directory or file it is about.
        reason: What is wrong there, and what to do about it.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at the path, or none below it.

    Args:
        path: Where one was expected.
        reason: What was looked for, and what to do.
        skipped: Directories that look like checkpoints and are not whole.
    """

    def __init__(self, path: Path, reason: str, skipped: Sequence[Skipped] = ()) -> None:
        super().__init__(path, reason)
        self.skipped = tuple(skipped)


class CheckpointCorruptError(CheckpointError):
    """A directory that should be a checkpoint is torn, altered or not one at all."""


class CheckpointIncompatibleError(CheckpointError):
    """A whole checkpoint that this program cannot use."""


class CheckpointContentError(CheckpointError, TypeError):
    """Something in the contents has no form in safetensors or JSON; nothing was written."""


class CheckpointWriteError(CheckpointError, OSError):
    """The operating system refused a write; whatever was saved before is untouched."""
