"""Schedules: the clients of a run and what happens to them, written down or drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from royale_server.scheduler import Dispatch, SchedulerConfig

MODES = ("same", "next", "turn")
SLOWNESS = (2, 5, 20, 60, 200, 600)
TARGETS = (5, 13, 20, 33)
ROUND_S = 0.02
LEARN_S = 0.05
FATES = {
    "exact": "comes back as it was",
    "late": "comes back as it was, perhaps after its place was given away",
    "fresh": "comes back with fresh episodes",
    "expired": "does not come back before its place is given away",
    "changed": "comes back as another client than it was",
}
SLOW_CLIENT_TIMEOUT_S = 30.0
"""Beyond the longest turn, 600 × 20 ms, so that the slowest are late and not lost."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One schedule. Times in seconds of the simulated clock."""

    sessions: tuple[tuple[int, ...], ...] = ((2,), (2,), (2,))
    target: int = 50
    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    mode: str = "same"
    """same: every row always asks; next: an ended row is silent once; turn: rows ask at random."""
    slow: dict[int, float] = field(default_factory=dict)
    """Multiplier of the step time of the session with this index."""
    step_s: tuple[float, float] = (0.005, 0.02)
    jitter_s: float = 0.003
    infer_s: float = 0.0005
    learn_s: float = 0.05
    end_probability: float = 0.05
    others: bool = False
    """Whether others than the learner play some rows: snapshots, and bots on the client's side."""
    invalid_probability: float = 0.0
    """How often a row's reward or observation is not finite."""
    duration_s: float = 3.0
    max_learns: int | None = None
    trouble_s: float = 1.0
    """Until when it has happened whatever happens to the run, of this list:"""
    joins: int = 0
    leaves: int = 0
    """Clients that say goodbye after a last step that closes every open row."""
    quits: int = 0
    """Clients that say goodbye, or are killed, without it."""
    cuts: int = 0
    hangs: int = 0
    pauses: int = 0
    restarts: int = 0
    """Rests at which the server is saved and another process goes on with what was saved."""
    restarts_at_learn: frozenset[int] = frozenset()
    """Learn steps, counted from 1, right after which that happens too."""
    fates: tuple[str, ...] = ("exact",)
    """What becomes of a client at a restart; see `FATES`."""
    return_s: float = 0.05
    """Until how long after a restart its clients come back."""
    silent_group: bool = False
    """The second group of the first session never sends its first step."""
    evaluators: int = 0
    stall_s: float = 2.2
    """Nothing dispatched or learned for so long with healthy sessions around is a deadlock."""

    @property
    def is_calm(self) -> bool:
        """Nothing is late, lost or invalid: no frame but `cut` may be discarded."""
        troubles = (self.quits, self.cuts, self.hangs, self.slow, self.invalid_probability)
        return not (any(troubles) or self.silent_group)


def random_plan(seed: int) -> Plan:
    """A schedule of a run without special modes: anything may happen to it."""
    draw = random.Random(seed)
    sessions = _sessions(draw)
    silent_group = len(sessions[0]) > 1 and draw.random() < 0.08
    slow = {0: float(draw.choice(SLOWNESS))} if draw.random() < 0.4 else {}
    leaves, quits = draw.choice((0, 0, 1)), draw.choice((0, 0, 1))
    everybody_stays = not (leaves or quits or silent_group)
    settings = dispatch_settings(draw)
    settings["min_clients"] = draw.randint(1, len(sessions)) if everybody_stays else 1
    settings["feedback_wait_timeout_s"] = SLOW_CLIENT_TIMEOUT_S if slow else 0.8
    settings["close_wait_s"] = draw.choice((0.05, 0.2))
    target = draw.choice(TARGETS)
    return Plan(
        sessions=sessions,
        target=target,
        trouble_s=_length_s(sessions, target, 3),
        config=SchedulerConfig(first_step_timeout_s=0.7, **settings),
        mode=draw.choice(MODES),
        slow=slow,
        others=seed % 3 == 0,
        invalid_probability=draw.choice((0.0, 0.0, 0.0, 0.03)),
        joins=draw.choice((0, 0, 1, 2)),
        leaves=leaves,
        quits=quits,
        cuts=draw.choice((0, 0, 1, 2)),
        hangs=draw.choice((0, 0, 1)),
        pauses=draw.choice((0, 0, 1)),
        silent_group=silent_group,
        evaluators=draw.choice((0, 0, 0, 1)),
        restarts=draw.choice((0, 1, 1, 1, 1, 1, 1, 2)),
        fates=tuple(FATES),
        return_s=draw.choice((0.01, 0.3)),
        duration_s=4.0,
        max_learns=4,
    )


def calm_plan(seed: int) -> Plan:
    """A schedule in which nobody is slow, hangs, or goes without a word."""
    draw = random.Random(seed)
    sessions = _sessions(draw)
    target = draw.choice(TARGETS)
    return Plan(
        sessions=sessions,
        target=target,
        trouble_s=_length_s(sessions, target, 3),
        config=SchedulerConfig(**dispatch_settings(draw)),
        mode=draw.choice(MODES),
        others=seed % 3 == 0,
        joins=draw.choice((0, 1, 2)),
        leaves=draw.choice((0, 1, 2)),
        pauses=draw.choice((0, 0, 1)),
        evaluators=draw.choice((0, 0, 0, 1)),
        restarts=draw.choice((0, 0, 1)),
        duration_s=4.0,
        max_learns=4,
    )


def deterministic_plan(seed: int) -> Plan:
    """A schedule of a deterministic run: clients stay, but may be slow, hang, or be paused.

    A pause gives up silent rows that are still open, and when it comes is chance: in that
    mode there is none.
    """
    draw = random.Random(seed)
    sessions = _sessions(draw)
    mode = draw.choice(MODES)
    target = draw.choice(TARGETS)
    return Plan(
        sessions=sessions,
        target=target,
        trouble_s=_length_s(sessions, target, 3),
        config=SchedulerConfig(
            deterministic=True, min_clients=len(sessions), **dispatch_settings(draw)
        ),
        mode=mode,
        others=seed % 3 == 0,
        slow={0: float(draw.choice((1, 3, 10)))},
        invalid_probability=draw.choice((0.0, 0.0, 0.03)),
        hangs=draw.choice((0, 0, 1)),
        pauses=0 if mode == "turn" else draw.choice((0, 0, 1)),
        evaluators=draw.choice((0, 0, 0, 1)),
        duration_s=90.0,
        max_learns=4,
    )


def dispatch_settings(draw: random.Random) -> dict[str, Any]:
    """How requests are gathered: barrier, dynamic or mini-batches."""
    kind = draw.choice(("barrier", "dynamic", "mini"))
    if kind == "dynamic":
        return {
            "dispatch": Dispatch.DYNAMIC,
            "max_infer_batch_size": draw.choice((None, 1, 3, 6)),
            "max_infer_wait_s": draw.choice((0.0, 0.005)),
        }
    if kind == "mini":
        return {"mini_infer_batch_size": draw.choice((1, 3, 8, 50))}
    return {}


def _length_s(sessions: tuple[tuple[int, ...], ...], target: int, learns: int) -> float:
    """About how long a run takes in which nothing goes wrong."""
    rounds = target / sum(map(sum, sessions)) + 1
    return learns * (rounds * ROUND_S + LEARN_S)


def _sessions(draw: random.Random) -> tuple[tuple[int, ...], ...]:
    """Group sizes of one to five sessions with one or two groups each."""
    return tuple(
        tuple(draw.randint(1, 4) for _ in range(draw.choice((1, 2))))
        for _ in range(draw.randint(1, 5))
    )
