"""Two hundred wrong tokens a second, while clients train: nobody with the right one notices."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from royale_client.session import Answered, ClientSession
from royale_client.transport import ServerAddress
from royale_client.websocket_transport import connect
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL
from tests.chaos.test_hostile_messages import stranger
from tests.system.processes import DUMMY, Processes, Server
from tests.wire.builders import make_step

TOKEN = "8s-Kq.2vX_pL-73bd"
A_SECOND = 200
SECONDS = 15.0
PAUSE_S = 0.01
MOST_CPU = 0.1
MOST_SLOWER = 1.5
NOTICEABLE_S = 0.002
"""Latencies below this are one turn of the scheduler of a busy machine."""

NOTHING_TO_SAVE = 130

pytestmark = pytest.mark.chaos

REQUEST = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\nAuthorization: Bearer wrong\r\n\r\n"
).encode()


class Flood:
    """Connections with a wrong token, evenly spaced, from a thread of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.answers: list[bytes] = []
        self._is_over = False

    @contextmanager
    def running(self) -> Iterator[Flood]:
        """Flood while the block runs."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        thread.start()
        try:
            yield self
        finally:
            self._is_over = True
            thread.join()

    async def _run(self) -> None:
        started, tasks = time.monotonic(), []
        while not self._is_over:
            tasks.append(asyncio.create_task(self._one()))
            due = started + len(tasks) / A_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*tasks)

    async def _one(self) -> None:
        reader, writer = await asyncio.open_connection(self._server.host, self._server.port)
        writer.write(REQUEST)
        self.answers.append(await reader.readline())
        writer.close()


class Asker:
    """A session for evaluation that asks again and again, and times the answers."""

    def __init__(self, server: Server) -> None:
        self._hello = replace(stranger(Random(2), 0), role="eval")
        address = ServerAddress(url=server.url, token=TOKEN)
        self._transport = connect(address, Limits())
        self._session = ClientSession(self._hello)
        self._transport.send(self._session.start())
        self._session.receive(self._next())
        self._number = 0

    def _next(self) -> bytes:
        data = self._transport.receive(30)
        assert data is not None, "no answer within 30 s"
        return data

    def latencies(self, seconds: float) -> list[float]:
        """Ask for so long; return how long each answer took."""
        taken, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            self._number += 1
            step = make_step(self._hello, request=self._number)
            data = self._session.step(
                0,
                observations=step.observations,
                rewards=step.rewards,
                terminated=step.terminated,
                truncated=step.truncated,
            )
            asked = time.monotonic()
            self._transport.send(data)
            while not any(isinstance(e, Answered) for e in self._session.receive(self._next())):
                pass
            taken.append(time.monotonic() - asked)
            time.sleep(PAUSE_S)
        return taken

    def close(self) -> None:
        """Leave."""
        self._transport.close(1000, "")


def cpu_s(server: Server) -> float:
    """Processor time that the server has used."""
    fields = Path(f"/proc/{server.program.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server: Server, asker: Asker) -> tuple[float, float]:
    """Return the share of a core that the server used, and the 99th percentile of answers."""
    before, started = cpu_s(server), time.monotonic()
    taken = asker.latencies(SECONDS)
    share = (cpu_s(server) - before) / (time.monotonic() - started)
    return share, float(np.percentile(taken, 99))


@pytest.mark.timeout(300)
def test_flood_of_wrong_tokens_costs_little_and_refuses_nobody(processes: Processes, capsys):
    with_token = {"ROYALE_TOKEN": TOKEN}
    server = processes.server("--algo.total-timesteps", 10**9, pair=DUMMY, environment=with_token)
    clients = [
        processes.client(
            server, "dummy-v1", "--num-envs", 8, "--step-ms", 20, name=name, environment=with_token
        )
        for name in ("a", "b", "c", "d")
    ]
    server.wait_for("iteration 3:", timeout_s=120)
    asker = Asker(server)
    asker.latencies(2.0)
    calm = [measure(server, asker)]
    flood = Flood(server)
    with flood.running():
        flooded = measure(server, asker)
        late = processes.client(
            server, "dummy-v1", "--num-episodes", 1, name="late", environment=with_token
        )
        assert late.wait() == 0
    calm.append(measure(server, asker))
    asker.close()
    cpu = flooded[0] - sum(share for share, _ in calm) / 2
    quiet_p99 = max(NOTICEABLE_S, *(p99 for _, p99 in calm))
    with capsys.disabled():
        print(
            f"\n{len(flood.answers)} wrong tokens in {SECONDS:g} s: {cpu:.1%} of a core; p99 of "
            f"answers {1e3 * flooded[1]:.1f} ms, without {[f'{1e3 * p:.1f}' for _, p in calm]} ms"
        )
    assert len(flood.answers) >= 0.9 * A_SECOND * SECONDS
    assert set(flood.answers) == {b"HTTP/1.1 401 Unauthorized\r\n"}
    assert cpu <= MOST_CPU
    assert flooded[1] <= MOST_SLOWER * quiet_p99
    assert server.program.count("token missing or wrong") <= 25
    for client in clients:
        assert client.is_running()
        assert client.count("connected to") == 1
    server.interrupt()
    assert server.wait() == NOTHING_TO_SAVE
