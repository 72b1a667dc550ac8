"""Compiles what a client of the arena calls: ``python -m royale_client.envs.arena.warm_up``.

A decision of two battles by every bot. Takes seconds where the compiler's cache is current.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from royale_client.envs.arena.bots import BOTS, bot_keys, make_bot
from royale_client.envs.arena.driver import ArenaDriver
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.wire.probes import QUESTIONS

_SAY_EVERY_S = 10.0


def warm_up(say: Callable[[str], None]) -> None:
    """Call every kernel once.

    Args:
        say: Told now and then that it still goes on, from a thread of its own.
    """
    with _progress(say):
        driver = ArenaDriver(RewardConfig(), 2, bots=(), identity={})
        driver.reset(np.arange(driver.num_slots, dtype=np.uint64))
        driver.step((np.zeros(driver.num_slots, np.int64),))
        battles = driver.batch.battles
        for name in BOTS:
            make_bot(name).act(battles, np.ones((2, 2), np.bool_), bot_keys(battles))
        driver.restore(driver.snapshot())
        for question in QUESTIONS:
            driver.probe(question)


@contextlib.contextmanager
def _progress(say: Callable[[str], None]) -> Iterator[None]:
    """Say how long it has taken every few seconds: the compiler says nothing by itself."""
    is_done, started_s = threading.Event(), time.monotonic()

    def tell() -> None:
        while not is_done.wait(_SAY_EVERY_S):
            say(f"still compiling the arena, {time.monotonic() - started_s:.0f} s so far")

    teller = threading.Thread(target=tell, name="royale-compiling", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_done.set()
        teller.join()


if __name__ == "__main__":
    warm_up(lambda line: print(line, flush=True))  # noqa: T201 - a person waits for it
