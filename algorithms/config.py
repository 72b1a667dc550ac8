"""The settings that every learner has, and how settings are checked. Imports no torch.

A configuration is a frozen dataclass. Its ``problems`` method lists everything that is wrong with
it, and the constructor refuses with all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from royale_client.wire.errors import ConfigError

RESTORE_ALL = "all"
"""Restore mode: continue, with optimizer and counters."""

RESTORE_MODEL = "model"
"""Restore mode: all weights, everything else fresh."""

EXCEPT = "except-"
"""Restore modes that begin so take all weights but the named ones."""

ON_RESUME = "on_resume"
"""Key of a field's metadata that says what a resumed run may do with the setting. Without it a
setting of a policy or an algorithm must stay the same, and one of the server may change."""

SAME: Mapping[str, Any] = {ON_RESUME: "same"}
"""Metadata of a setting that decides what is learned: it belongs to the identity of the run."""

SAME_IF_DETERMINISTIC: Mapping[str, Any] = {ON_RESUME: "same if deterministic"}
"""Metadata of a setting that belongs to the identity of deterministic runs only."""

MAY_CHANGE: Mapping[str, Any] = {ON_RESUME: "may change"}
"""Metadata of a setting that a resumed run may change, such as its limit."""

OF_THE_START: Mapping[str, Any] = {ON_RESUME: "not compared"}
"""Metadata of a setting that only says how one start of the server begins."""


def refuse(owner: str, problems: list[str]) -> None:
    """Raise one error that names every problem; do nothing if there is none.

    Args:
        owner: What the settings belong to, for example ``ppo``.
        problems: One sentence each: flag, got, expected.

    Raises:
        ConfigError: If there is a problem.
    """
    if problems:
        raise ConfigError(f"{owner}: " + f"\n{owner}: ".join(problems))


def positive(flag: str, number: float | None) -> list[str]:
    """Return a problem unless the number is absent or finite and above 0."""
    if number is None or (math.isfinite(number) and number > 0):
        return []
    return [f"{flag}: got {number}, expected a positive number"]


def not_negative(flag: str, number: float | None) -> list[str]:
    """Return a problem unless the number is absent or finite and at least 0."""
    if number is None or (math.isfinite(number) and number >= 0):
        return []
    return [f"{flag}: got {number}, expected a number of at least 0"]


def in_unit_interval(flag: str, number: float) -> list[str]:
    """Return a problem unless the number lies in [0, 1]."""
    return [] if 0.0 <= number <= 1.0 else [f"{flag}: got {number}, expected a number in [0, 1]"]


def at_least_one(flag: str, count: int | None) -> list[str]:
    """Return a problem unless the count is absent or at least 1."""
    if count is None or count >= 1:
        return []
    return [f"{flag}: got {count}, expected a whole number of at least 1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """Settings of any algorithm: how much to collect, and when to stop."""

    uid: ClassVar[str]
    """Name of the algorithm on the command line."""

    total_timesteps: int = field(default=1_000_000, metadata=MAY_CHANGE)
    """Stored frames after which the run is finished."""

    frames_per_iteration: int = 2048
    """Stored frames that one learn step waits for. The last batch of an iteration may bring a few
    more; all of them are trained on."""

    stop_at_return: float | None = field(default=None, metadata=MAY_CHANGE)
    """Finish early once the mean return of the last --algo.stop-window training episodes is at
    least this, in the environment's unit of reward. None: train to the end."""

    stop_window: int = field(default=100, metadata=MAY_CHANGE)
    """Number of last finished episodes that --algo.stop-at-return averages over."""

    @property
    def schedule_frames(self) -> int:
        """Stored frames over which schedules run."""
        return self.total_timesteps

    def __post_init__(self) -> None:
        refuse(self.uid, self.problems())

    def reached(self, global_step: int, recent_returns: Sequence[float]) -> str | None:
        """Return which limit a run has reached, as a sentence; ``None`` if none.

        Args:
            global_step: Stored frames since the run began.
            recent_returns: Returns of its last training episodes, oldest first.
        """
        if global_step >= self.total_timesteps:
            return f"{global_step} of {self.total_timesteps} frames collected"
        goal, recent = self.stop_at_return, list(recent_returns)[-self.stop_window :]
        if goal is None or len(recent) < self.stop_window:
            return None
        mean = sum(recent) / len(recent)
        if mean < goal:
            return None
        return f"mean return of the last {len(recent)} episodes is {mean:.1f}, the goal was {goal}"

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        found = at_least_one("--algo.total-timesteps", self.total_timesteps)
        found += at_least_one("--algo.frames-per-iteration", self.frames_per_iteration)
        found += at_least_one("--algo.stop-window", self.stop_window)
        if self.stop_at_return is not None and not math.isfinite(self.stop_at_return):
            found.append(f"--algo.stop-at-return: got {self.stop_at_return}, expected finite")
        return found
