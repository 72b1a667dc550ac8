"""How to read every key of ``metrics.jsonl`` that the server itself writes.

The rows are filled elsewhere; a test holds the two together. The keys of the algorithm are declared
beside the algorithm and joined in here. Knows no run and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from algorithms.metric_spec import MetricSpec

_NO_EPISODE = "no training episode ended in the iteration"
_ENDED = "training episodes of the learner that ended in the iteration, trained on or not"

RUN = (
    MetricSpec(
        key="run/iteration",
        unit="1",
        meaning="Number of this row, from 1; continues when the run is resumed.",
        statistic="last",
    ),
    MetricSpec(
        key="run/step",
        unit="frame",
        meaning="Frames stored and trained on since the run began; names the checkpoints.",
        statistic="sum",
    ),
    MetricSpec(
        key="run/env_steps",
        unit="env step",
        meaning="Environment steps of learner seats since the run began, trained on or not.",
        statistic="sum",
    ),
    MetricSpec(
        key="run/attempt",
        unit="1",
        meaning="Which start of the server wrote the row: 1 for the first, one more per resume.",
        statistic="last",
        deterministic=False,
    ),
    MetricSpec(
        key="run/identity_drift",
        unit="1",
        meaning="1: the run was resumed with --allow-identity-drift and has changed; "
        "`events.jsonl` says how.",
        statistic="last",
        deterministic=False,
        absent_when="the run is still what it began as",
    ),
    MetricSpec(
        key="run/dirty",
        unit="1",
        meaning="1: the run was resumed with --allow-dirty and other uncommitted code.",
        statistic="last",
        deterministic=False,
        absent_when="the run is still what it began as",
    ),
    MetricSpec(
        key="run/policy_version",
        unit="1",
        meaning="Learn steps completed, this one included.",
        statistic="last",
    ),
    MetricSpec(
        key="run/frames",
        unit="frame",
        meaning="Frames stored in this iteration.",
        statistic="sum",
    ),
)

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
        population="inference batches of the iteration",
    ),
    MetricSpec(
        key="throughput/bytes_per_frame",
        unit="byte",
        meaning="Size of the requests received since the row before, those of evaluation and of "
        "frames not trained on included, by the frames of the iteration: what the network carries "
        "to the server; large observations take half or a quarter with --float16-observations.",
        deterministic=False,
    ),
)

TIME = (
    MetricSpec(
        key="time/iteration_s",
        unit="s",
        meaning="From the first open moment of the collection to the end of the learn step.",
        statistic="sum",
        deterministic=False,
    ),
    MetricSpec(
        key="time/collect_s",
        unit="s",
        meaning="From the first open moment of the collection to the beginning of the learn step.",
        statistic="sum",
        deterministic=False,
    ),
    MetricSpec(
        key="time/infer_s",
        unit="s",
        meaning="Spent in inference; a large share of time/collect_s means the model is the limit.",
        statistic="sum",
        deterministic=False,
        population="inference batches of the iteration",
    ),
    MetricSpec(
        key="time/learn_s",
        unit="s",
        meaning="Spent in the learn step.",
        statistic="sum",
        deterministic=False,
    ),
)


def _of_episodes(name: str, unit: str, what: str) -> tuple[MetricSpec, ...]:
    """Mean, minimum and maximum of one number of the iteration's episodes."""
    return tuple(
        MetricSpec(
            key=f"env/{name}_{statistic}",
            unit=unit,
            meaning=f"{what}, {statistic} over episodes.",
            statistic=statistic,
            population=_ENDED,
            absent_when=_NO_EPISODE,
        )
        for statistic in ("mean", "min", "max")
    )


ENV = (
    *_of_episodes("return", "reward", "Undiscounted sum of rewards"),
    *_of_episodes("length", "env step", "Steps from reset to end"),
    MetricSpec(
        key="env/episodes",
        unit="episode",
        meaning="Episodes that ended.",
        statistic="sum",
        population=_ENDED,
        absent_when=_NO_EPISODE,
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
    ),
)

_OPPONENTS = {
    "learner": "itself",
    "snapshot": "snapshots of its past",
    "scripted": "scripted bots",
}

SELFPLAY = tuple(
    spec
    for opponent, whom in _OPPONENTS.items()
    for spec in (
        MetricSpec(
            key=f"selfplay/episodes_{opponent}",
            unit="episode",
            meaning=f"Episodes of the learner's seats that ended against {whom}.",
            statistic="sum",
            population=_ENDED,
            absent_when="no such episode ended in the iteration",
        ),
        MetricSpec(
            key=f"selfplay/return_{opponent}_mean",
            unit="reward",
            meaning=f"Undiscounted sum of rewards of the learner's seats against {whom}, mean over "
            "episodes.",
            population=_ENDED,
            absent_when="no such episode ended in the iteration",
        ),
    )
)

