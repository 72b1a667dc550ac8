"""What the episodes of an iteration add up to, by scope and as clients declare it.

Returns and lengths are of the learner's episodes: of all, of those that were trained on whole, of
one environment id, of one seat. Numbers that environments declare in their ``hello`` keep their
names and are joined as declared. Pure: episodes in, numbers out; knows no environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from algorithms.metric_spec import MetricSpec
from royale_client.wire.episodes import EpisodeMetric, MetricValue
from royale_client.wire.seating import Player

LEARNER = Player.LEARNER.value
OPPONENTS = tuple(player.value for player in Player)
"""Whom the learner may play against: itself, a snapshot of its past, a bot."""

POLICY = "policy/"
"""Declared names that begin with it are keys as they are; all others go below ``env/``."""

STATISTICS = ("mean", "min", "max", "p10", "p90")
TOP = (1, 10)
"""Of counts: how many of the biggest entries a share is taken of."""

MOST_DECLARED = 1024
"""Names that clients of a run may declare together, and environment ids: each is looked for in
every iteration, and kept in every checkpoint."""
_FULL = f"the clients of this run have brought {MOST_DECLARED:,} others"

Z95 = 1.959963984540054
"""Half the width of a two-sided 95 % interval, in standard deviations."""

_NO_EPISODE = "no training episode ended in the iteration"
_ENDED = "training episodes of the learner that ended in the iteration, trained on or not"
_STARTS_SO = "every episode of some environments has the same number"

Numbers: TypeAlias = dict[str, float]

_BEYOND_A_FLOAT = np.errstate(over="ignore", invalid="ignore")
"""Clients may say numbers whose sums no float holds: the row then names them."""


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
    player: str = LEARNER
    """Who played it: one of ``OPPONENTS``."""
    env_id: str = ""
    seat: int | None = None
    """Its seat; None where the environment has one only."""
    is_trained: bool = False
    """Whether every frame of it was stored to be trained on."""
    metrics: Mapping[str, MetricValue] = field(default_factory=dict, compare=False)
    """What the environment says of it, by declared name."""

    @property
    def is_learners(self) -> bool:
        """Whether the policy that learns played it."""
        return self.player == LEARNER


def _summaries(scope: str, whose: str, population: str, absent_when: str) -> tuple[MetricSpec, ...]:
    """Declare the numbers of returns and lengths below a scope."""
    whats = (
        ("return", "reward", "Undiscounted sum of rewards"),
        ("length", "env step", "Steps from reset to end"),
    )
    return (
        *(
            MetricSpec(
                key=f"env/{scope}{name}_{statistic}",
                unit=unit,
                meaning=f"{what}, {statistic} over episodes.",
                statistic=statistic,
                scope=whose,
                population=population,
                absent_when=absent_when,
                may_be_constant=_STARTS_SO,
            )
            for name, unit, what in whats
            for statistic in STATISTICS
        ),
        MetricSpec(
            key=f"env/{scope}episodes",
            unit="episode",
            meaning="Episodes that ended.",
            statistic="sum",
            scope=whose,
            population=population,
            absent_when=absent_when,
            may_be_constant="episodes of one length end in step",
        ),
    )


ENV = (
    *_summaries("", "all", _ENDED, _NO_EPISODE),
    *_summaries(
        "trained/",
        "all",
        "those of them of which every frame was stored to be trained on",
        "no such episode ended in the iteration",
    ),
    *_summaries(
        "id/<id>/",
        "one environment id",
        "those of them in one environment",
        "none ended in it in the iteration, or only one environment id has taken part",
    ),
    *_summaries(
        "seat/<n>/",
        "one seat",
        "those of them in one seat",
        "none ended in it in the iteration, or the environments have one seat",
    ),
    MetricSpec(
        key="env/episodes_total",
        unit="episode",
        meaning="Episodes that ended since the run began.",
        statistic="sum",
        population="training episodes of the learner, trained on or not",
        absent_when="no training episode has ended yet",
    ),
    MetricSpec(
        key="env/return_mean_100",
        unit="reward",
        meaning="Undiscounted sum of rewards, mean over the last 100 episodes (fewer at first).",
        population="the last training episodes of the learner that ended, whatever the iteration",
        absent_when="no training episode has ended yet",
        may_be_constant=_STARTS_SO,
    ),
)

_DECLARED = "as the client declares it in its hello"
DECLARED = tuple(
    MetricSpec(
        key=f"{group}/<name>",
        unit=_DECLARED,
        meaning="What an environment says of its episodes. A mean is the mean over episodes, a "
        "ratio the sum of numerators by the sum of denominators. A share is of the episodes of "
        "all players, with its 95 % interval (Wilson) in _ci95_lo and _ci95_hi. Of counts and "
        "categories it is the share that the biggest entry and the ten biggest hold, in "
        "_top1_share and _top10_share.",
        statistic=_DECLARED,
        population=f"{_DECLARED}; learner's episodes that ended in the iteration",
        absent_when="no episode that says so ended in the iteration",
        may_be_constant="what an environment says is its own affair",
    )
    for group in ("env", "policy")
)

_OPPONENT_WORDS = {
    "learner": "itself",
    "snapshot": "snapshots of its past",
    "scripted": "scripted bots",
}

SELFPLAY = tuple(
    spec
    for opponent, whom in _OPPONENT_WORDS.items()
    for spec in (
        MetricSpec(
            key=f"selfplay/episodes_{opponent}",
            unit="episode",
            meaning=f"Episodes of the learner's seats that ended against {whom}.",
            statistic="sum",
            population=_ENDED,
            absent_when="no such episode ended in the iteration",
            may_be_constant="where few battles end in an iteration it is often the same few",
        ),
        MetricSpec(
            key=f"selfplay/return_{opponent}_mean",
            unit="reward",
            meaning=f"Undiscounted sum of rewards of the learner's seats against {whom}, mean over "
            "episodes.",
            population=_ENDED,
            absent_when="no such episode ended in the iteration",
            may_be_constant="against itself a game of which one wins what the other loses gives 0",
        ),
    )
)


class EpisodeDeclarations:
    """What the clients of a run declare of their episodes.

    Args:
        declared: What earlier attempts knew, as ``to_data`` returned it.
    """

    def __init__(self, declared: Iterable[Sequence[str]] = ()) -> None:
        self._aggregations = {name: aggregation for name, aggregation in declared}
        self._left_out: set[tuple[str, str]] = set()  # environment id and name
        self.env_ids: dict[str, None] = {}
        """Environment ids that have taken part, in order."""

    def declare(self, env_id: str, metrics: Iterable[EpisodeMetric]) -> list[str]:
        """Take what a client declares; return a sentence on each name that is taken otherwise."""
        if env_id not in self.env_ids and len(self.env_ids) >= MOST_DECLARED:
            return [f"environment {env_id} is left out of the metrics rows: {_FULL}"]
        self.env_ids[env_id] = None
        problems, beyond = [], []
        for metric in metrics:
            if metric.name not in self._aggregations and len(self._aggregations) >= MOST_DECLARED:
                beyond.append(metric.name)
                continue
            known = self._aggregations.setdefault(metric.name, metric.aggregation)
            if known != metric.aggregation:
                self._left_out.add((env_id, metric.name))
                problems.append(
                    f"episode metric {metric.name!r} of {env_id} is declared as a "
                    f"{metric.aggregation}, and as a {known} by an earlier client: it is left out "
                    "of the metrics rows; rename one of them"
                )
        if beyond:
            problems.append(
                f"{len(beyond)} episode metrics of {env_id}, such as {beyond[0]!r}, are left out "
                f"of the metrics rows: {_FULL}"
            )
        return problems

    def kept(self, env_id: str, metrics: Mapping[str, MetricValue]) -> Mapping[str, MetricValue]:
        """Return what rows may tell of an episode: all but names declared otherwise before."""
        if env_id not in self.env_ids:
            return {}
        if not self._left_out:
            return metrics
        return {n: value for n, value in metrics.items() if (env_id, n) not in self._left_out}

    def to_data(self) -> list[list[str]]:
        """Return name and aggregation of everything declared, for a checkpoint."""
        return [[name, aggregation] for name, aggregation in self._aggregations.items()]

    def numbers(self, episodes: Sequence[EndedEpisode]) -> Numbers:
        """Join what environments say of an iteration's episodes, as it was declared."""
        of_all = [episode.metrics for episode in episodes]
        of_learner = [episode.metrics for episode in episodes if episode.is_learners]
        numbers: Numbers = {}
        for name, aggregation in self._aggregations.items():
            told = of_all if aggregation == "share" else of_learner
            given = [metrics[name] for metrics in told if name in metrics]
            if given:
                numbers |= joined(declared_key(name), aggregation, given)
        return numbers


