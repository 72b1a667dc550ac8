"""The exit codes of ``royale-server``: scripts and supervisors rely on them.

A code never changes its meaning.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the server's exit status tells the caller."""

    FINISHED = 0
    """The run reached its limit, or its operator stopped it with a checkpoint."""
    CRASHED = 1
    """An unexpected error; the log holds its traceback."""
    REFUSED = 2
    """The command, its configuration or its run directory was refused, or the run was halted."""
    TERMINATED = 3
    """SIGTERM ended the run and a checkpoint was written."""
    INTERRUPTED = 130
    """Interrupted before this attempt had saved anything."""


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.FINISHED: "finished, or stopped by its operator with a checkpoint",
    ExitCode.CRASHED: "crashed; the log has the traceback",
    ExitCode.REFUSED: "refused (command, configuration, run directory) or halted",
    ExitCode.TERMINATED: "ended by SIGTERM with a checkpoint",
    ExitCode.INTERRUPTED: "interrupted with nothing saved by this attempt",
}
