"""The settings of evaluation rounds that clients of role ``eval`` play. Imports no NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from royale_client.wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """Evaluation rounds, played by clients with ``--role eval``."""

    against: tuple[str, ...] = ("heuristic",)
    """Battles: whom the policy plays, one round after another; scripted bots of the client by name,
    or directories of checkpoints of the same policy, which are recognised by a ``/`` in them."""
    battles: int = 1000
    """Battles of a round, an even number: every deal is played from both sides."""
    episodes: int = 100
    """Episodes of a round in environments in which the policy plays alone, at least 2."""
    actions: Literal["auto", "likeliest", "drawn"] = "auto"
    """What policies do: their ``likeliest`` actions, or ``drawn`` ones as in training. ``auto``:
    likeliest where the policy plays alone, drawn in battles."""

    def __post_init__(self) -> None:
        problems = []
        if self.battles < 2 or self.battles % 2:
            problems.append(f"battles: got {self.battles}, expected an even number of at least 2")
        if self.episodes < 2:
            problems.append(f"episodes: got {self.episodes}, expected at least 2")
        if not self.against or len(set(self.against)) < len(self.against):
            got = " ".join(self.against) or "nobody"
            problems.append(f"against: got {got}, expected each opponent once")
        problems += [
            f"against: got {name!r}, expected the name of a bot or a directory"
            for name in self.against
            if not (name and name.isprintable())
        ]
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def is_greedy_alone(self) -> bool:
        """Whether the policy takes its likeliest actions where it plays alone."""
        return self.actions != "drawn"

    @property
    def is_greedy_in_battles(self) -> bool:
        """Whether policies take their likeliest actions in battles."""
        return self.actions == "likeliest"

    @property
    def bots(self) -> tuple[str, ...]:
        """The opponents that the client must be able to play."""
        return tuple(name for name in self.against if not is_checkpoint(name))

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The opponents that the server plays."""
        return tuple(name for name in self.against if is_checkpoint(name))


def is_checkpoint(name: str) -> bool:
    """Whether an opponent is a directory, and no bot."""
    return "/" in name
