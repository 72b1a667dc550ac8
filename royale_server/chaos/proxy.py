"""A TCP proxy with faults: takes connections, carries them on, and does to them what it is told.

One asyncio loop. Never looks into what it carries, so TLS passes as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from royale_server.chaos.lane import Lane
from royale_server.chaos.plan import Direction, Fault

MOST_REMEMBERED = 256 * 1024
"""First bytes of a client that a duplicate of its connection says again."""
CONNECT_TIMEOUT_S = 10.0

_RESET_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


@dataclass(eq=False, slots=True)
class _Connection:
    """A client's connection, and ours to the server."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    up: Lane
    down: Lane
    said: bytearray = field(default_factory=bytearray)
    """What the client said first."""

    def lanes(self, direction: Direction) -> tuple[Lane, ...]:
        """The lanes of a direction."""
        return {"up": (self.up,), "down": (self.down,), "both": (self.up, self.down)}[direction]


class FaultProxy:
    """Listens, connects to a server for each connection, and suffers faults.

    Use it with ``async with``; `apply` is for the thread of the loop.

    Args:
        upstream: Host and port of the server.
        listen: Host and port to listen on; port 0 takes a free one.
        seed: Draws which bytes are spoilt.
        on_fault: Called with what was done, as plain data.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        seed: int = 0,
        on_fault: Callable[[dict[str, Any]], None] = lambda _done: None,
    ) -> None:
        self._upstream = upstream
        self._listen = listen
        self._random = Random(f"{seed} bytes")
        self._on_fault = on_fault
        self._connections: dict[int, _Connection] = {}
        self._num_taken = 0
        self._refuses_until = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = listen
        """Where it listens."""

    async def __aenter__(self) -> FaultProxy:
        """Listen."""
        self._server = await asyncio.start_server(self._came, *self._listen)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Listen no longer, and reset what is open."""
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections.values()):
            _reset(connection.client, connection.server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def num_open(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def play(self, faults: Iterable[Fault]) -> None:
        """Have each fault happen at its time; ends with the last of them."""
        started = asyncio.get_running_loop().time()
        for fault in faults:
            left_s = started + fault.at_s - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left_s))
            self.apply(fault)

    def apply(self, fault: Fault) -> None:
        """Have a fault happen now; without an open connection only a cut means anything."""
        if fault.kind == "cut":
            self._refuses_until = asyncio.get_running_loop().time() + fault.lasting_s
        number = None
        if self._connections:
            place = min(len(self._connections) - 1, int(fault.victim * len(self._connections)))
            victim = list(self._connections.values())[place]
            number = victim.number
            self._suffer(victim, fault)
        self._on_fault({**asdict(fault), "connection": number})

    def _suffer(self, victim: _Connection, fault: Fault) -> None:
        lanes = victim.lanes(fault.direction)
        match fault.kind:
            case "cut":
                _reset(victim.client, victim.server)
            case "duplicate":
                self._keep(self._say_again(bytes(victim.said), fault.lasting_s))
            case "delay":
                for lane in lanes:
                    lane.delay(fault.amount, fault.lasting_s)
            case "throttle":
                for lane in lanes:
                    lane.throttle(fault.amount, fault.lasting_s)
            case "black-hole":
                for lane in lanes:
                    lane.hold(fault.lasting_s)
            case "corrupt":
                for lane in lanes:
                    lane.spoil(math.ceil(fault.amount))
            case "half-close":
                for lane in lanes:
                    lane.end()

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(self._take(reader, writer))

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asyncio.get_running_loop().time() < self._refuses_until:
            _reset(writer)
            return
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                from_server, to_server = await asyncio.open_connection(*self._upstream)
        except OSError:  # of which a time-out is one
            _reset(writer)
            return
        said = bytearray()

        def remember(data: bytes) -> None:
            said.extend(data[: MOST_REMEMBERED - len(said)])

        connection = _Connection(
            number=self._num_taken,
            client=writer,
            server=to_server,
            up=Lane(reader, to_server, self._random, remember),
            down=Lane(from_server, writer, self._random, lambda _data: None),
            said=said,
        )
        self._num_taken += 1
        self._connections[connection.number] = connection
        try:
            await asyncio.gather(connection.up.run(), connection.down.run())
        finally:
            del self._connections[connection.number]
            for end in (writer, to_server):
                end.close()

    async def _say_again(self, said: bytes, lasting_s: float) -> None:
        """Be the client once more, for a while, and understand nothing."""
        with contextlib.suppress(OSError):  # the end of the time is one
            async with asyncio.timeout(lasting_s):
                reader, writer = await asyncio.open_connection(*self._upstream)
                try:
                    writer.write(said)
                    while await reader.read(MOST_REMEMBERED):
                        pass
                finally:
                    _reset(writer)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reset(*writers: asyncio.StreamWriter) -> None:
    """End connections as a machine does that has lost its memory: without a farewell."""
    for writer in writers:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_ONCE)
        writer.transport.abort()
