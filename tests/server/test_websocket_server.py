"""The edge of the server over real sockets, on either event loop, with a hub that only records."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import ssl

import pytest
import websockets
from websockets.asyncio.client import connect, unix_connect
from websockets.frames import Frame, Opcode

from royale_client.wire.grammar import CLOSE_CODES
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint import door, intake, websocket_server
from royale_server.endpoint.entry import EntryRules
from royale_server.endpoint.websocket_server import WebSocketServer
from tests.certificates import CERT, KEY

LIMITS = Limits(max_message_bytes=2**20)
PATIENCE_S = 10.0
MOST_UNREAD = 64 * 2**20
SLACK_S = 1.0
"""Of a busy machine."""
LONG = bytes(range(256)) * 3000  # three quarters of the limit: several frames and reads


class Peer:
    def __init__(self, connection):
        self.connection = connection
        self.is_closed = False

    def close(self, reason):
        self.is_closed = True
        self.connection.close(reason)


class RecordingHub:
    """Takes down what it is told; a test says what it does with a message."""

    def __init__(self):
        self.peers = []
        self.messages = []
        self.texts = 0
        self.ends = []
        self.errors = []
        self.may_fail = False
        self.is_busy = False
        self.on_message = lambda peer, data: None
        self.changed = asyncio.Event()

    @property
    def num_connections(self):
        return len(self.peers) - len(self.ends)

    def opened(self, connection):
        self.peers.append(Peer(connection))
        return self.peers[-1]

    def received(self, peer, data):
        assert not self.is_busy, "the hub was called while it was running"
        self.is_busy = True
        self.messages.append(data)
        try:
            self.on_message(peer, data)
        finally:
            self.is_busy = False
            self.changed.set()

    def drop_a_stranger(self):
        return False

    def refuse_text(self, peer):
        self.texts += 1
        peer.close("fault")

    def closed(self, peer, why):
        assert not self.is_busy
        self.ends.append(why)
        self.changed.set()

    def fail(self, error):
        self.errors.append(error)
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert self.may_fail or not self.errors, self.errors
                self.changed.clear()
                await self.changed.wait()


class Edge:
    """A server that listens, and ways to connect to it."""

    def __init__(self, rules=None):
        self.hub = RecordingHub()
        self.server = WebSocketServer(
            self.hub,
            limits=LIMITS,
            rules=rules or EntryRules(),
            max_sessions=4,
            max_unread_bytes=MOST_UNREAD,
            ping_timeout_s=0.4,
            patience_s=0.0,
        )
        self.port = 0

    async def start(self):
        ((_, self.port),) = await self.server.start("127.0.0.1", 0)

    def dial(self, **options):
        settings = {"subprotocols": [SUBPROTOCOL], "compression": None, "proxy": None} | options
        return connect(f"ws://127.0.0.1:{self.port}", **settings)

    async def raw(self, first=b""):
        """A bare connection after its handshake, and what came behind that."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", self.port))
        request = (
            f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
        )
        await loop.sock_sendall(sock, request.encode() + first)
        data = b""
        while b"\r\n\r\n" not in data:
            data += await loop.sock_recv(sock, 4096)
        assert b" 101 " in data
        return sock, data.partition(b"\r\n\r\n")[2]


async def say(port, request):
    """Send bytes over a bare connection; return what comes until it ends."""
    answer = b""
    with socket.socket() as sock:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                await loop.sock_sendall(sock, request)
                while piece := await loop.sock_recv(sock, 4096):
                    answer += piece
    return answer