_DISCARDS = {
    "late": "the answer was still owed when the learn step could no longer wait for it",
    "cut": "the action was still open when only such frames kept a learn step waiting",
    "lost": "the client was gone or silent before the outcome arrived",
    "invalid": "the reward or an observation was not finite",
    "stale": "the action was of an older policy version; 0 by construction",
    "buffer_full": "the storage had no room; 0 by construction",
}

SERVER = (
    MetricSpec(
        key="server/clients",
        unit="client",
        meaning="Sessions taking part when the row was written.",
        statistic="last",
        deterministic=False,
    ),
    MetricSpec(
        key="server/discarded_frames",
        unit="frame",
        meaning="Frames not trained on since this start of the server, for any of the reasons.",
        statistic="sum",
        deterministic=False,
    ),
    *(
        MetricSpec(
            key=f"server/discarded_{reason}",
            unit="frame",
            meaning=f"Frames not trained on since this start of the server: {why}.",
            statistic="sum",
            deterministic=False,
        )
        for reason, why in _DISCARDS.items()
    ),
    MetricSpec(
        key="server/no_state_frames",
        unit="frame",
        meaning="Outcomes since this start of the server of actions it does not know, as after a "
        "client came back; counted beside the discarded ones.",
        statistic="sum",
        deterministic=False,
    ),
    MetricSpec(
        key="server/opponent_frames",
        unit="frame",
        meaning="Outcomes since this start of the server of snapshots' actions, in seats that are "
        "not the learner's; never trained on, and counted beside the discarded ones.",
        statistic="sum",
        deterministic=False,
    ),
    MetricSpec(
        key="server/conservation_error",
        unit="frame",
        meaning="Frames that the books cannot account for. Anything but 0 is a defect.",
        statistic="last",
    ),
)

_NO_ROUND = "no round of evaluation was complete since the row before"
_ROUND = "battles of the round of evaluation that was complete last, every deal from both sides"

EVALUATION = tuple(
    MetricSpec(
        key=f"env/eval_{name}",
        unit=unit,
        meaning=meaning,
        statistic=statistic,
        population=_ROUND,
        absent_when=_NO_ROUND,
        deterministic=False,
    )
    for name, unit, meaning, statistic in (
        ("round", "1", "Number of the round, from 1 in each attempt.", "last"),
        ("policy_version", "1", "Policy version whose pinned weights played it.", "last"),
        ("battles", "battle", "Battles of the round.", "sum"),
        ("win_rate", "1", "Battles won by the policy, draws counted as not won.", "ratio"),
        ("win_rate_low", "1", "Lower end of Wilson's 95 % interval of the win rate.", "ratio"),
        ("win_rate_high", "1", "Upper end of Wilson's 95 % interval of the win rate.", "ratio"),
        ("score", "1", "Score of the policy: 1 a win, 1/2 a draw, 0 a loss.", "mean"),
        ("score_low", "1", "Lower end of the 95 % interval of the score, by pairs.", "mean"),
        ("score_high", "1", "Upper end of the 95 % interval of the score, by pairs.", "mean"),
    )
)

SERVER_METRICS: tuple[MetricSpec, ...] = (
    *RUN,
    *THROUGHPUT,
    *TIME,
    *ENV,
    *EVALUATION,
    *SELFPLAY,
    *SERVER,
)
"""Everything the server writes into a row beside the algorithm's own numbers."""


def declared(learner_metrics: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    """Join the server's declarations with those of an algorithm.

    Args:
        learner_metrics: The algorithm's declarations.

    Returns:
        Key -> declaration, the server's first.

    Raises:
        ValueError: If a key is declared twice, naming all such keys.
    """
    joined: dict[str, MetricSpec] = {}
    twice: list[str] = []
    for spec in (*SERVER_METRICS, *learner_metrics):
        if spec.key in joined:
            twice.append(spec.key)
        joined[spec.key] = spec
    if twice:
        raise ValueError(
            f"metric keys declared twice: {', '.join(twice)}; rename them where the algorithm "
            "declares them"
        )
    return joined


def deterministic_keys(specs: Mapping[str, MetricSpec]) -> frozenset[str]:
    """Keys whose numbers must be equal in two runs with the same seed and settings."""
    return frozenset(key for key, spec in specs.items() if spec.deterministic)
