"""What the networked yardsticks share: the library's fastest set-up, and client processes.

The same library as the product's, compression off, uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine
from multiprocessing.process import BaseProcess
from typing import Any

HOST = "127.0.0.1"
START_S = 60.0
"""Longest time until all clients are connected."""
SETTINGS: dict[str, Any] = {"compression": None, "max_size": None}
"""Of both sides of a connection."""


def run(coroutine: Coroutine[Any, Any, dict[str, float] | None]) -> dict[str, float] | None:
    """Run a coroutine on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


def start_clients(
    work: Callable[..., None], port: int, count: int, *arguments: object
) -> list[BaseProcess]:
    """Start processes that call ``work(port, number, *arguments)``; they end with this one."""
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = [
        context.Process(target=work, args=(port, number, *arguments), daemon=True)
        for number in range(count)
    ]
    for process in processes:
        process.start()
    return processes


def end(processes: list[BaseProcess]) -> None:
    """End client processes at once."""
    for process in processes:
        process.kill()
        process.join()
