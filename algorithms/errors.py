"""What algorithms raise on purpose, as a branch of the product's exception tree.

::

    RoyaleError
    ├── RestoreError    a checkpoint's tensors or counters do not fit this policy or algorithm
    ├── UpdateError     learning cannot go on: the numbers are no longer finite
    └── LearnAborted    a learn step was asked to stop and has undone what it did

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from royale_client.wire.errors import RoyaleError


class RestoreError(RoyaleError):
    """What was loaded does not fit; nothing has been changed.

    Args:
        where: What was to be restored, for example ``model, mode except-critic``.
        missing: Names that are needed and were not loaded.
        unexpected: Names that were loaded and have no place.
        reshaped: Sentences ``name: got …, expected …`` about shapes and dtypes.
        other: Further problems as whole sentences.
        remedy: What can be done about it.
    """

    def __init__(
        self,
        where: str,
        *,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        reshaped: Sequence[str] = (),
        other: Sequence[str] = (),
        remedy: str = "",
    ) -> None:
        self.where = where
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.reshaped = tuple(reshaped)
        self.other = tuple(other)
        self.remedy = remedy
        lines = [f"missing: {name}" for name in missing]
        lines += [f"unexpected: {name}" for name in unexpected]
        lines += [f"reshaped: {sentence}" for sentence in reshaped]
        lines += other
        lines += [remedy] if remedy else []
        super().__init__(f"cannot restore {where}:\n  " + "\n  ".join(lines))


class UpdateError(RoyaleError):
    """Learning cannot go on; the weights are those before the learn step that failed."""


class LearnAborted(RoyaleError):  # noqa: N818 - nothing went wrong: somebody asked for it
    """A learn step stopped because it was asked to; everything is as before the step."""