def declared_key(name: str) -> str:
    """Return the key of a metric that a client declares."""
    plain = re.sub(r"[^A-Za-z0-9_.:+/-]", "_", name)
    return plain if plain.startswith(POLICY) else f"env/{plain}"


@_BEYOND_A_FLOAT
def joined(key: str, aggregation: str, values: Sequence[MetricValue]) -> Numbers:
    """Join what several episodes say.

    Args:
        key: Of the result.
        aggregation: One of ``wire.episodes.AGGREGATIONS``.
        values: In its form; at least one. However large, they end no run.

    Returns:
        One or several keys that begin with ``key``; none where nothing could have happened. What
        is beyond a float is infinite, or no number.
    """
    if aggregation == "mean":
        return {key: _sum(cast(Sequence[float], values)) / len(values)}
    if aggregation in ("ratio", "share"):
        part, whole = map(_sum, zip(*cast(Sequence[Sequence[float]], values), strict=True))
        if not whole:
            return {}
        if aggregation == "ratio":
            return {key: part / whole}
        low, high = wilson_interval(part, whole)
        return {key: part / whole, f"{key}_ci95_lo": low, f"{key}_ci95_hi": high}
    return _top_shares(key, _counts(aggregation, values))


def _sum(values: Sequence[float]) -> float:
    """Add up exactly; what is beyond a float becomes infinite."""
    try:
        return math.fsum(values)
    except OverflowError:
        return sum(values)


