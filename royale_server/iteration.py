"""One iteration in numbers: where its time went, and its row of ``metrics.jsonl``.

Pure: times are given, nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from royale_client.wire.seating import Player
from royale_server.model.engine import Learned
from royale_server.scheduler import FrameLedger

OPPONENTS = tuple(player.value for player in Player)
"""Whom the learner may play against: itself, a snapshot of its past, a bot."""


@dataclass(frozen=True, slots=True, order=True)
class EndedEpisode:
    """A training episode that ended. Episodes of a run with fixed rounds are ordered by this."""

    request: int
    """Number of the request that told of its end; with fixed rounds, the number of the round."""
    slot: int
    episode_return: float
    length: int
    opponent: str = ""
    """Who sat in the other seats: one of ``OPPONENTS``; empty where there are none."""


class IterationClock:
    """Sums up where the time of an iteration goes, in seconds."""

    def __init__(self, now: float) -> None:
        self._opened_at = now
        self._closed_at = now
        self.infer_s = 0.0
        self.num_batches = 0
        self.num_rows = 0

    def opened(self, now: float) -> None:
        """Collecting begins."""
        self._opened_at = now
        self.infer_s = 0.0
        self.num_batches = 0
        self.num_rows = 0

    def inferred(self, duration_s: float, rows: int) -> None:
        """A batch was inferred."""
        self.infer_s += duration_s
        self.num_batches += 1
        self.num_rows += rows

    def closed(self, now: float) -> None:
        """The learn step begins."""
        self._closed_at = now

    def collect_s(self, now: float) -> float:
        """Time from the opening to the learn step, or to now while open."""
        end = self._closed_at if self._closed_at > self._opened_at else now
        return end - self._opened_at

    def total_s(self, now: float) -> float:
        """Time since the opening."""
        return now - self._opened_at


def metrics_row(
    *,
    iteration: int,
    attempt: int,
    result: Learned,
    collected: int,
    episodes: Sequence[EndedEpisode],
    recent_returns: Collection[float],
    episodes_total: int,
    env_steps: int,
    ledger: FrameLedger,
    clients: int,
    step_bytes: int,
    clock: IterationClock,
    now: float,
) -> dict[str, Any]:
    """The row of one iteration; keys are declared in ``monitoring/declarations.py``."""
    collect_s, total_s = clock.collect_s(now), clock.total_s(now)
    row: dict[str, Any] = {
        "run/iteration": iteration,
        "run/step": result.global_step,
        "run/env_steps": env_steps,
        "run/attempt": attempt,
        "run/policy_version": result.policy_version,
        "run/frames": collected,
        "throughput/collect_frames_per_s": _rate(collected, collect_s),
        "throughput/frames_per_s": _rate(collected, total_s),
        "throughput/rows_per_batch": _rate(clock.num_rows, clock.num_batches),
        "throughput/bytes_per_frame": _rate(step_bytes, collected),
        "time/iteration_s": total_s,
        "time/collect_s": collect_s,
        "time/infer_s": clock.infer_s,
        "time/learn_s": result.duration_s,
        "server/clients": clients,
        "server/discarded_frames": ledger.discarded_total,
        **{f"server/discarded_{d.value}": n for d, n in ledger.given_up.items()},
        "server/no_state_frames": ledger.no_state_total,
        "server/opponent_frames": ledger.others_total,
        "server/conservation_error": ledger.conservation_error,
        **result.metrics,
    }
    if episodes:
        row |= _summary("env/return", [episode.episode_return for episode in episodes])
        row |= _summary("env/length", [episode.length for episode in episodes])
        row["env/episodes"] = len(episodes)
    for opponent in OPPONENTS:
        against = [e.episode_return for e in episodes if e.opponent == opponent]
        if against:
            row[f"selfplay/episodes_{opponent}"] = len(against)
            row[f"selfplay/return_{opponent}_mean"] = float(np.mean(against))
    if recent_returns:
        row["env/episodes_total"] = episodes_total
        row["env/return_mean_100"] = sum(recent_returns) / len(recent_returns)
    return row


def _summary(key: str, numbers: list[float] | list[int]) -> dict[str, float]:
    array = np.asarray(numbers, np.float64)
    return {
        f"{key}_mean": float(array.mean()),
        f"{key}_min": float(array.min()),
        f"{key}_max": float(array.max()),
    }


def _rate(amount: float, per: float) -> float:
    return amount / per if per > 0 else 0.0
