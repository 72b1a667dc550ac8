"""Where the time of a client goes: environment, waiting for actions, the rest; and why it waits.

Everything is counted per request and in durations; wall-clock times of two machines are never
compared. Percentiles come from the newest 4,096 requests. This module never reads a clock itself
and writes nothing: it returns lines, its caller logs them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from royale_client.wire.messages import Busy

_WINDOW: Final = 4096
_NOTE_INTERVAL_S: Final = 5.0
_SILENCE_S: Final = 10.0
_PHASES: Final = {"learn": "learning", "collect": "collecting", "infer": "computing actions"}


class DurationWindow:
    """The newest durations of one kind, in seconds, and no more than a fixed number of them."""

    def __init__(self, size: int = _WINDOW) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, duration_s: float) -> None:
        """Remember one duration, forgetting the oldest when the window is full."""
        self._values.append(duration_s)

    def percentiles_ms(self) -> tuple[float, float, float] | None:
        """Return the 50th, 95th and 99th percentile in milliseconds, or None without any value."""
        if not self._values:
            return None
        p50, p95, p99 = (float(p) for p in np.percentile(self._values, (50, 95, 99)) * 1e3)
        return p50, p95, p99


@dataclass(slots=True)
class _Totals:
    """Sums over a span of time."""

    frames: int = 0
    requests: int = 0
    episodes: int = 0
    return_sum: float = 0.0
    env_s: float = 0.0
    waiting_s: float = 0.0

    def since(self, earlier: _Totals) -> _Totals:
        """Return what was added after ``earlier`` was taken."""
        return _Totals(
            frames=self.frames - earlier.frames,
            requests=self.requests - earlier.requests,
            episodes=self.episodes - earlier.episodes,
            return_sum=self.return_sum - earlier.return_sum,
            env_s=self.env_s - earlier.env_s,
            waiting_s=self.waiting_s - earlier.waiting_s,
        )

    def copy(self) -> _Totals:
        """Return an independent copy."""
        return self.since(_Totals())


@dataclass(slots=True)
class Timings:
    """Collects durations and counts of a client and writes them as one line."""

    started_s: float
    """Monotonic time at which the client began."""
    interval_s: float = 30.0
    """Seconds between two summaries."""
    totals: _Totals = field(default_factory=_Totals)
    answers: DurationWindow = field(default_factory=DurationWindow)
    env_steps: DurationWindow = field(default_factory=DurationWindow)
    _reported: _Totals = field(default_factory=_Totals)
    _reported_s: float = 0.0

    def __post_init__(self) -> None:
        """Start the first interval."""
        self._reported_s = self.started_s

    def add_turn(self, *, frames: int, env_s: float) -> None:
        """Count one step of a group's environments that carried out ``frames`` actions."""
        totals = self.totals
        totals.frames += frames
        totals.requests += 1
        totals.env_s += env_s
        self.env_steps.add(env_s)

    def add_episode(self, episode_return: float) -> None:
        """Count one finished episode."""
        self.totals.episodes += 1
        self.totals.return_sum += episode_return

    def add_wait(self, duration_s: float) -> None:
        """Count time in which the client had nothing to do but wait for the server."""
        self.totals.waiting_s += duration_s

    def is_due(self, now_s: float) -> bool:
        """Say whether the interval since the last summary is over."""
        return now_s - self._reported_s >= self.interval_s

    def summary(self, now_s: float) -> str:
        """Return the line for the time since the last summary, and start the next interval."""
        line = self._line(self.totals.since(self._reported), now_s - self._reported_s)
        self._reported, self._reported_s = self.totals.copy(), now_s
        return line

    def overall(self, now_s: float) -> str:
        """Return the line for the whole life of the client."""
        return self._line(self.totals, now_s - self.started_s)

    def _line(self, span: _Totals, duration_s: float) -> str:
        duration_s = max(duration_s, 1e-9)
        env, waiting = span.env_s / duration_s, span.waiting_s / duration_s
        parts = [
            f"{duration_s:.0f} s: {span.frames:,} frames ({span.frames / duration_s:,.0f}/s)",
            f"environment {env:.0%}, waiting for the server {waiting:.0%}, "
            f"rest {max(0.0, 1 - env - waiting):.0%}",
        ]
        for name, window in (("answer", self.answers), ("env step", self.env_steps)):
            percentiles = window.percentiles_ms()
            if percentiles is not None:
                parts.append("{} p50/p95/p99 {:.2f}/{:.2f}/{:.2f} ms".format(name, *percentiles))
        if span.episodes:
            mean = span.return_sum / span.episodes
            parts.append(f"{span.episodes:,} episodes, mean return {mean:.4g}")
        return "; ".join(parts)


class WaitingNote:
    """Says at most every few seconds what the client waits for."""

    def __init__(self) -> None:
        self._last_s = -np.inf
        self._heard_s = -np.inf

    def busy(self, busy: Busy, now_s: float) -> str | None:
        """Return what the server said about itself, or None if something was said just now."""
        self._heard_s = now_s
        phase = _PHASES.get(busy.phase, busy.phase)
        expected = "" if busy.expected_s is None else f", about {busy.expected_s:.0f} s to go"
        waiting_for = f", for {busy.waiting_for}" if busy.waiting_for else ""
        return self._spaced(now_s, f"{phase} since {busy.since_s:.0f} s{expected}{waiting_for}")

    def silence(self, now_s: float, asked_s: float) -> str | None:
        """Return a note that the server is silent, if it has been for long.

        Args:
            now_s: Monotonic time.
            asked_s: When the oldest open request was sent; 0 if none was.
        """
        if not asked_s or now_s - max(asked_s, self._heard_s) < _SILENCE_S:
            return None
        return self._spaced(now_s, f"no answer since {now_s - asked_s:.0f} s")

    def _spaced(self, now_s: float, note: str) -> str | None:
        if now_s - self._last_s < _NOTE_INTERVAL_S:
            return None
        self._last_s = now_s
        return note
