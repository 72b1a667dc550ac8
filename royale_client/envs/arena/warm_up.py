"""Compiles what a client of the arena calls: ``python -m royale_client.envs.arena.warm_up``.

A decision of two battles by every bot. Takes seconds where the compiler's cache is current.
"""

from __future__ import annotations

import numpy as np

from royale_client.envs.arena.bots import BOTS, bot_keys, make_bot
from royale_client.envs.arena.driver import ArenaDriver
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.wire.probes import QUESTIONS


def warm_up() -> None:
    """Call every kernel once."""
    driver = ArenaDriver(RewardConfig(), 2, bots=(), identity={})
    driver.reset(np.arange(driver.num_slots, dtype=np.uint64))
    driver.step((np.zeros(driver.num_slots, np.int64),))
    battles = driver.batch.battles
    for name in BOTS:
        make_bot(name).act(battles, np.ones((2, 2), np.bool_), bot_keys(battles))
    driver.restore(driver.snapshot())
    for question in QUESTIONS:
        driver.probe(question)


if __name__ == "__main__":
    warm_up()
