"""Images above a mebibyte travel; a flood does not (cases H20 and H26)."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from royale_client.wire.version import SUBPROTOCOL
from tests.system import records
from tests.system.processes import DUMMY, Processes, Program, Server

MEBIBYTE = 2**20
FLOOD_BYTES = 2 * 2**30
CUT_OFF_LIMIT_S = 10.0
MESSAGE_LIMIT_BYTES = 64 * MEBIBYTE

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    ("image", "slots", "message_bytes"),
    [
        # 84 x 84 x 4 bytes: 37 slots are 1,044,288 bytes, below the library's own limit of
        # 1,048,576; 38 are 1,072,512.
        ((84, 84, 4), 38, 1_072_512),
        # A colour camera of 640 x 480 is 921,600 bytes.
        ((480, 640, 3), 2, 1_843_200),
    ],
    ids=["frame stacks", "cameras"],
)
def test_thousand_frames_of_images_train_over_one_connection(
    processes: Processes, image, slots, message_bytes
):
    height, width, channels = image
    assert height * width * channels * slots == message_bytes
    sizes = ("--algo.frames-per-iteration", 100, "--algo.total-timesteps", 1000)
    server = processes.server(*sizes, "--max-slots", slots, pair=DUMMY)
    client = processes.client(server, "dummy-v1", "--image", *image, "--num-envs", slots)
    assert (server.wait(), client.wait()) == (0, 0)
    assert client.count("connected to") == 1
    assert records.metrics(server.run)[-1]["run/step"] >= 1000


def peak_kb(server: Server) -> int:
    """Largest memory that the server ever held."""
    status = Path(f"/proc/{server.program.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


def start(processes: Processes) -> tuple[Server, Program]:
    """Start a server with a client that trains."""
    server = processes.server("--algo.total-timesteps", 10**9, "--log-level", "debug", pair=DUMMY)
    client = processes.client(server, "dummy-v1", "--step-ms", 1)
    server.wait_for("iteration 1:")
    return server, client


def assert_goes_on(server: Server, client: Program) -> None:
    server.wait_for("iteration ", times=server.program.count("iteration ") + 2)
    assert client.count("connected to") == 1
    assert client.is_running()


def upgrade(server: Server) -> socket.socket:
    """Open a WebSocket by hand, to say what the library would not."""
    connection = socket.create_connection((server.host, server.port), 10)
    request = (
        f"GET / HTTP/1.1\r\nHost: {server.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
    connection.sendall(request.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 101")
    return connection


def pour(connection: socket.socket) -> int:
    """Send zeros until the peer has had enough; return how many bytes went."""
    sent, block = 0, bytes(MEBIBYTE)
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(block)
            sent += len(block)
    return sent


def test_peer_that_announces_two_gibibytes_is_cut_off_and_memory_stays_flat(
    processes: Processes, capsys
):
    server, client = start(processes)
    before_kb = peak_kb(server)
    with upgrade(server) as connection:
        # A final binary frame with a 64-bit length and a mask of zeros.
        connection.sendall(struct.pack("!BBQI", 0x82, 0xFF, FLOOD_BYTES, 0))
        started = time.monotonic()
        sent = pour(connection)
        poured_s = time.monotonic() - started
    grown_kb = peak_kb(server) - before_kb
    with capsys.disabled():
        print(f"\none frame: {sent / MEBIBYTE:.0f} MiB in {poured_s:.1f} s, {grown_kb} kB more")
    # What comes after the announcement is thrown away for as long as a close may take.
    assert poured_s < CUT_OFF_LIMIT_S
    assert grown_kb < 16 * 1024
    assert_goes_on(server, client)


def test_peer_that_sends_two_gibibytes_in_small_pieces_is_cut_off_at_the_limit(
    processes: Processes, capsys
):
    server, client = start(processes)
    before_kb = peak_kb(server)
    sent = 0

    def pieces():
        nonlocal sent
        while sent < FLOOD_BYTES:
            sent += MEBIBYTE
            yield bytes(MEBIBYTE)

    with (
        connect(server.url, subprotocols=[SUBPROTOCOL], proxy=None) as connection,
        pytest.raises(ConnectionClosed),
    ):
        connection.send(pieces())
    grown_kb = peak_kb(server) - before_kb
    with capsys.disabled():
        print(
            f"\nfragments: cut off after {sent / MEBIBYTE:.0f} MiB, {grown_kb / 1024:.1f} MiB more"
        )
    assert sent < 2 * MESSAGE_LIMIT_BYTES
    assert grown_kb < 3 * MESSAGE_LIMIT_BYTES / 1024
    assert_goes_on(server, client)
