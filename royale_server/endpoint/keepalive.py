"""Tells a client that is silent from one that is gone: pings it, and counts any byte as life.

The library's own keepalive takes only the answer to its ping for one, and that stands behind the
long message that a slow line has been carrying for a minute. So does the ping itself, the other way
round: what goes out counts as well, as far as the system takes more of it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import websockets

from royale_server.endpoint.handshake import ObservedConnection

LOOKS = 4
"""How often in the time-out it is looked whether more has gone out."""


class Reader(Protocol):
    """What reads from the client."""

    read_at: float
    """When it last read something, in the time of the loop."""


class Keepalive:
    """Looks after one open connection.

    A client that vanishes is given up after ``interval_s + timeout_s`` at the latest.

    Args:
        socket: The connection.
        reader: Reads from it.
        interval_s: Seconds from one sign of life to the next ping.
        timeout_s: Seconds without any sign of life after a ping, before the client is given up.
    """

    def __init__(
        self, socket: ObservedConnection, reader: Reader, *, interval_s: float, timeout_s: float
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = asyncio.get_running_loop().time
        self.why: str | None = None
        """Why the client was given up; None as long as it is not."""

    async def run(self) -> None:
        """Ping until the connection ends, or end it."""
        try:
            is_alive = True
            while is_alive:
                await asyncio.sleep(self._interval_s)
                is_alive = await self._is_alive()
        except websockets.ConnectionClosed:
            return
        self.why = f"ping timeout: no sign of life for {self._timeout_s:g} s"
        self._socket.transport.abort()

    async def _is_alive(self) -> bool:
        """Ping, and wait for the answer as long as there are signs of life.

        Raises:
            ConnectionClosed: If the connection ends meanwhile.
        """
        answer = asyncio.create_task(self._ping())
        written_at, unsent = self._clock(), self._unsent()
        try:
            while not answer.done():
                last_sign_at = max(written_at, self._reader.read_at)
                left_s = last_sign_at + self._timeout_s - self._clock()
                if left_s <= 0:
                    return False
                await asyncio.wait([answer], timeout=min(left_s, self._timeout_s / LOOKS))
                before, unsent = unsent, self._unsent()
                if unsent < before:
                    written_at = self._clock()
            answer.result()
        finally:
            answer.cancel()
        return True

    async def _ping(self) -> None:
        """Ping and wait for the answer. The ping itself waits behind what has not gone out yet."""
        await (await self._socket.ping())

    def _unsent(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._socket.transport.get_write_buffer_size()
