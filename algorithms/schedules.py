"""Schedules of learning rates and coefficients, over frames with an explicit horizon.

A schedule is a pure function of the number of stored frames, never of a count of calls: after a
resume it continues where the counters are. Imports no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

ScheduleKind: TypeAlias = Literal["constant", "linear", "cosine"]


class Schedule(Protocol):
    """A number that depends on how many frames have been stored."""

    def value(self, frames: int) -> float:
        """Return the number after ``frames`` stored frames."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number at all times."""

    constant: float
    """The number."""

    def value(self, frames: int) -> float:
        """Return the number, whatever ``frames`` is."""
        return self.constant


@dataclass(frozen=True, slots=True)
class _Ramp:
    """From ``start`` at frame 0 to ``end`` at the horizon, and ``end`` for ever after.

    Raises:
        ValueError: If the horizon is not positive or an end is not finite.
    """

    start: float
    """Value at frame 0 and before."""

    end: float
    """Value at the horizon and after; reached exactly."""

    horizon_frames: int
    """Stored frames after which ``end`` holds."""

    def __post_init__(self) -> None:
        if self.horizon_frames <= 0:
            raise ValueError(
                f"{type(self).__name__}: horizon_frames must be positive, "
                f"got {self.horizon_frames}; use a constant schedule for no change"
            )
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise ValueError(
                f"{type(self).__name__}: start and end must be finite, "
                f"got {self.start} and {self.end}"
            )

    def _progress(self, frames: int) -> float:
        return min(max(frames / self.horizon_frames, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Linear(_Ramp):
    """A straight line from ``start`` to ``end``."""

    def value(self, frames: int) -> float:
        """Return the number after ``frames`` stored frames."""
        progress = self._progress(frames)
        return self.start * (1.0 - progress) + self.end * progress


@dataclass(frozen=True, slots=True)
class Cosine(_Ramp):
    """Half a cosine wave from ``start`` to ``end``: flat at both ends."""

    def value(self, frames: int) -> float:
        """Return the number after ``frames`` stored frames."""
        progress = 0.5 * (1.0 - math.cos(math.pi * self._progress(frames)))
        return self.start * (1.0 - progress) + self.end * progress


@dataclass(frozen=True, slots=True)
class Geometric(_Ramp):
    """From ``start`` to ``end`` by equal factors for equal numbers of frames; both above 0."""

    def __post_init__(self) -> None:
        _Ramp.__post_init__(self)
        if not (self.start > 0.0 and self.end > 0.0):
            raise ValueError(
                f"Geometric: start and end must be positive, got {self.start} and {self.end}"
            )

    def value(self, frames: int) -> float:
        """Return the number after ``frames`` stored frames."""
        progress = self._progress(frames)
        value: float = self.start ** (1.0 - progress) * self.end**progress
        return value


def make_schedule(kind: ScheduleKind, start: float, end: float, horizon_frames: int) -> Schedule:
    """Make the schedule that a configuration names.

    Args:
        kind: ``constant`` keeps ``start``; the others go to ``end``.
        start: Value at frame 0.
        end: Value from the horizon on.
        horizon_frames: Stored frames from ``start`` to ``end``.

    Returns:
        The schedule.

    Raises:
        ValueError: If the kind is unknown, the horizon not positive or an end not finite.
    """
    match kind:
        case "constant":
            return Constant(start)
        case "linear":
            return Linear(start, end, horizon_frames)
        case "cosine":
            return Cosine(start, end, horizon_frames)
        case _:
            raise ValueError(f"unknown schedule {kind!r}; known are constant, linear, cosine")
