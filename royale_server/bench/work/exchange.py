"""Raw WebSocket exchange of the same bytes: the product's transport without the product.

The same library, server on its asyncio and clients on its blocking interface, each in a process of
its own; a message as long as a step goes up, one as long as its answer comes back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from websockets.asyncio.server import ServerConnection, serve
from websockets.sync.client import connect

from royale_client.wire.messages import encode_message
from royale_server.bench.work import sockets
from royale_server.bench.work.sizes import LeafData, make_answer, make_step
from royale_server.bench.work.timing import WARM_UP_S


def measure(
    *, clients: int, rows: int, leaves: Sequence[LeafData], seconds: float
) -> dict[str, float]:
    """Return round trips, the frames they could carry, and bytes, per second.

    Args:
        clients: Client processes, each with one message in flight.
        rows: Rows of a message.
        leaves: Leaves of an observation.
        seconds: Length of the window.
    """
    step = make_step(rows, leaves)
    found = sockets.run(_serve(clients, len(encode_message(step)), make_answer(rows), seconds))
    assert found is not None, "the server's coroutine returns what it measured"
    observation_bytes = sum(leaf.nbytes for leaf in step.observations)
    trips = found["round_trips_per_s"]
    return {
        **found,
        "collect_per_s": trips * rows,
        "gb_per_s": trips * observation_bytes / 1e9,
    }


async def _serve(
    clients: int, request_bytes: int, answer: bytes, seconds: float
) -> dict[str, float]:
    count = 0
    missing, all_here = clients, asyncio.Event()

    async def exchange(connection: ServerConnection) -> None:
        nonlocal count, missing
        missing -= 1
        if not missing:
            all_here.set()
        async for _ in connection:
            count += 1
            await connection.send(answer)

    async with serve(exchange, sockets.HOST, 0, **sockets.SETTINGS) as server:
        port = server.sockets[0].getsockname()[1]
        processes = sockets.start_clients(_client, port, clients, request_bytes)
        try:
            async with asyncio.timeout(sockets.START_S):
                await all_here.wait()
            await asyncio.sleep(WARM_UP_S)
            started, before = time.perf_counter(), count
            await asyncio.sleep(seconds)
            elapsed = time.perf_counter() - started
            return {"round_trips_per_s": (count - before) / elapsed}
        finally:
            sockets.end(processes)


def _client(port: int, number: int, request_bytes: int) -> None:
    message = bytes([number % 256]) * request_bytes
    with connect(f"ws://{sockets.HOST}:{port}", **sockets.SETTINGS) as connection:
        while True:
            connection.send(message)
            connection.recv()
