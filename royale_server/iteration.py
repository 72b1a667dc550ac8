"""The row of ``metrics.jsonl`` of one iteration, and how to read its keys.

Pure: everything is given, nothing is read or written. Numbers of time and of episodes are made
beside this module; the algorithm's come with the learn step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algorithms.metric_spec import OF_ITERATION, MetricSpec
from royale_server.episode_metrics import EndedEpisode, EpisodeDeclarations, episode_numbers

if TYPE_CHECKING:
    from royale_server.endpoint.hub import Hub
    from royale_server.iteration_clock import IterationClock
    from royale_server.model.engine import Learned
    from royale_server.run.writer import WriterHealth

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
        may_be_constant="a run that is never resumed has one",
    ),
    MetricSpec(
        key="run/identity_drift",
        unit="1",
        meaning="1: the run was resumed with --allow-identity-drift and has changed; "
        "`events.jsonl` says how.",
        statistic="last",
        deterministic=False,
        absent_when="the run is still what it began as",
        may_be_constant="it is 1 or absent",
    ),
    MetricSpec(
        key="run/dirty",
        unit="1",
        meaning="1: the run was resumed with --allow-dirty and other uncommitted code.",
        statistic="last",
        deterministic=False,
        absent_when="the run is still what it began as",
        may_be_constant="it is 1 or absent",
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
        may_be_constant="clients whose slots divide the frames wanted give that many every time",
    ),
)

TRAFFIC = (
    MetricSpec(
        key="throughput/bytes_per_frame",
        unit="byte",
        meaning="Size of the requests received since the row before, those of evaluation and of "
        "frames not trained on included, by the frames of the iteration: what the network carries "
        "to the server; large observations take half or a quarter with --float16-observations.",
        deterministic=False,
    ),
)

_SINCE_START = "since this start of the server"
_IN_ORDER = "0 as long as nothing goes wrong"


def _count(
    key: str, unit: str, meaning: str, *, statistic: str = "sum", healthy: bool = False
) -> MetricSpec:
    """Declare a count of something that a run without trouble has none of."""
    return MetricSpec(
        key=key,
        unit=unit,
        meaning=meaning,
        statistic=statistic,
        deterministic=False,
        population=OF_ITERATION,
        healthy=(0.0, 0.0) if healthy else None,
        may_be_constant=_IN_ORDER,
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
        population=OF_ITERATION,
        may_be_constant="clients that stay are as many every time",
    ),
    _count(
        "server/clients_missing",
        "client",
        "Train clients that --min-clients wants and that did not take part when the row was made.",
        statistic="last",
        healthy=True,
    ),
    _count(
        "server/stragglers",
        "group",
        "Groups of environments too slow to be waited for when the row was made.",
        statistic="last",
    ),
    MetricSpec(
        key="server/io_busy_frac",
        unit="1",
        meaning="Processor time of the thread that talks to clients, by the time of the iteration; "
        "near 1 it is the limit. With --inline it is the one thread that does everything.",
        deterministic=False,
        population=OF_ITERATION,
        healthy=(0.0, 0.9),
    ),
    _count(
        "server/discard_frac",
        "1",
        "Frames given up in this iteration, by those and the frames stored.",
        statistic="sum by sum",
    ),
    _count(
        "server/discarded_frames",
        "frame",
        f"Frames not trained on {_SINCE_START}, for any of the reasons.",
    ),
    *(
        _count(
            f"server/discarded_{reason}", "frame", f"Frames not trained on {_SINCE_START}: {why}."
        )
        for reason, why in _DISCARDS.items()
    ),
    _count(
        "server/no_state_frames",
        "frame",
        f"Outcomes {_SINCE_START} of actions it does not know, as after a client came back; "
        "counted beside the discarded ones.",
    ),
    _count(
        "server/opponent_frames",
        "frame",
        f"Outcomes {_SINCE_START} of snapshots' actions, in seats that are not the learner's; "
        "never trained on, and counted beside the discarded ones.",
    ),
    _count(
        "server/nonfinite_frames",
        "frame",
        f"Rows received {_SINCE_START} that held a NaN, an infinity or an absurdly large number.",
        healthy=True,
    ),
    MetricSpec(
        key="server/conservation_error",
        unit="frame",
        meaning="Frames that the books cannot account for. Anything but 0 is a defect.",
        statistic="last",
        population=OF_ITERATION,
        healthy=(0.0, 0.0),
        may_be_constant="it is 0, or something is broken",
    ),
)

CLIENT = (
    _count("client/joined", "client", "Sessions welcomed since the row before."),
    _count("client/left", "client", "Sessions that ended since the row before, for any reason."),
)

HEALTH = (
    _count(
        "health/worker_restarts",
        "client",
        f"Clients that trained and were lost {_SINCE_START}: gone without a goodbye, or too late; "
        "not those that broke the protocol.",
        healthy=True,
    ),
    MetricSpec(
        key="health/workers_gone_frac",
        unit="1",
        meaning="Of the clients that train: those that were lost and that nobody has replaced, by "
        "them and those that took part when the row was made.",
        population=f"clients that train, {_SINCE_START}",
        healthy=(0.0, 0.5),
        deterministic=False,
        may_be_constant="it is 0 unless clients are lost",
    ),
    MetricSpec(
        key="health/buffer_fill_frac",
        unit="1",
        meaning="Frames of the iteration by the cells of storage.",
        population=OF_ITERATION,
        healthy=(0.0, 1.0),
        deterministic=False,
        may_be_constant="as run/frames",
    ),
    MetricSpec(
        key="health/rss_peak_mb",
        unit="MB",
        meaning="Most memory that the server has held so far.",
        statistic="max",
        deterministic=False,
        population=OF_ITERATION,
        absent_when="the operating system does not say",
        may_be_constant="a peak stays where it is",
    ),
    *(
        MetricSpec(
            key=f"health/vram_{name}_mb",
            unit="MB",
            meaning=meaning,
            statistic=statistic,
            deterministic=False,
            population="the device of the policy, after the learn step",
            absent_when="the policy is not on a CUDA device",
            may_be_constant="a job that repeats holds the same memory every time",
        )
        for name, statistic, meaning in (
            ("driver_free", "last", "Memory that the driver reports free, whoever else uses it."),
            ("reserved", "last", "Memory that torch holds of the driver."),
            ("peak", "max", "Most memory that tensors have taken so far."),
        )
    ),
    *(
        _count(f"health/writer_{name}", unit, meaning, statistic="last")
        for name, unit, meaning in (
            ("queued", "job", "What waits for the writer thread when the row is made."),
            ("unwritten", "line", "Lines that the disk has refused and that are kept."),
            ("dropped", "line", f"Lines given up {_SINCE_START}, for the disk did not keep up."),
        )
    ),
    MetricSpec(
        key="health/iterations_since_checkpoint",
        unit="iteration",
        meaning="Iterations that no checkpoint holds yet, this one included.",
        statistic="last",
        deterministic=False,
        absent_when="the algorithm has nothing to save",
        may_be_constant="with a checkpoint after every iteration it is 1",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the run stands when a row is made, beside what was learnt."""

    iteration: int
    attempt: int
    collected: int
    """Frames of the iteration."""
    discarded: int
    """Frames given up in it."""
    env_steps: int
    """Since the run began."""
    joined: int
    left: int
    """Sessions welcomed and ended since the row before."""
    step_bytes: int
    """Size of the requests since the row before."""
    io_busy_s: float
    """Processor time of the thread that talks to clients since the row before."""
    rss_peak_mb: float | None
    iterations_since_checkpoint: int | None
    capacity: int
    """Cells of storage."""


