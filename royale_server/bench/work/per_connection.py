"""A model of scheduling one environment per connection, as networked policy servers do it.

Every environment has a WebSocket of its own. The server waits for one request of every connection,
infers them as one batch and answers each; then every client sends its feedback in a message of its
own, and the server waits for all of those. Messages are msgpack with raw bytes, the library's
asyncio on both sides. A model of that contract, and no particular program.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgpack
import numpy as np
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from royale_server.bench import yardstick
from royale_server.bench.work import sockets
from royale_server.bench.work.networks import NUM_OBSERVATIONS, Floats, Towers
from royale_server.bench.work.rollout import one_thread
from royale_server.bench.work.timing import WARM_UP_S


def measure(*, connections: int, processes: int, seconds: float) -> dict[str, float]:
    """Return environment steps per second.

    Args:
        connections: Environments, with a connection each.
        processes: Processes that the clients are spread over.
        seconds: Length of the window.
    """
    one_thread()
    found = sockets.run(_Server(connections, processes).serve(seconds))
    assert found is not None, "the server's coroutine returns what it measured"
    return found


class _Server:
    """Serves rounds until the window is over."""

    def __init__(self, connections: int, processes: int) -> None:
        self._wanted = connections
        self._processes = processes
        self._net = Towers(yardstick.WIDTH)
        self._connections: list[ServerConnection] = []
        self._is_full = asyncio.Event()
        shape = (yardstick.STEPS, connections)
        self._observations = np.zeros((*shape, NUM_OBSERVATIONS), np.float32)
        self._columns = np.zeros((5, *shape), np.float32)
        self._t = 0

    async def serve(self, seconds: float) -> dict[str, float]:
        """Listen, start the clients, and count."""
        async with serve(self._accept, sockets.HOST, 0, **sockets.SETTINGS) as server:
            port = server.sockets[0].getsockname()[1]
            counts = [len(part) for part in np.array_split(range(self._wanted), self._processes)]
            clients = sockets.start_clients(_run_clients, port, self._processes, counts)
            try:
                async with asyncio.timeout(sockets.START_S):
                    await self._is_full.wait()
                await self._rounds(WARM_UP_S)
                return {"collect_per_s": await self._rounds(seconds)}
            finally:
                sockets.end(clients)

    async def _accept(self, connection: ServerConnection) -> None:
        self._connections.append(connection)
        if len(self._connections) == self._wanted:
            self._is_full.set()
        await connection.wait_closed()

    async def _rounds(self, seconds: float) -> float:
        started, steps = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < seconds:
            await self._round()
            steps += self._wanted
        return steps / elapsed

    async def _round(self) -> None:
        """Ask, infer, answer, and take the feedback."""
        requests = await self._messages()
        observations: Floats = np.stack(
            [np.frombuffer(request["obs"], np.float32) for request in requests]
        )
        sample = self._net.sample(observations)
        for connection, action in zip(self._connections, sample.actions, strict=True):
            await connection.send(msgpack.packb({"action": int(action)}))
        feedback = await self._messages()
        t = self._t = (self._t + 1) % yardstick.STEPS
        self._observations[t] = observations
        self._columns[:2, t] = sample.log_probs, sample.values
        for column, key in enumerate(("reward", "terminated", "truncated"), start=2):
            self._columns[column, t] = [answer[key] for answer in feedback]

    async def _messages(self) -> list[dict[str, Any]]:
        """One message of every connection."""
        messages = await asyncio.gather(*(each.recv() for each in self._connections))
        return [msgpack.unpackb(message) for message in messages]


def _run_clients(port: int, number: int, counts: list[int]) -> None:
    first = sum(counts[:number])
    sockets.run(_clients(port, range(first, first + counts[number])))


async def _clients(port: int, seeds: range) -> None:
    await asyncio.gather(*(_client(port, seed) for seed in seeds))


async def _client(port: int, seed: int) -> None:
    import gymnasium

    environment = gymnasium.make(yardstick.ENV_ID)
    observation, _ = environment.reset(seed=seed)
    async with connect(f"ws://{sockets.HOST}:{port}", **sockets.SETTINGS) as connection:
        while True:
            await connection.send(msgpack.packb({"obs": observation.tobytes()}))
            action = msgpack.unpackb(await connection.recv())["action"]
            observation, reward, terminated, truncated, _ = environment.step(action)
            feedback = {"reward": reward, "terminated": terminated, "truncated": truncated}
            await connection.send(msgpack.packb({**feedback, "next_obs": observation.tobytes()}))
            if terminated or truncated:
                observation, _ = environment.reset()
