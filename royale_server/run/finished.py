"""Refuses to resume a run that has nothing left to do. Reads a checkpoint, imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpoints import read_document, read_manifest
from royale_client.wire.errors import ConfigError
from royale_server.config import ServerConfig
from royale_server.resume_command import resume_command

STATE, LEARNER = "state", "learner"
GLOBAL_STEP, RECENT_RETURNS = "global_step", "recent_returns"
"""Where a checkpoint says how far the learner is. The step of the checkpoint itself counts frames
that are stored and not yet learnt from as well."""


class RunFinishedError(ConfigError):
    """The run has reached its limit."""


def refuse_finished(
    config: ServerConfig, checkpoint: Path, *, run_name: str, arguments: Sequence[str]
) -> None:
    """Raise if the run of a checkpoint has reached its limit; it would train too much.

    Args:
        config: Settings of the server.
        checkpoint: The newest whole checkpoint of the run.
        run_name: Name of the run.
        arguments: The command line, the program's name left out.

    Raises:
        RunFinishedError: Why it is finished, and the command that goes on.
        CheckpointError: If the checkpoint cannot be read.
    """
    manifest = read_manifest(checkpoint)
    counters = read_document(checkpoint, STATE, manifest).get(LEARNER) or {}
    learnt = counters.get(GLOBAL_STEP, manifest.step)
    reached = config.reached_limit(learnt, counters.get(RECENT_RETURNS, ()))
    if reached is not None:
        more = resume_command(arguments, exp_name=run_name, until_timesteps=2 * learnt)
        raise RunFinishedError(f"the run is finished: {reached}\ntrain on with: {more}")
