"""A network that takes its time: every WebSocket message waits before it is passed on.

Stands between client and server on this machine, cuts both byte streams into WebSocket frames (a
message of ours is one), and holds each back for a random time; order is kept. Which message waits
how long follows from a seed and from when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from types import TracebackType
from typing import Self

END_OF_UPGRADE = b"\r\n\r\n"


class SlowNetwork:
    """A port whose connections go on to a server, late.

    Args:
        host: Of the server.
        port: Of the server.
        seed: Of the delays.
        longest_s: Delays are uniform between 0 and this.
    """

    def __init__(self, host: str, port: int, *, seed: int, longest_s: float) -> None:
        self._target = (host, port)
        self._random = random.Random(seed)
        self._longest_s = longest_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self.num_delayed = 0
        """Messages passed on so far, both ways."""
        self.delayed_s = 0.0
        """Seconds that they waited altogether."""

    @property
    def url(self) -> str:
        """What a client connects to."""
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accepted, "127.0.0.1", 0), self._loop
        ).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream, downstream = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._pass_on(reader, downstream), self._pass_on(upstream, writer))
        self._conversations.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await reader.readuntil(END_OF_UPGRADE))
            while True:
                frame = await _read_frame(reader)
                delay_s = self._random.uniform(0, self._longest_s)
                self.num_delayed += 1
                self.delayed_s += delay_s
                await asyncio.sleep(delay_s)
                writer.write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # either side has closed; so is the other now
        finally:
            writer.close()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one frame of RFC 6455, section 5.2, as it is."""
    head = await reader.readexactly(2)
    length = head[1] & 0x7F
    extended = await reader.readexactly({126: 2, 127: 8}.get(length, 0))
    mask = await reader.readexactly(4 if head[1] & 0x80 else 0)
    body = await reader.readexactly(int.from_bytes(extended, "big") if extended else length)
    return head + extended + mask + body
