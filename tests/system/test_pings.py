"""The network stays awake while the model learns (case H21)."""

from __future__ import annotations

import itertools
import time

import numpy as np
from websockets.sync.client import ClientConnection, connect

from royale_client.driver import EnvDriver
from royale_client.envs.dummy import DummyConfig, make_driver
from royale_client.hello import make_hello
from royale_client.session import ClientSession, Welcomed
from royale_client.wire.version import SUBPROTOCOL
from tests.system import records
from tests.system.processes import DUMMY, PATIENCE_S, Processes, Server

PING_LIMIT_S = 0.1
PAUSE_S = 0.005
ONE_ITERATION = ("--algo.frames-per-iteration", 30, "--algo.total-timesteps", 30)


def join_as_onlooker(connection: ClientConnection, driver: EnvDriver | None = None) -> None:
    """Be welcomed as an evaluation client that then says nothing: it may stay and ping."""
    drivers = [driver or make_driver(DummyConfig(), 1)]
    hello = make_hello(drivers, client_name="onlooker", env_id="any", role="eval")
    session = ClientSession(hello)
    connection.send(session.start())
    (event,) = session.receive(connection.recv(PATIENCE_S))
    assert isinstance(event, Welcomed)


def ping_s(connection: ClientConnection) -> float:
    """Return how long a ping takes."""
    started = time.perf_counter()
    assert connection.ping().wait(PATIENCE_S)
    return time.perf_counter() - started


def ping_through_a_learn_step(processes: Processes, *flags, pair: tuple[str, ...] = DUMMY) -> str:
    """Ping a server that learns, and one that does nothing, in turn; check, and return numbers.

    The second tells what this machine makes of a ping while it is busy with other things.
    """
    server = processes.server(*flags, "--min-clients", 3, pair=pair)
    idle = processes.server(pair=DUMMY, runs=processes.directory / "idle")
    clients = [processes.client(server, "dummy-v1", name=f"c{i}") for i in range(2)]
    server.wait_for("client c1 joined|client c0 joined", times=2)
    with dial(server) as learning, dial(idle) as resting:
        for connection in (learning, resting):
            join_as_onlooker(connection)
        clients.append(processes.client(server, "dummy-v1", name="c2"))
        server.wait_for("; updating$")
        taken: list[tuple[float, float]] = []
        while not server.program.count("iteration 1:"):
            taken.append((ping_s(learning), ping_s(resting)))
            time.sleep(PAUSE_S)
    assert server.wait() == 0
    assert [client.wait() for client in clients] == [0, 0, 0]

    before_the_end = itertools.takewhile(
        lambda event: event["kind"] != "ended", records.events(server.run)
    )
    gone = [event for event in before_the_end if event["kind"] in ("left", "fault")]
    assert {event.get("client") for event in gone} <= {"onlooker"}
    for client in clients:
        client.wait_for("waiting for the server: learning since")
        assert client.count("connected to") == 1
    busy, control = np.percentile(np.array(taken), 99, axis=0)
    text = f"{len(taken)} pings: p99 {busy * 1e3:.1f} ms learning, {control * 1e3:.1f} ms at rest"
    assert busy < PING_LIMIT_S + control, text
    return text


def dial(server: Server) -> ClientConnection:
    return connect(server.url, subprotocols=[SUBPROTOCOL], proxy=None)


def test_pings_are_answered_and_clients_told_why_they_wait_during_a_learn_step(
    processes: Processes,
):
    print(ping_through_a_learn_step(processes, *ONE_ITERATION, "--algo.learn-s", 4))