def wilson_interval(successes: float, trials: float) -> tuple[float, float]:
    """Return the 95 % interval of a share.

    Args:
        successes: From 0 to ``trials``.
        trials: Above 0.

    Source:
        Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    share, z2 = successes / trials, Z95**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = share * (1 - share) / trials + z2 / trials / trials / 4
    half = Z95 / (1 + z2 / trials) * math.sqrt(max(0.0, spread))
    return middle - half, middle + half


def _counts(aggregation: str, values: Sequence[MetricValue]) -> np.ndarray[Any, np.dtype[Any]]:
    """Add up vectors of counts, or count what occurred; vectors may differ in length."""
    rows = [np.asarray(value, np.float64) for value in values]
    if aggregation == "categories":
        return np.unique(np.concatenate(rows), return_counts=True)[1]
    total = np.zeros(max(len(row) for row in rows))
    for row in rows:
        total[: len(row)] += row
    return total


def _top_shares(key: str, counts: np.ndarray[Any, np.dtype[Any]]) -> Numbers:
    total = float(counts.sum())
    if not total:
        return {}
    ordered = np.sort(counts)
    return {f"{key}_top{k}_share": float(ordered[-k:].sum()) / total for k in TOP}


@_BEYOND_A_FLOAT
def episode_numbers(episodes: Sequence[EndedEpisode], env_ids: Collection[str]) -> Numbers:
    """Return what is declared in ``ENV`` and ``SELFPLAY`` of an iteration's episodes alone.

    Args:
        episodes: Of all players.
        env_ids: Environment ids that have taken part in the run.
    """
    learners = [episode for episode in episodes if episode.is_learners]
    numbers = _summary("env/", learners)
    numbers |= _summary("env/trained/", [e for e in learners if e.is_trained])
    if len(env_ids) > 1:
        for env_id in env_ids:
            of_id = [e for e in learners if e.env_id == env_id]
            numbers |= _summary(declared_key(f"id/{env_id}/"), of_id)
    for seat in sorted({e.seat for e in learners if e.seat is not None}):
        numbers |= _summary(f"env/seat/{seat}/", [e for e in learners if e.seat == seat])
    for opponent in OPPONENTS:
        against = [e.episode_return for e in learners if e.opponent == opponent]
        if against:
            numbers[f"selfplay/episodes_{opponent}"] = len(against)
            numbers[f"selfplay/return_{opponent}_mean"] = float(np.mean(against))
    return numbers


def _summary(prefix: str, episodes: Sequence[EndedEpisode]) -> Numbers:
    if not episodes:
        return {}
    numbers = _spread(f"{prefix}return", [episode.episode_return for episode in episodes])
    numbers |= _spread(f"{prefix}length", [episode.length for episode in episodes])
    return {**numbers, f"{prefix}episodes": len(episodes)}


def _spread(key: str, values: list[float] | list[int]) -> Numbers:
    array = np.asarray(values, np.float64)
    low, high = np.percentile(array, (10, 90)).tolist()
    spread = (float(array.mean()), float(array.min()), float(array.max()), low, high)
    return {f"{key}_{name}": value for name, value in zip(STATISTICS, spread, strict=True)}
