"""Random schedules: what may happen to a run, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any

from royale_server.scheduler import Dispatch, SchedulerConfig
from tests.scheduler.world import Plan

MODES = ("same", "next", "turn")
SLOWNESS = (2, 5, 20, 60, 200, 600)
SLOW_CLIENT_TIMEOUT_S = 30.0
"""Beyond the longest turn, 600 × 20 ms, so that the slowest are late and not lost."""


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
    return Plan(
        sessions=sessions,
        target=draw.choice((7, 20, 33, 50)),
        config=SchedulerConfig(first_step_timeout_s=0.7, **settings),
        mode=draw.choice(MODES),
        slow=slow,
        invalid_probability=draw.choice((0.0, 0.0, 0.0, 0.03)),
        joins=draw.choice((0, 0, 1, 2)),
        leaves=leaves,
        quits=quits,
        cuts=draw.choice((0, 0, 1, 2)),
        hangs=draw.choice((0, 0, 1)),
        pauses=draw.choice((0, 0, 1)),
        silent_group=silent_group,
        evaluators=draw.choice((0, 0, 0, 1)),
        duration_s=4.0,
        max_learns=5,
    )


def calm_plan(seed: int) -> Plan:
    """A schedule in which nobody is slow, hangs, or goes without a word."""
    draw = random.Random(seed)
    sessions = _sessions(draw)
    return Plan(
        sessions=sessions,
        target=draw.choice((7, 20, 33, 50)),
        config=SchedulerConfig(**dispatch_settings(draw)),
        mode=draw.choice(MODES),
        joins=draw.choice((0, 1, 2)),
        leaves=draw.choice((0, 1, 2)),
        pauses=draw.choice((0, 0, 1)),
        evaluators=draw.choice((0, 0, 0, 1)),
        duration_s=4.0,
        max_learns=5,
    )


def deterministic_plan(seed: int) -> Plan:
    """A schedule of a deterministic run: clients stay, but may be slow, hang, or be paused.

    A pause gives up silent rows that are still open, and when it comes is chance: in that
    mode there is none.
    """
    draw = random.Random(seed)
    sessions = _sessions(draw)
    mode = draw.choice(MODES)
    return Plan(
        sessions=sessions,
        target=draw.choice((7, 20, 33)),
        config=SchedulerConfig(
            deterministic=True, min_clients=len(sessions), **dispatch_settings(draw)
        ),
        mode=mode,
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


def _sessions(draw: random.Random) -> tuple[tuple[int, ...], ...]:
    """Group sizes of one to five sessions with one or two groups each."""
    return tuple(
        tuple(draw.randint(1, 4) for _ in range(draw.choice((1, 2))))
        for _ in range(draw.randint(1, 5))
    )
