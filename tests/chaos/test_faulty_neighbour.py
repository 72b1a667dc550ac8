"""One faulty client among fifty good ones at one address: the fifty see nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from royale_client.session import Answered, ClientSession, Faulted
from royale_client.wire.messages import encode_message
from royale_client.wire.version import SUBPROTOCOL
from tests.chaos.test_hostile_messages import stranger
from tests.hostile import hostile
from tests.system.processes import DUMMY, Processes, Server
from tests.wire.builders import make_step

GOOD = 50
WARM_UP_S = 3.0
SECONDS = 8.0
STEP_S = 0.1
MOST_SLOWER = 1.5
NOTICEABLE_S = 0.02
"""Fifty sessions in one process make each other wait so long on a busy machine."""

NOTHING_TO_SAVE = 130

pytestmark = pytest.mark.chaos


class GoodClient:
    """A session that plays on until it is told not to, and times its answers."""

    def __init__(self, number: int) -> None:
        self.hello = replace(stranger(Random(1), number), client_name=f"arm-{number}", role="train")
        self.session = ClientSession(self.hello)
        self.answers: list[tuple[float, float]] = []
        """When each answer came, and how long it took."""
        self.faults: list[str] = []
        self.connections = 0

    async def play(self, server: Server, is_over: asyncio.Event) -> None:
        """Connect once and play."""
        settings = {"subprotocols": [SUBPROTOCOL], "compression": None, "proxy": None}
        async with connect(server.url, **settings) as connection:
            self.connections += 1
            await connection.send(self.session.start())
            while self.session.welcome is None:
                self.session.receive(await connection.recv())
            request = 0
            while not is_over.is_set():
                request += 1
                await self._turn(connection, request)
                await asyncio.sleep(STEP_S)
            await connection.send(self.session.goodbye("done"))

    async def _turn(self, connection: ClientConnection, request: int) -> None:
        step = make_step(self.hello, request=request)
        asked = time.monotonic()
        await connection.send(
            self.session.step(
                0,
                observations=step.observations,
                rewards=step.rewards,
                terminated=step.terminated,
                truncated=step.truncated,
            )
        )
        is_answered = False
        while not is_answered:
            for event in self.session.receive(await connection.recv()):
                is_answered |= isinstance(event, Answered)
                if isinstance(event, Faulted):
                    self.faults.append(event.fault.message)
        now = time.monotonic()
        self.answers.append((now, now - asked))


async def misbehave(server: Server, is_over: asyncio.Event) -> int:
    """Join under one name again and again and break the protocol; return how many times."""
    random, times = Random(3), 0
    hello = stranger(random, 999)
    settings = {"subprotocols": [SUBPROTOCOL], "compression": None, "proxy": None}
    while not is_over.is_set():
        times += 1
        with contextlib.suppress(ConnectionClosed):
            async with connect(server.url, **settings) as connection:
                await connection.send(encode_message(hello))
                await connection.recv()
                while True:
                    await connection.send(hostile(random, encode_message(make_step(hello))))
                    await asyncio.sleep(0)
    return times


async def scenario(server: Server) -> tuple[list[GoodClient], list[float], int]:
    """Fifty play, undisturbed, then disturbed; returns them, three times, and the disturbances."""
    good = [GoodClient(number) for number in range(GOOD)]
    is_over, is_quiet = asyncio.Event(), asyncio.Event()
    playing = [asyncio.create_task(client.play(server, is_over)) for client in good]
    await asyncio.sleep(WARM_UP_S)
    marks = [time.monotonic()]
    await asyncio.sleep(SECONDS)
    marks.append(time.monotonic())
    disturbing = asyncio.create_task(misbehave(server, is_quiet))
    await asyncio.sleep(SECONDS)
    marks.append(time.monotonic())
    is_quiet.set()
    times = await disturbing
    is_over.set()
    await asyncio.gather(*playing)
    return good, marks, times


def between(good: list[GoodClient], begin: float, end: float) -> list[float]:
    """How long the answers of a time took."""
    return [took for client in good for at, took in client.answers if begin <= at < end]


@pytest.mark.timeout(300)
def test_faulty_client_among_fifty_good_ones_is_noticed_by_none(processes: Processes, capsys):
    server = processes.server("--algo.total-timesteps", 10**9, "--min-clients", GOOD, pair=DUMMY)
    good, marks, times = asyncio.run(scenario(server))
    calm, disturbed = between(good, *marks[:2]), between(good, *marks[1:])
    p99s = [float(np.percentile(taken, 99)) for taken in (calm, disturbed)]
    with capsys.disabled():
        print(
            f"\n{times} visits of a faulty client: {len(disturbed)} answers with p99 "
            f"{1e3 * p99s[1]:.1f} ms; before {len(calm)} with {1e3 * p99s[0]:.1f} ms"
        )
    assert [client.faults for client in good] == [[]] * GOOD
    assert [client.connections for client in good] == [1] * GOOD
    assert len(disturbed) >= 0.9 * len(calm)
    assert p99s[1] <= MOST_SLOWER * max(NOTICEABLE_S, p99s[0])
    assert times > 20
    assert server.program.count("quarantine") >= 1
    server.interrupt()
    assert server.wait() == NOTHING_TO_SAVE
