"""The words and flags after ``--`` of ``royale verify-resume``: what is the person's, what is ours.

Text in, text out. What decides where a run lies, where it listens and when it ends is the check's
own; everything else stays as it was typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_BARE = ("resume", "overwrite", "allow-identity-drift", "allow-dirty", "dry-run", "track.enabled")
_WITH_VALUE = (
    *("exp-name", "checkpoint-base-dir", "until-timesteps", "port", "address-file"),
    *("exit-when-idle", "track.tracker", "track.project", "track.mode"),
)
SAVE_EVERY_FLAG = "--save-every"


@dataclass(frozen=True, slots=True)
class OwnWords:
    """A command line without what the check decides."""

    words: tuple[str, ...]
    dropped: tuple[str, ...]
    """What was left out, one flag with its value each."""


def own_words(words: Sequence[str], save_every: int) -> OwnWords:
    """Leave out what the check decides, and have checkpoints written often.

    Args:
        words: What a person would start the server with.
        save_every: Iterations between checkpoints, unless the words say.
    """
    kept: list[str] = []
    dropped: list[str] = []
    takes_next = False
    for word in words:
        flag, equals, _ = word.replace("_", "-").partition("=")
        if takes_next:
            dropped[-1] += f" {word}"
            takes_next = False
        elif _is_bare(flag):
            dropped.append(word)
        elif flag.removeprefix("--") in _WITH_VALUE and flag.startswith("--"):
            dropped.append(word)
            takes_next = not equals
        else:
            kept.append(word)
    flags = {word.replace("_", "-").partition("=")[0] for word in kept}
    more = [] if SAVE_EVERY_FLAG in flags else [SAVE_EVERY_FLAG, str(save_every)]
    return OwnWords((*kept, *more), tuple(dropped))


def _is_bare(flag: str) -> bool:
    """Whether it is one of our switches, on or off: ``--track.no-enabled``, ``--no-resume``."""
    if not flag.startswith("--"):
        return False
    group, dot, name = flag[2:].rpartition(".")
    return group + dot + name.removeprefix("no-") in _BARE
