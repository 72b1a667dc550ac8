"""Whoever connects and speaks something else: answered or closed, one line, no harm (case H31)."""

from __future__ import annotations

import random
import re
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from royale_client.session import ClientSession, Faulted
from royale_client.wire.codec import encode
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello, decode_message
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_client.wire.version import PROTOCOL_MAX, SUBPROTOCOL
from tests.system.processes import CARTPOLE, Processes, Server, eventually

ANSWER_LIMIT_S = 5.0
COMPLAINT = re.compile(r"^\S+ (WARNING|ERROR) +(?!alarm )")
"""What is said of strangers; alarms of so small a run are none of their business."""
CARTPOLE_BOUND = 4.8

HELLO = Hello(
    client_name="stranger",
    process_id="p",
    env_id="CartPole-v1",
    observation_space=BoxSpec(-CARTPOLE_BOUND, CARTPOLE_BOUND, (4,), "float32"),
    action_space=DiscreteSpec(2),
    groups=(1,),
)
"""Never looked at beyond its version."""


def raw(data: bytes) -> Callable[[Server], bytes]:
    """Send bytes over a bare connection; return whatever comes until it is closed."""

    def visit(server: Server) -> bytes:
        with socket.create_connection((server.host, server.port), ANSWER_LIMIT_S) as connection:
            connection.sendall(data)
            answer = b""
            while received := connection.recv(4096):
                answer += received
            return answer

    return visit


def spoken(message: bytes | str) -> Callable[[Server], bytes]:
    """Send one message over a WebSocket; return the answer before it is closed."""

    def visit(server: Server) -> bytes:
        with connect(server.url, subprotocols=[SUBPROTOCOL], proxy=None) as connection:
            connection.send(message)
            answer = connection.recv(ANSWER_LIMIT_S, decode=False)
            with pytest.raises(ConnectionClosed):
                connection.recv(ANSWER_LIMIT_S)
            return answer

    return visit


def hello_with(**changes: object) -> bytes:
    """A hello with other header entries; None leaves an entry out."""
    header, arrays = HELLO.to_wire()
    header = {k: v for k, v in (header | changes).items() if v is not None}
    return encode(header, arrays)


def tls_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


NEWER = PROTOCOL_MAX + 1
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BLOB = random.Random(7).randbytes(4096)
SPEECHES = {
    "version 0": (spoken(hello_with(protocol=[0, 0])), "upgrade the client"),
    "version +1": (spoken(hello_with(protocol=[NEWER, NEWER])), "upgrade the server"),
    "version missing": (spoken(hello_with(protocol=None)), "upgrade"),
    "text version": (spoken(hello_with(protocol="one")), "upgrade"),
    "text": (spoken("hello"), "binary"),
    "random message": (spoken(BLOB), "malformed|header"),
}
NOISES = {
    "http": raw(HTTP),
    "tls": raw(tls_hello()),
    "blob": raw(BLOB),
    "line": raw(BLOB + b"\r\n"),
}


def complaints(server: Server) -> list[str]:
    return [line for line in server.output.splitlines() if COMPLAINT.match(line)]


def has_more_complaints(server: Server, before: int) -> bool:
    return len(complaints(server)) > before


def test_strangers_are_answered_or_closed_with_one_line_each_and_the_run_goes_on(
    processes: Processes,
):
    small = ("--algo.frames-per-iteration", 64, "--algo.num-epochs", 1)
    server = processes.server(*small, "--log-level", "debug")
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    server.wait_for("iteration 1:")

    for name, (visit, sentence) in SPEECHES.items():
        before = len(complaints(server))
        started = time.monotonic()
        fault = decode_message(visit(server), Limits())
        assert time.monotonic() - started < ANSWER_LIMIT_S, name
        assert re.search(sentence, fault.message), (name, fault.message)
        eventually(partial(has_more_complaints, server, before), f"a line about {name}")
        assert len(complaints(server)) == before + 1, (name, complaints(server)[before:])
    for name, visit in NOISES.items():
        before = len(complaints(server))
        started = time.monotonic()
        answer = visit(server)
        assert time.monotonic() - started < ANSWER_LIMIT_S, name
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), (name, answer)
        eventually(partial(has_more_complaints, server, before), f"a line about {name}")
        assert len(complaints(server)) == before + 1, (name, complaints(server)[before:])

    rounds = server.program.count("iteration ")
    eventually(lambda: server.program.count("iteration ") > rounds, "the run goes on")
    server.interrupt()
    assert (server.wait(), client.wait()) == (0, 0)
    assert "disconnect" not in client.output


def test_client_of_another_version_ends_at_once_and_says_what_to_upgrade(processes: Processes):
    # The session of a client of today, told what a server of tomorrow would tell it.
    server = processes.server()
    session = ClientSession(HELLO)
    session.start()
    with connect(server.url, subprotocols=[SUBPROTOCOL], proxy=None) as connection:
        connection.send(hello_with(protocol=[NEWER, NEWER]))
        (event,) = session.receive(connection.recv(ANSWER_LIMIT_S))
    assert isinstance(event, Faulted)
    assert event.fault.code == "version"
    assert f"client {NEWER} to {NEWER}" in event.fault.message