def request_with(*headers):
    """An opening request with these header lines besides what every one has."""
    lines = (
        "GET / HTTP/1.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {'A' * 22}==",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        *headers,
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


LOOPS = {"asyncio": asyncio.SelectorEventLoop}
if importlib.util.find_spec("uvloop"):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(autouse=True)
def quick_closes(monkeypatch):
    """Nobody here is far away."""
    monkeypatch.setattr(websocket_server, "CLOSE_TIMEOUT_S", 0.2)


@pytest.fixture(params=LOOPS)
def over(request):
    """Runs a coroutine function with a listening `Edge`, on each kind of loop."""

    async def body(scenario):
        edge = Edge()
        await edge.start()
        try:
            await scenario(edge)
            assert edge.hub.may_fail or not edge.hub.errors, edge.hub.errors
        finally:
            await edge.server.stop()

    def run(scenario):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(body(scenario))

    return run


def frame(opcode, data, fin=True):
    return Frame(opcode, data, fin).serialize(mask=True)


async def rest_of(sock):
    """Everything a bare connection still brings."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := await asyncio.get_running_loop().sock_recv(sock, 65536):
            data += piece
    return data


def test_message_reaches_the_hub_and_its_answer_the_client_without_a_task(over):
    async def scenario(edge):
        tasks = []

        def answer(peer, data):
            with contextlib.suppress(RuntimeError):
                tasks.append(asyncio.current_task())
            peer.connection.send(data[::-1])

        edge.hub.on_message = answer
        async with edge.dial() as client:
            for data in (b"", b"abc", LONG):
                await client.send(data)
                assert await client.recv() == data[::-1]
        assert tasks == [None, None, None]
        await edge.hub.until(lambda: edge.hub.ends)
        assert edge.hub.ends == ["connection closed"]

    over(scenario)


def test_fragmented_messages_arrive_whole_and_pings_between_them_are_answered(over):
    async def scenario(edge):
        sock, _ = await edge.raw()
        with sock:
            loop = asyncio.get_running_loop()
            cut = len(LONG) // 2
            await loop.sock_sendall(
                sock, frame(Opcode.BINARY, LONG[:cut], fin=False) + frame(Opcode.PING, b"there?")
            )
            pong = Frame(Opcode.PONG, b"there?").serialize(mask=False)
            assert await loop.sock_recv(sock, 100) == pong
            assert edge.hub.messages == []
            await loop.sock_sendall(sock, frame(Opcode.CONT, LONG[cut:]) + frame(2, b"next"))
            await edge.hub.until(lambda: len(edge.hub.messages) == 2)
            assert edge.hub.messages == [LONG, b"next"]

    over(scenario)


def test_text_is_refused_once(over):
    async def scenario(edge):
        sock, _ = await edge.raw()
        with sock:
            text = frame(Opcode.TEXT, b"hello")
            late = frame(Opcode.BINARY, b"late")
            await asyncio.get_running_loop().sock_sendall(sock, text + text + late)
            await edge.hub.until(lambda: edge.hub.texts)
            code = CLOSE_CODES["fault"].to_bytes(2, "big")
            answer = await asyncio.get_running_loop().sock_recv(sock, 100)
            assert answer == Frame(Opcode.CLOSE, code + b"fault").serialize(mask=False)
        assert (edge.hub.texts, edge.hub.messages) == (1, [])

    over(scenario)


def test_data_that_comes_before_the_end_of_the_handshake_is_no_message(over):
    async def scenario(edge):
        early = frame(Opcode.BINARY, b"early") + frame(Opcode.TEXT, b"early")
        sock, _ = await edge.raw(early)
        with sock:
            await asyncio.get_running_loop().sock_sendall(sock, frame(Opcode.BINARY, b"in time"))
            await edge.hub.until(lambda: edge.hub.messages)
            assert (edge.hub.messages, edge.hub.texts) == ([b"in time"], 0)

    over(scenario)


def test_message_beyond_the_limit_ends_the_connection_with_the_librarys_code(over):
    async def scenario(edge):
        async with edge.dial() as client:
            await client.send(bytes(LIMITS.max_message_bytes))
            with contextlib.suppress(websockets.ConnectionClosed):
                await client.send(bytes(LIMITS.max_message_bytes + 1))
            with pytest.raises(websockets.ConnectionClosedError) as caught:
                await client.recv()
        assert caught.value.rcvd.code == 1009
        await edge.hub.until(lambda: edge.hub.ends)
        assert "1009" in edge.hub.ends[0]
        assert len(edge.hub.messages) == 1

    over(scenario)


def test_last_words_come_before_the_close_and_nothing_after_it(over):
    async def scenario(edge):
        def end(peer, data):
            peer.connection.send(b"last words")
            peer.close("stopping")

        edge.hub.on_message = end
        async with edge.dial() as client:
            await client.send(b"x")
            assert await client.recv() == b"last words"
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await client.recv()
        assert caught.value.rcvd.code == CLOSE_CODES["stopping"]
        assert caught.value.rcvd.reason == "stopping"
        await edge.hub.until(lambda: edge.hub.ends)
        edge.hub.peers[0].connection.send(b"to nobody")

    over(scenario)


def test_slow_client_gets_all_it_was_sent_before_the_close(over):
    async def scenario(edge):
        backlog = bytes(8 * 2**20)

        def end(peer, data):
            peer.connection.send(backlog)
            peer.close("stopping")

        edge.hub.on_message = end
        sock, _ = await edge.raw()
        with sock:
            await asyncio.get_running_loop().sock_sendall(sock, frame(Opcode.BINARY, b"x"))
            await edge.hub.until(lambda: edge.hub.messages)
            await asyncio.sleep(3 * websocket_server.CLOSE_TIMEOUT_S)
            received = await rest_of(sock)
        code = CLOSE_CODES["stopping"].to_bytes(2, "big")
        farewell = Frame(Opcode.CLOSE, code + b"stopping").serialize(mask=False)
        assert len(received) == 10 + len(backlog) + len(farewell)  # 10: head of a long frame
        assert received.endswith(farewell)

    over(scenario)


def test_client_that_reads_nothing_is_cut_off_at_the_bound(over, caplog):
    async def scenario(edge):
        edge.server._max_unread_bytes = 2**20
        sent = []

        def flood(peer, data):
            for _ in range(64):
                peer.connection.send(bytes(2**18))
                sent.append(peer.connection._socket.transport.get_write_buffer_size())

        edge.hub.on_message = flood
        sock, _ = await edge.raw()
        with sock:
            await asyncio.get_running_loop().sock_sendall(sock, frame(Opcode.BINARY, b"x"))
            await edge.hub.until(lambda: edge.hub.ends)
        assert max(sent) < 2**20 + 2**18 + 100
        assert edge.hub.ends[0].startswith("connection lost")

    with caplog.at_level(logging.WARNING):
        over(scenario)
    assert sum("reads nothing: cut off" in message for message in caplog.messages) == 1


def test_client_that_pings_more_than_anybody_needs_is_cut_off(over, caplog):
    async def scenario(edge):
        sock, _ = await edge.raw()
        loop = asyncio.get_running_loop()
        with sock:
            few = frame(Opcode.PING, b"") * intake.MOST_OTHERS
            await loop.sock_sendall(sock, few + frame(Opcode.BINARY, b"x"))
            await edge.hub.until(lambda: edge.hub.messages)
            assert edge.hub.ends == []
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(sock, frame(Opcode.PING, b"") * (intake.MOST_OTHERS + 1))
            await edge.hub.until(lambda: edge.hub.ends)

    with caplog.at_level(logging.WARNING):
        over(scenario)
    assert sum("pings a second: cut off" in message for message in caplog.messages) == 1


def test_client_that_reads_no_pongs_is_cut_off_at_the_bound(over, caplog, monkeypatch):
    """No hello, no message: only pings, whose answers pile up like any other."""
    monkeypatch.setattr(intake, "MOST_OTHERS", 10**9)

    async def scenario(edge):
        edge.server._max_unread_bytes = 2**16
        sock, _ = await edge.raw()
        pings = frame(Opcode.PING, bytes(125)) * 1000

        async def flood():
            while True:
                await asyncio.get_running_loop().sock_sendall(sock, pings)

        with sock:
            flooding = asyncio.create_task(flood())
            await edge.hub.until(lambda: edge.hub.ends)
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
        assert edge.hub.ends[0].startswith("connection lost")

    with caplog.at_level(logging.WARNING):
        over(scenario)
    assert sum("reads nothing: cut off" in message for message in caplog.messages) == 1


def test_hub_that_fails_is_told_so_once_and_hears_no_more(over):
    async def scenario(edge):
        def fail(peer, data):
            raise ArithmeticError(data)

        edge.hub.on_message = fail
        edge.hub.may_fail = True
        async with edge.dial() as client, edge.dial() as other:
            await client.send(b"1")
            await edge.hub.until(lambda: edge.hub.errors)
            await client.send(b"2")
            await other.send(b"3")
            await (await client.ping())
            await (await other.ping())
        assert edge.hub.messages == [b"1"]
        assert [str(error) for error in edge.hub.errors] == ["b'1'"]

    over(scenario)


def test_vanished_client_is_reported_as_lost(over):
    async def scenario(edge):
        sock, _ = await edge.raw()
        await asyncio.get_running_loop().sock_sendall(sock, frame(Opcode.BINARY, b"x")[:3])
        sock.close()
        await edge.hub.until(lambda: edge.hub.ends)
        assert edge.hub.ends == ["connection lost: no close frame received or sent"]
        assert edge.hub.messages == []

    over(scenario)


def test_reason_of_a_close_cannot_steer_a_terminal(over):
    async def scenario(edge):
        async with edge.dial() as client:
            await client.close(1011, "x\x1b]0;owned\x07\n12:00:00 INFO all is well")
        await edge.hub.until(lambda: edge.hub.ends)
        (why,) = edge.hub.ends
        assert r"x\x1b]0;owned\x07\n12:00:00" in why
        assert why.isprintable()

    over(scenario)


HEADERS = [
    "Sec-WebSocket-Key: \x9b2J",
    "Sec-WebSocket-Version: \x9b2J",
    "\x9b2J",
    "Upgrade: \x9b2J",
]


@pytest.mark.parametrize("header", HEADERS)
def test_request_of_a_stranger_cannot_steer_a_terminal(over, caplog, header):
    async def scenario(edge):
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        request = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n{header}\r\n\r\n"
        writer.write(request.encode("latin-1"))
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()

    over(scenario)
    assert caplog.messages, "else nothing is shown"
    assert [line for line in caplog.messages if not line.isprintable()] == []


def test_client_that_answers_no_ping_is_given_up_and_one_that_does_is_kept(over, monkeypatch):
    monkeypatch.setattr(websocket_server, "PING_INTERVAL_S", 0.2)

    async def scenario(edge):
        async with edge.dial(ping_interval=None) as awake:
            sock, _ = await edge.raw()
            with sock:
                await edge.hub.until(lambda: edge.hub.ends)
            await awake.send(b"here")
            await edge.hub.until(lambda: edge.hub.messages)
            assert edge.hub.ends == [
                "connection lost: ping timeout: no sign of life for 0.4 s",
            ]

    over(scenario)


@pytest.mark.parametrize("unread", [0, 2**23, MOST_UNREAD - 2**20])
def test_client_that_is_gone_is_given_up_on_time_however_much_waits_for_it(
    over, monkeypatch, unread
):
    monkeypatch.setattr(websocket_server, "PING_INTERVAL_S", 0.2)

    async def scenario(edge):
        sock, _ = await edge.raw()  # from here on it reads nothing
        loop = asyncio.get_running_loop()
        with sock:
            await edge.hub.until(lambda: edge.hub.peers)
            (peer,) = edge.hub.peers
            peer.connection.send(bytes(unread))
            sent_at = loop.time()
            assert edge.hub.ends == []
            await edge.hub.until(lambda: edge.hub.ends)
            assert loop.time() - sent_at < 0.2 + 0.4 + SLACK_S
        assert edge.hub.ends == ["connection lost: ping timeout: no sign of life for 0.4 s"]

    over(scenario)


def test_client_that_reads_a_long_message_slowly_is_kept_as_long_as_it_reads(over, monkeypatch):
    monkeypatch.setattr(websocket_server, "PING_INTERVAL_S", 0.05)

    async def scenario(edge):
        sock, _ = await edge.raw()
        loop = asyncio.get_running_loop()
        with sock:
            await edge.hub.until(lambda: edge.hub.peers)
            edge.hub.peers[0].connection.send(bytes(MOST_UNREAD - 2**20))
            started = loop.time()
            while loop.time() - started < 4 * 0.4:
                await loop.sock_recv(sock, 4096)
                await asyncio.sleep(0.001)
                assert edge.hub.ends == []
            await edge.hub.until(lambda: edge.hub.ends)
            assert edge.hub.ends == ["connection lost: ping timeout: no sign of life for 0.4 s"]

    over(scenario)


def test_client_whose_long_message_comes_slowly_is_kept_although_it_answers_no_ping(
    over, monkeypatch
):
    monkeypatch.setattr(websocket_server, "PING_INTERVAL_S", 0.05)

    async def scenario(edge):
        sock, _ = await edge.raw()
        loop = asyncio.get_running_loop()
        data = frame(Opcode.BINARY, b"x" * 400)
        with sock:
            started = loop.time()
            for byte in data[:-1]:
                await loop.sock_sendall(sock, bytes([byte]))
                await asyncio.sleep(0.005)
            assert loop.time() - started > 3 * 0.4, "else it was not slow"
            assert edge.hub.ends == []
            await loop.sock_sendall(sock, data[-1:])
            await edge.hub.until(lambda: edge.hub.messages)
            assert edge.hub.messages == [b"x" * 400]
            await edge.hub.until(lambda: edge.hub.ends)

    over(scenario)


def test_server_that_stops_waits_for_those_it_told_and_cuts_the_others(over, monkeypatch):
    monkeypatch.setattr(websocket_server, "CLOSE_TIMEOUT_S", 1.0)

    async def scenario(edge):
        async with edge.dial() as client:
            sock, _ = await edge.raw()
            with sock:
                await edge.hub.until(lambda: len(edge.hub.peers) == 2)
                for peer in edge.hub.peers:
                    peer.connection.send(b"stop")
                    peer.close("stopping")
                reading = asyncio.create_task(client.recv())
                await edge.server.stop()
                assert await reading == b"stop"
                await edge.hub.until(lambda: len(edge.hub.ends) == 2)
                assert (await rest_of(sock))[2:6] == b"stop"

    over(scenario)


def test_clients_connect_by_a_socket_file_as_well_and_are_named_by_their_process(over, tmp_path):
    async def scenario(edge):
        path = tmp_path / "s"
        assert await edge.server.start_on_file(path) == f"unix://{path}"
        edge.hub.on_message = lambda peer, data: peer.connection.send(data[::-1])
        settings = {"subprotocols": [SUBPROTOCOL], "compression": None}
        async with unix_connect(str(path), **settings) as client, edge.dial() as other:
            for who in (client, other):
                await who.send(LONG)
                assert await who.recv() == LONG[::-1]
        addresses = [peer.connection.address for peer in edge.hub.peers]
        if hasattr(socket, "SO_PEERCRED"):
            assert addresses[0] == f"process {os.getpid()} of this machine"
        assert addresses[1].startswith("127.0.0.1:")
        await edge.server.stop()
        assert not path.exists()

    over(scenario)


TOKEN = "8s-Kq.2vX_pL"


def with_rules(edge, **changes):
    """Change who may come in over TCP."""
    edge.server._doors[0].rules = EntryRules(**changes)


def test_wrong_token_is_refused_before_the_library_sees_it(over, caplog, monkeypatch):
    made = []
    monkeypatch.setattr(door, "ObservedConnection", lambda *a, **k: made.append(1))

    async def scenario(edge):
        with_rules(edge, token=TOKEN)
        for given in ((), (f"Authorization: Bearer {TOKEN[:-1]}",)):
            answer = await say(edge.port, request_with("Host: localhost", *given))
            assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert b"ROYALE_TOKEN" in answer
        assert edge.server._doors[0]._waiting == {}

    over(scenario)
    assert made == []
    assert caplog.text.count("token missing or wrong") == 2
    assert TOKEN not in caplog.text


def test_right_token_comes_in_whatever_the_pieces_it_arrives_in(over):
    async def scenario(edge):
        with_rules(edge, token=TOKEN)
        request = request_with("Host: localhost", f"authorization: \t Bearer {TOKEN} ")
        for cut in (1, 3, 5, 100, len(request) - 2):
            reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
            writer.write(request[:cut])
            await asyncio.sleep(0)
            writer.write(request[cut:])
            assert b" 101 " in await reader.readline()
            writer.write(frame(Opcode.BINARY, b"first"))
            await edge.hub.until(lambda: edge.hub.messages)
            assert edge.hub.messages.pop() == b"first"
            writer.close()
            await writer.wait_closed()

    over(scenario)


def test_door_and_library_that_read_a_request_differently_let_nobody_in(over, caplog, monkeypatch):
    """The library has the last word: what the door overlooks is refused all the same."""
    monkeypatch.setattr(door.Doorkeeper, "judge", lambda self, head: None)

    async def scenario(edge):
        with_rules(edge, token=TOKEN, hosts=frozenset())
        for headers in (
            ("Host: localhost",),
            ("Host: localhost", "Authorization: Bearer x"),
            ("Host: localhost", f"Authorization: Bearer {TOKEN}", "Authorization: Bearer x"),
            ("Host: evil.example", f"Authorization: Bearer {TOKEN}"),
        ):
            assert b" 40" in (await say(edge.port, request_with(*headers)))[:13]
        assert edge.hub.peers == []

    over(scenario)
    assert sum("client at 127.0.0.1" in message for message in caplog.messages) == 4


def test_request_that_never_ends_and_silence_are_given_up(over, caplog, monkeypatch):
    monkeypatch.setattr(door, "REQUEST_TIMEOUT_S", 0.2)

    async def scenario(edge):
        assert await say(edge.port, b"") == b""
        assert await say(edge.port, b"GET / HTTP/1.1\r\n") == b""
        assert await say(edge.port, b"GET /" + b"x" * (door.MAX_HEAD_BYTES + 1)) == b""

    over(scenario)
    assert caplog.text.count("it said nothing in time") == 2
    assert caplog.text.count("its request is too long") == 1


def test_crowd_that_says_nothing_makes_room_for_who_has_something_to_say(over, monkeypatch):
    monkeypatch.setattr(door, "MOST_WAITING", 8)

    async def scenario(edge):
        silent = [await asyncio.open_connection("127.0.0.1", edge.port) for _ in range(12)]
        async with edge.dial() as client:
            await client.send(b"x")
            await edge.hub.until(lambda: edge.hub.messages)
        # Twelve and the client are thirteen: the first five had to go.
        for reader, _ in silent[:5]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert len(edge.server._doors[0]._waiting) == 7
        for _, writer in silent:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for _, writer in silent), return_exceptions=True
        )

    over(scenario)


def test_flood_of_wrong_tokens_is_written_down_twenty_times(over, caplog):
    async def scenario(edge):
        with_rules(edge, token=TOKEN)
        for _ in range(200):
            assert b" 401 " in (await say(edge.port, request_with("Host: x")))[:20]

    over(scenario)
    assert sum("token missing or wrong" in message for message in caplog.messages) in (20, 21)


def test_messages_travel_over_tls_in_both_directions(over):
    async def scenario(edge):
        edge.hub.on_message = lambda peer, data: peer.connection.send(data[::-1])
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(CERT, KEY)
        ((_, port),) = await edge.server.start("127.0.0.1", 0, served)
        trusting = ssl.create_default_context(cafile=CERT)
        settings = {"subprotocols": [SUBPROTOCOL], "compression": None, "proxy": None}
        async with connect(f"wss://127.0.0.1:{port}", ssl=trusting, **settings) as client:
            for data in (b"abc", LONG, LONG[:70000]):
                await client.send(data)
                assert await client.recv() == data[::-1]
        assert await say(port, request_with("Host: localhost")) == b""

    over(scenario)


def test_silence_in_place_of_a_tls_handshake_is_given_up(over, monkeypatch):
    monkeypatch.setattr(websocket_server, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def scenario(edge):
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(CERT, KEY)
        ((_, port),) = await edge.server.start("127.0.0.1", 0, served)
        assert await say(port, b"") == b""

    over(scenario)


def test_token_is_asked_for_at_a_socket_file_as_well(over, tmp_path, caplog):
    async def scenario(edge):
        edge.server._doors[1].rules = EntryRules(token="right")
        await edge.server.start_on_file(tmp_path / "s")
        with pytest.raises(websockets.InvalidStatus) as caught:
            await unix_connect(str(tmp_path / "s"), subprotocols=[SUBPROTOCOL])
        assert caught.value.response.status_code == 401
        async with unix_connect(
            str(tmp_path / "s"),
            subprotocols=[SUBPROTOCOL],
            additional_headers={"Authorization": "Bearer right"},
        ) as client:
            await client.send(b"x")
            await edge.hub.until(lambda: edge.hub.messages)

    over(scenario)
    assert "of this machine: token missing or wrong" in caplog.text


def test_one_connection_too_many_is_told_to_come_back(over):
    async def scenario(edge):
        edge.server._max_connections = 1
        async with edge.dial(), edge.dial() as second:
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await second.recv()
        assert caught.value.rcvd.code == 1013
        assert len(edge.hub.peers) == 1

    over(scenario)
