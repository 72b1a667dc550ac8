"""A fault proxy that runs in a thread of its own, for programs that have no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from royale_server.chaos.plan import Fault
from royale_server.chaos.proxy import FaultProxy

Result = TypeVar("Result")


class BackgroundProxy:
    """A proxy on another thread; see `running_proxy`.

    Args:
        upstream: Host and port of the server.
        seed: Draws which bytes are spoilt.
    """

    def __init__(self, upstream: tuple[str, int], seed: int) -> None:
        self.applied: list[dict[str, Any]] = []
        """What was done so far, in order."""
        self._proxy = FaultProxy(upstream, seed=seed, on_fault=self.applied.append)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="royale-chaos")
        self._playing: list[Future[None]] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._proxy.address

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"ws://{self.address[0]}:{self.address[1]}"

    @property
    def num_open(self) -> int:
        """Connections that are open."""
        return self._proxy.num_open

    def apply(self, fault: Fault) -> None:
        """Have a fault happen now, and return when it has."""

        async def happen() -> None:
            self._proxy.apply(fault)

        self._submit(happen()).result()

    def play(self, faults: Iterable[Fault]) -> None:
        """Begin to have faults happen at their times, as long as the proxy is there."""
        self._playing.append(self._submit(self._proxy.play(faults)))

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: If that is not possible.
        """
        self._thread.start()
        try:
            self._submit(self._proxy.__aenter__()).result()
        except OSError:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Listen no longer, and reset what is open."""
        for playing in self._playing:
            playing.cancel()
        self._submit(self._proxy.__aexit__()).result()
        self._end_thread()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def running_proxy(upstream: tuple[str, int], *, seed: int = 0) -> Iterator[BackgroundProxy]:
    """Run a proxy in front of a server while the block runs.

    Args:
        upstream: Host and port of the server.
        seed: Draws which bytes are spoilt.
    """
    proxy = BackgroundProxy(upstream, seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
