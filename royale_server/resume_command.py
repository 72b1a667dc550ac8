"""The command line that continues a run: the one it was started with, but for how it starts.

Text in, text out; so that what the console prints at the end can be typed as it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from royale_server.shown_words import without_secrets

PROGRAM = "royale-server"
_BARE = frozenset(
    f"--{no}{switch}"
    for switch in ("resume", "overwrite", "allow-identity-drift", "allow-dirty")
    for no in ("", "no-")
)
_WITH_VALUE = frozenset(
    {"--exp-name", "--address-file", "--algo.policy-checkpoint-path", "--algo.restore"}
)


def resume_command(
    arguments: Sequence[str], *, exp_name: str, until_timesteps: int | None = None
) -> str:
    """Return the command that resumes a run with its settings; what looks secret is left out of it.

    Args:
        arguments: What the run was started with, the program's name left out.
        exp_name: Name of the run.
        until_timesteps: Frames to go on to, for a run that has reached its limit; None keeps
            whatever limit it was given.
    """
    dropped = _WITH_VALUE | ({"--until-timesteps"} if until_timesteps is not None else set())
    kept: list[str] = []
    skip_next = False
    for word in without_secrets(arguments):
        flag, equals, _ = word.replace("_", "-").partition("=")
        if skip_next:
            skip_next = False
        elif flag in dropped:
            skip_next = not equals
        elif flag not in _BARE:
            kept.append(word)
    more = [] if until_timesteps is None else ["--until-timesteps", str(until_timesteps)]
    return shlex.join([PROGRAM, *kept, "--exp-name", exp_name, "--resume", *more])