def metrics_row(
    standing: Standing,
    *,
    result: Learned,
    episodes: Sequence[EndedEpisode],
    declarations: EpisodeDeclarations,
    recent_returns: Collection[float],
    episodes_total: int,
    hub: Hub,
    writer: WriterHealth,
    clock: IterationClock,
    now: float,
) -> dict[str, Any]:
    """The row of one iteration.

    Args:
        standing: Where the run stands.
        result: What was learnt.
        episodes: Those that ended in the iteration, of all players.
        declarations: What clients say of their episodes.
        recent_returns: Of the last episodes of the learner.
        episodes_total: How many of them there were since the run began.
        hub: The clients; only looked at.
        writer: How the writer fares.
        clock: Of the iteration.
        now: Seconds.

    Returns:
        Numbers by key; what was not measured has none.
    """
    times = clock.numbers(
        now=now,
        collected=standing.collected,
        storage_s=result.storage_s,
        learning=result.parts_s,
        groups=hub.scheduler.train_groups(),
    )
    row: dict[str, Any] = {
        "run/iteration": standing.iteration,
        "run/step": result.global_step,
        "run/env_steps": standing.env_steps,
        "run/attempt": standing.attempt,
        "run/policy_version": result.policy_version,
        "run/frames": standing.collected,
        "throughput/bytes_per_frame": _share(standing.step_bytes, standing.collected),
        **times,
        **result.metrics,
        **_server_numbers(standing, hub, times["time/iteration"]),
        **_health_numbers(standing, writer),
        **result.memory_mb,
    }
    own = episode_numbers(episodes, declarations.env_ids)
    if recent_returns:
        own["env/episodes_total"] = episodes_total
        own["env/return_mean_100"] = sum(recent_returns) / len(recent_returns)
    # An environment may not say what the server says itself.
    return {**declarations.numbers(episodes), **row, **own}


def _server_numbers(standing: Standing, hub: Hub, total_s: float) -> Mapping[str, float]:
    scheduler, ledger = hub.scheduler, hub.scheduler.ledger
    return {
        "server/clients": hub.num_members,
        "server/clients_missing": hub.clients_missing,
        "server/stragglers": scheduler.num_stragglers,
        "server/io_busy_frac": _share(standing.io_busy_s, total_s),
        "server/discard_frac": _share(standing.discarded, standing.discarded + standing.collected),
        "server/discarded_frames": ledger.discarded_total,
        **{f"server/discarded_{d.value}": n for d, n in ledger.given_up.items()},
        "server/no_state_frames": ledger.no_state_total,
        "server/opponent_frames": ledger.others_total,
        "server/nonfinite_frames": hub.nonfinite_frames.total(),
        "server/conservation_error": ledger.conservation_error,
        "client/joined": standing.joined,
        "client/left": standing.left,
        "health/worker_restarts": hub.clients_lost,
        "health/workers_gone_frac": hub.clients_lost_share,
    }


def _health_numbers(standing: Standing, writer: WriterHealth) -> Mapping[str, float]:
    numbers: dict[str, float] = {
        "health/buffer_fill_frac": _share(standing.collected, standing.capacity),
        "health/writer_queued": writer.queued,
        "health/writer_unwritten": writer.unwritten,
        "health/writer_dropped": writer.dropped,
    }
    if standing.rss_peak_mb is not None:
        numbers["health/rss_peak_mb"] = standing.rss_peak_mb
    if standing.iterations_since_checkpoint is not None:
        numbers["health/iterations_since_checkpoint"] = standing.iterations_since_checkpoint
    return numbers


def _share(amount: float, per: float) -> float:
    return amount / per if per > 0 else 0.0
