"""The protocol version is read before anything else of a hello (case H31)."""

from __future__ import annotations

from typing import Any

import pytest

from royale_client.session import ClientSession, Faulted
from royale_client.wire.codec import encode
from royale_client.wire.errors import ProtocolError, VersionMismatchError
from royale_client.wire.version import PROTOCOL_MAX, PROTOCOL_MIN
from royale_server.endpoint.session import ServerSession
from tests.wire.builders import make_hello

MISSING = object()


def hello_with(protocol: Any, **others: Any) -> bytes:
    header, arrays = make_hello().to_wire()
    header = {**header, "protocol": protocol, **others}
    if protocol is MISSING:
        del header["protocol"]
    return encode(header, arrays)


@pytest.mark.parametrize(
    ("protocol", "got"),
    [
        ([0, 0], "client 0 to 0"),
        ([PROTOCOL_MAX + 1, PROTOCOL_MAX + 1], f"client {PROTOCOL_MAX + 1} to"),
        (MISSING, "nothing"),
        ("one", "'one'"),
        (1, "1"),
        ([1], "[1]"),
        (["1", "1"], "['1', '1']"),
        ([True, True], "[True, True]"),
        (None, "None"),
    ],
    ids=["0", "+1", "missing", "text", "number", "short", "texts", "booleans", "nil"],
)
def test_another_version_is_named_with_ours(protocol: Any, got: str) -> None:
    with pytest.raises(VersionMismatchError) as caught:
        ServerSession().receive(hello_with(protocol))
    assert got in caught.value.sentence
    assert f"{PROTOCOL_MIN} to {PROTOCOL_MAX}" in caught.value.sentence
    assert "upgrade" in caught.value.remedy


def test_a_version_mismatch_is_reported_even_if_all_else_changed() -> None:
    header = {"t": "hello", "protocol": [7, 9], "a": "another table", "spaces": [1, 2]}
    front = encode({**header, "x": 1}, {})
    with pytest.raises(VersionMismatchError, match="client 7 to 9"):
        ServerSession().receive(front + b"a tail of another kind")


def test_a_client_that_also_speaks_newer_versions_is_admitted_with_ours() -> None:
    server = ServerSession()
    server.receive(hello_with([PROTOCOL_MIN, PROTOCOL_MAX + 5]))
    assert server.protocol == PROTOCOL_MAX


def test_the_client_learns_that_it_must_upgrade_and_not_retry() -> None:
    server, client = ServerSession(), ClientSession(make_hello())
    client.start()
    with pytest.raises(VersionMismatchError) as caught:
        server.receive(hello_with([0, 0]))
    (event,) = client.receive(server.fault_of(caught.value))
    assert isinstance(event, Faulted)
    assert event.fault.code == "version"
    assert "upgrade the client" in event.fault.message


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
        bytes(range(256)) * 16,
        bytes(4096),
        b"",
    ],
    ids=["plain HTTP", "TLS hello", "4 KiB blob", "4 KiB of zeros", "empty"],
)
def test_what_is_no_hello_at_all_is_refused_in_one_sentence(data: bytes) -> None:
    server = ServerSession()
    with pytest.raises(ProtocolError) as caught:
        server.receive(data)
    assert "Traceback" not in caught.value.sentence
    assert server.fault_of(caught.value)
