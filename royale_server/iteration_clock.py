"""Where the time of an iteration goes, and who waited for whom.

Iterations tile the time of a run: each begins where the row of the one before was made. The parts
add up to the whole, with what none of them explains as a part of its own. Pure: times are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from algorithms.metric_spec import OF_ITERATION, MetricSpec

if TYPE_CHECKING:
    from royale_server.scheduler import Group, Infer

BOOTSTRAP, CHECKS, UPDATE = "bootstrap", "checks", "update"
"""Parts of a learn step, as the model thread measures them."""

MOST_LAGS = 100_000
"""Measurements of the event loop that are kept; beyond them the oldest are forgotten."""

LEAST_UPDATE_S = 1.0
"""A shorter learn step says nothing about whether clients keep up with it."""

_BATCHES = "inference batches of the iteration"
_NO_FRAME = "0 where nothing of the kind happened, as in a run without it"


def _time(
    part: str,
    meaning: str,
    *,
    population: str = OF_ITERATION,
    healthy: tuple[float, float] | None = None,
    may_be_constant: str = "",
) -> MetricSpec:
    return MetricSpec(
        key=f"time/{part}",
        unit="s",
        meaning=meaning,
        statistic="sum",
        deterministic=False,
        population=population,
        healthy=healthy,
        may_be_constant=may_be_constant,
    )


TIME = (
    _time("iteration", "From the row before to this one: the sum of the parts below."),
    _time(
        "collection",
        "From the row before to the beginning of the learn step: time/inference, time/storage, "
        "time/wait_frames and time/rest together.",
    ),
    _time(
        "inference",
        "Part: spent in inference; a large share of time/collection means the model is the limit.",
        population=_BATCHES,
    ),
    _time("storage", "Part: the model thread wrote frames while nobody waited for an action."),
    _time(
        "wait_frames",
        "Part: the collection was open and the model had nothing to do: it waited for frames.",
    ),
    _time(
        "rest",
        "Part: collecting stood still, for a checkpoint or because a person paused the run.",
        may_be_constant=_NO_FRAME,
    ),
    _time("bootstrap", "Part: valuing what follows frames that no stored frame follows."),
    _time("checks", "Part: looking for a broken batch before it is learnt from."),
    _time("update", "Part: the algorithm learnt."),
    _time(
        "residual",
        "Part: what is left, as handing work from thread to thread; large means that something "
        "is not measured.",
    ),
)
PARTS = (
    "inference",
    "storage",
    "wait_frames",
    "rest",
    BOOTSTRAP,
    CHECKS,
    UPDATE,
    "residual",
)
"""Names of the keys of ``TIME`` that add up to ``time/iteration``."""

THROUGHPUT = (
    MetricSpec(
        key="throughput/collect_frames_per_s",
        unit="frame/s",
        meaning="Frames of the iteration by the time it took to collect them.",
        deterministic=False,
    ),
    MetricSpec(
        key="throughput/frames_per_s",
        unit="frame/s",
        meaning="Frames of the iteration by its whole time, learning included.",
        deterministic=False,
    ),
    MetricSpec(
        key="throughput/rows_per_batch",
        unit="row",
        meaning="Rows answered by one inference batch: how well requests are gathered.",
        deterministic=False,
        population=_BATCHES,
        may_be_constant="one client with one group asks for the same number of rows every time",
    ),
    MetricSpec(
        key="throughput/learner_wait_frac",
        unit="1",
        meaning="Share of the time in which the learner waited for frames; beside "
        "client/wait_frac it says who waits for whom.",
        deterministic=False,
        population=OF_ITERATION,
    ),
    MetricSpec(
        key="throughput/rollout_capacity_ratio",
        unit="1",
        meaning="Rate at which clients deliver frames while the model waits for them by the rate "
        "at which frames are learnt from; below 1 the data supply is the limit. The server's own "
        "part of a collection is left out: no client can shorten it.",
        deterministic=False,
        population="time/wait_frames and time/update of an iteration that learns for a second or "
        "longer; in shorter ones round trips are measured, not what clients could deliver",
        absent_when="learning took less than a second, or the model never waited",
    ),
)

WAITS = (
    MetricSpec(
        key="client/wait_frac",
        unit="1",
        meaning="Share of the time that clients waited for the server, from a request to its "
        "answer; learn steps included.",
        deterministic=False,
        population="groups of train clients taking part when the row was made",
        healthy=(0.0, 1.0),
        absent_when="no train client takes part",
    ),
    MetricSpec(
        key="client/wait_mean",
        unit="s",
        meaning="From the arrival of a request to its answer.",
        deterministic=False,
        population="requests of train clients answered in the iteration",
        absent_when="no such request was answered in the iteration",
    ),
    MetricSpec(
        key="server/dispatch_gap_max",
        unit="s",
        meaning="Longest time in which nothing was inferred while frames were collected.",
        statistic="max",
        deterministic=False,
        population=_BATCHES,
        absent_when="nothing was inferred in the iteration",
    ),
    *(
        MetricSpec(
            key=f"server/loop_lag_{statistic}",
            unit="s",
            meaning="How late the event loop came to what was due, looked at ten times a second.",
            statistic=statistic,
            deterministic=False,
            population="looks in the iteration",
            healthy=(0.0, 0.1),
            absent_when="no look fell into the iteration (a short one, or --inline)",
            may_be_constant="few looks fall into short iterations, all of them on time",
        )
        for statistic in ("mean", "p99", "max")
    ),
)


class IterationClock:
    """Sums up where the time of an iteration goes, in seconds."""

    def __init__(self, now: float) -> None:
        self._lags: deque[float] = deque(maxlen=MOST_LAGS)
        self.opened(now)

    def opened(self, now: float) -> None:
        """An iteration begins."""
        self._opened_at = self._closed_at = self._inferred_at = now
        self._is_closed = False
        self._infer_s = self._rest_s = self._longest_gap_s = 0.0
        self._rests_at: float | None = None
        self._waited_s = self._answered_after_s = 0.0
        self._num_answered = 0
        self._num_rows = 0
        self._lags.clear()
        self.num_batches = 0

    def inferred(self, batch: Infer, duration_s: float, now: float) -> None:
        """A batch was inferred and its answers are on their way. It ends a rest."""
        self.resumed(now - duration_s)
        self._longest_gap_s = max(self._longest_gap_s, now - duration_s - self._inferred_at)
        self._inferred_at = now
        self._infer_s += duration_s
        self.num_batches += 1
        self._num_rows += len(batch.slots)
        if batch.evaluation:
            return
        opened_at = self._opened_at
        for item in batch.items:
            since = item.request.received_at
            self._answered_after_s += now - since
            self._waited_s += now - max(since, opened_at)
        self._num_answered += len(batch.items)

    def rested(self, now: float) -> None:
        """Collecting stands still."""
        self._rests_at = now

    def resumed(self, now: float) -> None:
        """It goes on, if it stood still."""
        if self._rests_at is not None:
            self._rest_s += now - self._rests_at
            self._inferred_at = now
        self._rests_at = None

    def closed(self, now: float) -> None:
        """The learn step begins."""
        self.resumed(now)
        self._closed_at = now
        self._is_closed = True

    def lagged(self, lag_s: float) -> None:
        """The event loop was looked at."""
        self._lags.append(lag_s)

    def collect_s(self, now: float) -> float:
        """Time from the opening to the learn step, or to now while open."""
        return (self._closed_at if self._is_closed else now) - self._opened_at

    def numbers(
        self,
        *,
        now: float,
        collected: int,
        storage_s: float,
        learning: Mapping[str, float],
        groups: Iterable[Group],
    ) -> dict[str, float]:
        """Return the iteration's numbers under the keys of ``TIME``, ``THROUGHPUT`` and ``WAITS``.

        Args:
            now: When the row is made.
            collected: Frames of the iteration.
            storage_s: See ``time/storage``.
            learning: Seconds of the learn step by ``BOOTSTRAP``, ``CHECKS`` and ``UPDATE``.
            groups: Those of train clients.
        """
        total_s, collect_s = now - self._opened_at, self.collect_s(now)
        wait_s = max(0.0, collect_s - self._infer_s - storage_s - self._rest_s)
        parts = {
            "inference": self._infer_s,
            "storage": storage_s,
            "wait_frames": wait_s,
            "rest": self._rest_s,
            **{part: learning[part] for part in (BOOTSTRAP, CHECKS, UPDATE)},
        }
        residual_s = total_s - sum(parts.values())
        numbers = {f"time/{part}": spent_s for part, spent_s in parts.items()}
        numbers |= {
            "time/iteration": total_s,
            "time/collection": collect_s,
            "time/residual": residual_s,
            "throughput/collect_frames_per_s": _rate(collected, collect_s),
            "throughput/frames_per_s": _rate(collected, total_s),
            "throughput/rows_per_batch": _rate(self._num_rows, self.num_batches),
            "throughput/learner_wait_frac": _rate(wait_s, total_s),
        }
        if learning[UPDATE] >= LEAST_UPDATE_S and wait_s > 0:
            numbers["throughput/rollout_capacity_ratio"] = learning[UPDATE] / wait_s
        return numbers | self._client_numbers(now, total_s, groups) | self._loop_numbers()

    def _client_numbers(
        self, now: float, total_s: float, groups: Iterable[Group]
    ) -> dict[str, float]:
        waited_s, count = self._waited_s, 0
        for group in groups:
            count += 1
            if group.waiting is not None:
                waited_s += now - max(group.waiting.received_at, self._opened_at)
        numbers = {}
        if count:
            numbers["client/wait_frac"] = _rate(waited_s, count * total_s)
        if self._num_answered:
            numbers["client/wait_mean"] = self._answered_after_s / self._num_answered
        return numbers

    def _loop_numbers(self) -> dict[str, float]:
        numbers = {}
        if self.num_batches:
            numbers["server/dispatch_gap_max"] = self._longest_gap_s
        if self._lags:
            lags = np.asarray(self._lags)
            numbers |= {
                "server/loop_lag_mean": float(lags.mean()),
                "server/loop_lag_p99": float(np.percentile(lags, 99)),
                "server/loop_lag_max": float(lags.max()),
            }
        return numbers


def _rate(amount: float, per: float) -> float:
    return amount / per if per > 0 else 0.0
