"""A million messages that no client should send, and ten thousand over real connections."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from royale_client.envs.digest import env_digest
from royale_client.envs.dummy import DummyConfig
from royale_client.envs.registry import find_provider
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello, Welcome, decode_message, encode_message
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_client.wire.version import SUBPROTOCOL
from tests.hostile import hostile
from tests.protocol.lying import bombard
from tests.resident import resident_bytes
from tests.system.processes import DUMMY, Processes, Server
from tests.wire.builders import make_step

MIB = 2**20
MOST_GROWN_BYTES = 50 * MIB
OVER_SOCKETS = 10_000
VISITORS = 8

NOTHING_TO_SAVE = 130

pytestmark = pytest.mark.chaos


@pytest.mark.timeout(3600)
def test_a_million_hostile_messages_leave_no_trace_in_memory(capsys):
    bombard(20_000, seed=2)  # what grows once, such as caches, has grown
    before = resident_bytes()
    for part in range(10):
        bombard(100_000, seed=3 + part)
    grown = resident_bytes() - before
    with capsys.disabled():
        print(f"\nafter 1,000,000 hostile messages: {grown / MIB:.1f} MiB more")
    assert grown < MOST_GROWN_BYTES


def stranger(random: Random, number: int) -> Hello:
    """A client that the run would take, under a name of its own."""
    observation, action = BoxSpec(0.0, 1.0, (8,), "float32"), DiscreteSpec(4)
    facts = find_provider("dummy-v1").facts(DummyConfig())
    return Hello(
        client_name=f"stranger-{number}",
        process_id=f"p-{number}",
        role=random.choice(("train", "eval", "eval")),
        env_id="dummy-v1",
        env_digest=env_digest("dummy-v1", facts, observation, action),
        observation_space=observation,
        action_space=action,
        groups=(2,),
    )


def visit(server: Server, random: Random, number: int) -> int:
    """Connect, say some true things and then false ones until it is over; return how many."""
    hello, sent = stranger(random, number), 0
    with (
        contextlib.suppress(ConnectionClosed),
        connect(
            server.url, subprotocols=[SUBPROTOCOL], proxy=None, compression=None, close_timeout=1
        ) as connection,
    ):
        if random.random() < 0.8:
            greet(connection, hello)
            good = encode_message(make_step(hello))
        else:
            good = encode_message(hello)
        while True:
            sent += 1
            connection.send(hostile(random, good))
            with contextlib.suppress(TimeoutError):  # one that was right by chance
                while True:
                    connection.recv(0.005)
    return sent


def bombard_over_sockets(server: Server, messages: int, first: int) -> tuple[int, int]:
    """Visit until so many messages are sent; return how many were, and on how many connections."""
    sent = number = 0
    with ThreadPoolExecutor(VISITORS) as visitors:
        while sent < messages:
            numbers = range(first + number, first + number + 4 * VISITORS)
            sent += sum(visitors.map(lambda n: visit(server, Random(n), n), numbers))
            number += len(numbers)
    return sent, number


def greet(connection: ClientConnection, hello: Hello) -> None:
    """Say hello and wait for the welcome."""
    connection.send(encode_message(hello))
    answer = decode_message(connection.recv(30, decode=False), Limits())
    assert isinstance(answer, Welcome), answer


@pytest.mark.timeout(3600)
def test_ten_thousand_hostile_messages_over_sockets_cost_their_senders_only(
    processes: Processes, capsys
):
    flags = ("--algo.total-timesteps", 10**9, "--max-log-rate", 1000, "--close-wait", 0.05)
    server = processes.server(*flags, pair=DUMMY)
    good = processes.client(server, "dummy-v1", "--step-ms", 5, name="good")
    server.wait_for("client good joined")
    bombard_over_sockets(server, 500, first=0)  # what grows once has grown
    before = resident_bytes(server.program.pid)
    sent, number = bombard_over_sockets(server, OVER_SOCKETS, first=10_000)
    grown = resident_bytes(server.program.pid) - before
    with capsys.disabled():
        print(f"\n{sent} messages on {number} connections: {grown / MIB:.1f} MiB more")
    assert good.is_running()
    assert good.count("connected to") == 1
    server.interrupt()
    assert (server.wait(), good.wait()) == (NOTHING_TO_SAVE, 0)
    assert "Traceback" not in server.output
    assert grown < MOST_GROWN_BYTES
