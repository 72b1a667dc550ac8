"""A server is killed and resumed, and two hundred and twenty clients come back at once.

Two hundred of them are sessions of one generator, all of which dial within a second; twenty are
real processes. All have one address.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from royale_client.session import Answered, ClientSession, Faulted
from royale_client.wire.version import SUBPROTOCOL
from tests.chaos.stopwatch import LAG, read
from tests.chaos.test_hostile_messages import stranger
from tests.system import records
from tests.system.processes import Processes, Server, eventually
from tests.wire.builders import make_step

SESSIONS, REAL = 200, 20
WITHIN_S, BACK_S = 1.0, 10.0
MOST_LAG_S = 0.25
STEP_S = 0.25
"""Pause of each session between two requests."""

pytestmark = pytest.mark.chaos


class Returning:
    """A session that plays, and dials again at a moment it is told when its server is gone."""

    def __init__(self, number: int) -> None:
        self._hello = replace(stranger(Random(1), number), client_name=f"s{number}", role="train")
        self.answered_at: list[float] = []
        """When the first answer came over each connection."""
        self.refusals: list[str] = []

    async def play(self, server: Server) -> None:
        """Connect and play until the connection is lost."""
        settings = {"subprotocols": [SUBPROTOCOL], "compression": None, "proxy": None}
        try:
            async with connect(server.url, **settings, open_timeout=60) as connection:
                session = ClientSession(self._hello)
                await connection.send(session.start())
                while session.welcome is None:
                    self._note(session.receive(await connection.recv()))
                for request in itertools.count(1):
                    await self._turn(connection, session, request)
        except InvalidHandshake as error:
            self.refusals.append(str(error))
        except (WebSocketException, OSError):
            return

    async def _turn(
        self, connection: ClientConnection, session: ClientSession, request: int
    ) -> None:
        number = session.welcome.last_requests[0] + request
        is_first = request == 1
        step = make_step(self._hello, request=number)
        outcome = {} if is_first else {"rewards": step.rewards}
        outcome |= {} if is_first else {"terminated": step.terminated, "truncated": step.truncated}
        data = session.step(0, observations=step.observations, **outcome)
        await connection.send(data)
        while not any(
            isinstance(e, Answered) for e in self._note(session.receive(await connection.recv()))
        ):
            pass
        if is_first:
            self.answered_at.append(time.monotonic())
        await asyncio.sleep(STEP_S)

    def _note(self, events: list) -> list:
        self.refusals += [e.fault.message for e in events if isinstance(e, Faulted)]
        return events


class Generator:
    """All sessions, on a loop in a thread of its own."""

    def __init__(self) -> None:
        self.sessions = [Returning(number) for number in range(SESSIONS)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._playing: list[asyncio.Task[None]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have the loop while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def dial(self, server: Server) -> None:
        """Begin to connect with all sessions, spread over the time they have for it."""
        asyncio.run_coroutine_threadsafe(self._dial(server), self._loop).result()

    async def _dial(self, server: Server) -> None:
        self._playing = [
            asyncio.create_task(self._later(session, place * WITHIN_S / SESSIONS, server))
            for place, session in enumerate(self.sessions)
        ]

    async def _later(self, session: Returning, pause_s: float, server: Server) -> None:
        await asyncio.sleep(pause_s)
        await session.play(server)

    async def _end(self) -> None:
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)

    def wait(self, times: int, until: float) -> None:
        """Wait until all sessions have had their first answer over so many connections."""
        while not all(len(session.answered_at) >= times for session in self.sessions):
            count = sum(len(session.answered_at) >= times for session in self.sessions)
            assert time.monotonic() < until, f"{count} of {SESSIONS} have an answer"
            time.sleep(0.05)


@pytest.mark.timeout(400)
def test_two_hundred_and_twenty_clients_are_back_within_ten_seconds_of_a_restart(
    processes: Processes, capsys
) -> None:
    stopwatch = processes.directory / "stopwatch.jsonl"
    flags = (
        *("--algo.frames-per-iteration", 4096, "--algo.total-timesteps", 10**9),
        *("--algo.num-epochs", 1),
        *("--exp-name", "storm", "--save-every", 1),
        *("--plugin", Path(__file__).with_name("stopwatch.py")),
    )
    environment = {"STOPWATCH_FILE": str(stopwatch)}
    server = processes.server(*flags, environment=environment)
    generator = Generator()
    with generator.running():
        generator.dial(server)
        real = [
            processes.client(server, "dummy-v1", "--step-ms", 100, name=f"r{number}")
            for number in range(REAL)
        ]
        generator.wait(times=1, until=time.monotonic() + 60)
        for number in range(REAL):
            server.wait_for(f"client r{number} joined")
        eventually(lambda: records.steps(server.run), "a checkpoint with all of them")
        server.program.signal(signal.SIGKILL)
        processes.may_crash.append(server.program)
        server.program.wait()
        again = processes.server(*flags, "--resume", port=server.port, environment=environment)
        listening_at = time.monotonic()
        generator.dial(again)
        for number in range(REAL):
            again.wait_for(f"client r{number} joined", timeout_s=60)
        real_s = time.monotonic() - listening_at
        generator.wait(times=2, until=listening_at + 60)
        back_at = max(session.answered_at[1] for session in generator.sessions)
        lags = read(stopwatch, lambda one: one.client == LAG and one.at > listening_at)
        with capsys.disabled():
            print(
                f"\n{SESSIONS} sessions have answers {back_at - listening_at:.1f} s after the "
                f"restart, {REAL} clients are back after {real_s:.1f} s; the loop lagged by "
                f"{max(lags):.3f} s at most"
            )
        again.interrupt()
        assert again.wait() == 0
    assert [client.wait() for client in real] == [0] * REAL
    assert [session.refusals for session in generator.sessions] == [[]] * SESSIONS
    assert {event["kind"] for event in records.events(again.run)} & {"fault", "refused"} == set()
    assert max(back_at - listening_at, real_s) < BACK_S
    assert max(lags) < MOST_LAG_S
