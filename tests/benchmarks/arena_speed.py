"""How fast the arena is on one core; ``python -m tests.benchmarks.arena_speed``.

Everything that a client does for a decision but the network: random play (which waits in nine of
ten decisions), the step, both seats' tensors and masks, rewards, counters, and the records of
battles that end. Beside it a plain copy of the same tensors. Numbers are medians of several runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.driver import ArenaDriver
from royale_client.envs.arena.reward_config import RewardConfig

RUNS = 7


def rate(decide: Callable[[], int], seconds: float) -> float:
    """Return decisions per second."""
    started, decisions = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        decisions += decide()
    return decisions / (time.perf_counter() - started)


def main() -> None:
    """Print the rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--battles", type=int, default=256)
    parser.add_argument("--bot", default="random_wait")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    bot = make_bot(arguments.bot)
    driver = ArenaDriver(RewardConfig(), arguments.battles, bots=(), identity={})
    everybody = np.ones((arguments.battles, 2), np.bool_)
    turn = driver.reset(np.arange(driver.num_slots, dtype=np.uint64))
    battles = driver.batch.battles

    def decide() -> int:
        actions = bot.act(battles, everybody, bot_keys(battles))
        driver.step((actions.reshape(-1).astype(np.int64),))
        return driver.num_slots

    assert turn.masks is not None
    tensors = [*turn.observations, turn.masks]
    copies = [np.empty_like(tensor) for tensor in tensors]

    def copy() -> int:
        for target, tensor in zip(copies, tensors, strict=True):
            target[...] = tensor
        return driver.num_slots

    rate(decide, arguments.seconds)  # warm-up; and battles are no longer in step
    played = [rate(decide, arguments.seconds) for _ in range(RUNS)]
    copied = [rate(copy, 0.2) for _ in range(RUNS)]
    play, memory = statistics.median(played), statistics.median(copied)
    print(f"{arguments.battles} battles, {arguments.bot} in both seats, median of {RUNS}")
    print(f"agent decisions/s  {play:12,.0f}  ({min(played):,.0f} to {max(played):,.0f})")
    print(f"memory copy        {memory:12,.0f}  {memory / play:.1f} times as fast")


if __name__ == "__main__":
    main()
