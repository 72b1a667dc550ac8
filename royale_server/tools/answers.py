"""How a subcommand of ``royale`` ends: its exit code, and refusals as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from royale_client.wire.errors import RoyaleError


class ToolCode(IntEnum):
    """What the exit status of ``royale`` tells the caller."""

    OK = 0
    """Done; whatever was checked holds."""
    FAILED = 1
    """A check failed, or could not be carried out."""
    USAGE = 2
    """The command is wrong, or what it names is not there or not unique."""
    NOT_LIVE = 3
    """Nothing works on the run."""
    REFUSED = 4
    """Understood, and not done, since it could cost somebody a run."""
    INTERRUPTED = 130
    """Ctrl-C."""


class ToolError(RoyaleError):
    """A subcommand that ends early.

    Args:
        code: Its exit code.
        sentence: Why.
        details: Further lines.
    """

    def __init__(self, code: ToolCode, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.details = tuple(details)
