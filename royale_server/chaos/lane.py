"""One direction of one connection through the proxy, and what can go wrong with it.

Bytes are read as they come, kept until they are due, and written. Decides nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

READ_BYTES = 64 * 1024
QUEUED_READS = 64
"""Reads that may wait; then nothing more is read, and the sender is held up as TCP does it."""
LOOK_AGAIN_S = 0.05
"""A lane that waits looks so often whether it still has to."""


class Lane:
    """Carries bytes from one side to the other.

    Args:
        reader: Where they come from.
        writer: Where they go.
        random: Draws which bytes are spoilt.
        note: Called with all bytes that are read, before anything happens to them.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        random: Random,
        note: Callable[[bytes], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._random = random
        self._note = note
        self._clock = asyncio.get_running_loop().time
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_READS)
        self._delay, self._delayed_until = 0.0, 0.0
        self._rate, self._throttled_until, self._next_at = 0.0, 0.0, 0.0
        self._held_until = 0.0
        self._to_spoil = 0
        self._is_ended = False

    # --- faults ---------------------------------------------------------------------------

    def delay(self, amount_s: float, lasting_s: float) -> None:
        """Let bytes that come from now on arrive late."""
        self._delay, self._delayed_until = amount_s, self._clock() + lasting_s

    def throttle(self, bytes_per_s: float, lasting_s: float) -> None:
        """Let few bytes pass."""
        self._rate, self._throttled_until = bytes_per_s, self._clock() + lasting_s

    def hold(self, lasting_s: float) -> None:
        """Let nothing pass, not even the end."""
        self._held_until = self._clock() + lasting_s

    def spoil(self, count: int) -> None:
        """Change so many of the next bytes."""
        self._to_spoil += count

    def end(self) -> None:
        """Tell the receiver that nothing more comes, and swallow what does."""
        if not self._is_ended:
            self._is_ended = True
            with contextlib.suppress(OSError, RuntimeError):  # gone already, or no such thing
                self._writer.write_eof()

    # --- bytes ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry bytes until the sender ends, and then the end."""
        reading = asyncio.create_task(self._read())
        try:
            while data := await self._next_due():
                if not self._is_ended:
                    await self._write(self._spoilt(data))
        except OSError:
            return  # the receiver is gone; the other lane notices as well
        finally:
            reading.cancel()
        self.end()

    async def _read(self) -> None:
        data = b"."
        while data:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:  # reset; the receiver learns that it has ended
                data = b""
            self._note(data)
            now = self._clock()
            await self._queue.put((now + self._delay if now < self._delayed_until else now, data))

    async def _next_due(self) -> bytes:
        due, data = await self._queue.get()
        await self._wait(lambda: max(due, self._held_until))
        return data

    async def _wait(self, until: Callable[[], float]) -> None:
        """Wait for a time that a fault may move meanwhile."""
        while (left := until() - self._clock()) > 0:  # noqa: ASYNC110 - it is a time, no event
            await asyncio.sleep(min(left, LOOK_AGAIN_S))

    async def _write(self, data: bytes) -> None:
        """Write data, in small pieces while the lane is throttled."""
        while data:
            piece = data
            if self._clock() < self._throttled_until:
                await self._wait(lambda: min(self._next_at, self._throttled_until))
                piece = data[: max(1, int(self._rate * LOOK_AGAIN_S))]
                self._next_at = max(self._next_at, self._clock()) + len(piece) / self._rate
            self._writer.write(piece)
            await self._writer.drain()
            data = data[len(piece) :]

    def _spoilt(self, data: bytes) -> bytes:
        if not self._to_spoil:
            return data
        spoilt = bytearray(data)
        for place in self._random.sample(range(len(data)), min(self._to_spoil, len(data))):
            spoilt[place] ^= self._random.randrange(1, 256)
            self._to_spoil -= 1
        return bytes(spoilt)
