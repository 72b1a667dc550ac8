"""What a connection does when its peer is slow, silent, gone, or sends more than anybody reads."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from royale_client import websocket_transport
from royale_client.dialling import dial
from royale_client.transport import ConnectionLostError, ServerAddress, ServerUnreachableError
from royale_client.websocket_transport import connect
from royale_client.wire import frames
from royale_client.wire.limits import Limits

LONG_MESSAGE = bytes(16 * 1024 * 1024)  # more than the kernel takes in on behalf of a peer


class Peer:
    """The server's end of one connection, driven by the test.

    Args:
        sock: The accepted socket; the handshake is still to come.
    """

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(10.0)
        self.protocol = ServerProtocol(subprotocols=["royale.v1"], max_size=None)
        self.frames = []
        while self.protocol.state is State.CONNECTING:
            self.protocol.receive_data(self.sock.recv(65536))
            for request in self.protocol.events_received():
                self.protocol.send_response(self.protocol.accept(request))
            self.flush()

    def flush(self):
        for piece in self.protocol.data_to_send():
            if piece:
                self.sock.sendall(piece)

    def send(self, *messages):
        for message in messages:
            self.protocol.send_binary(message)
        self.flush()

    def ping(self):
        self.protocol.send_ping(b"there?")
        self.flush()

    def close(self, code, reason):
        self.protocol.send_close(code, reason)
        self.flush()

    def read(self):
        """Take in what one read brings; False at the end of the connection."""
        data = self.sock.recv(65536)
        if data:
            self.protocol.receive_data(data)
            self.frames += [f for f in self.protocol.events_received() if isinstance(f, Frame)]
        return bool(data)

    def read_until(self, opcode):
        while not any(frame.opcode is opcode for frame in self.frames):
            assert self.read(), f"the connection ended before {opcode.name}"

    def read_message(self):
        """The next message, from however many frames."""
        while not any(frame.fin and is_data(frame) for frame in self.frames):
            assert self.read(), "the connection ended before a message"
        return b"".join(frame.data for frame in self.frames if is_data(frame))


def is_data(frame):
    return frame.opcode in (Opcode.BINARY, Opcode.CONT)


@pytest.fixture
def join(monkeypatch):
    """Connects a transport to a Peer; its keeper sleeps unless the test wakes it."""
    monkeypatch.setattr(websocket_transport, "_KEEP_EVERY_S", 3600.0)
    monkeypatch.setattr(websocket_transport, "_CLOSE_TIMEOUT_S", 0.05)
    with contextlib.ExitStack() as stack:

        def start(limits=None, context=None, scheme="ws"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            peers = []

            def accept():
                sock, _ = listener.accept()
                if context is not None:
                    sock = context.wrap_socket(sock, server_side=True)
                peers.append(Peer(stack.enter_context(sock)))

            accepting = Work(accept)
            url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
            transport = connect(ServerAddress(url=url), limits or Limits(), timeout_s=5.0)
            stack.callback(transport.close, 1000, "")
            accepting.result()
            return transport, peers[0]

        yield start


class Work:
    """A function that runs in a thread of its own, for as long as `result` is waited for."""

    def __init__(self, function, *arguments):
        self.value, self.error = None, None

        def run():
            try:
                self.value = function(*arguments)
            except Exception as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def result(self):
        self.thread.join(20.0)
        assert not self.thread.is_alive(), "it does not come to an end"
        if self.error is not None:
            raise self.error
        return self.value


class Sabotaged:
    """A socket of which one operation raises, as often as there are errors.

    Args:
        sock: The real one.
        name: The operation.
        errors: What it raises before it works.
    """

    def __init__(self, sock, name, *errors):
        self._sock, self._errors = sock, list(errors)
        setattr(self, name, lambda *arguments: self._run(name, *arguments))

    def _run(self, name, *arguments):
        if self._errors:
            raise self._errors.pop(0)
        return getattr(self._sock, name)(*arguments)

    def __getattr__(self, name):
        return getattr(self._sock, name)


def send_until_lost(transport):
    """The first sends after the peer's end still find room in the kernel."""
    for _ in range(100):
        transport.send(b"anybody?")


# --- dialling -----------------------------------------------------------------------------


def test_dialled_socket_sends_short_messages_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sock, _ = dial(f"ws://127.0.0.1:{port}", "127.0.0.1", port, time.monotonic() + 5.0)
        with sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_address_family_that_the_system_lacks_is_one_failed_attempt(monkeypatch):
    def lacking(*_):
        raise OSError(97, "Address family not supported by protocol")

    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 80, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", lacking)

    with pytest.raises(ServerUnreachableError, match="Address family not supported"):
        dial("ws://localhost:80", "localhost", 80, time.monotonic() + 5.0)


def test_answer_that_comes_drop_by_drop_does_not_outlast_the_time_limit():
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            sock, _ = listener.accept()
            with sock, contextlib.suppress(OSError):
                for _ in range(200):  # 4 s, twenty times the limit
                    sock.sendall(b"H")
                    if is_over.wait(0.02):
                        return

        dripping = Work(drip)
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        started_s = time.monotonic()
        with pytest.raises(ServerUnreachableError, match=r"no answer in time|timed out"):
            connect(ServerAddress(url=url), Limits(), timeout_s=0.2)
        assert time.monotonic() - started_s < 2.0
        is_over.set()
        dripping.result()


def test_server_that_is_silent_about_tls_does_not_outlast_the_time_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"wss://127.0.0.1:{listener.getsockname()[1]}"
        started_s = time.monotonic()
        with pytest.raises(ServerUnreachableError, match="timed out"):
            connect(ServerAddress(url=url), Limits(), timeout_s=0.2)
        assert time.monotonic() - started_s < 2.0


@pytest.mark.parametrize("cut", [1, 5, 1000])
def test_what_comes_together_with_the_answer_to_the_handshake_is_received(cut):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"

        def greet():
            sock, _ = listener.accept()
            protocol = ServerProtocol(subprotocols=["royale.v1"])
            protocol.receive_data(sock.recv(65536))
            (request,) = protocol.events_received()
            protocol.send_response(protocol.accept(request))
            protocol.send_binary(b"early")
            protocol.send_ping(b"there?")
            protocol.send_binary(bytes(100_000))
            answer = b"".join(protocol.data_to_send())
            end = answer.index(b"\r\n\r\n") + 4
            sock.sendall(answer[: end + cut])
            time.sleep(0.05)  # what follows is no longer read together with it
            sock.sendall(answer[end + cut :])
            protocol.receive_data(sock.recv(65536))
            sock.close()
            return protocol.events_received()

        greeting = Work(greet)
        transport = connect(ServerAddress(url=url), Limits(), timeout_s=5.0)
        assert transport.receive(5.0) == b"early"
        assert transport.receive(5.0) == bytes(100_000)
        assert greeting.result() == [Frame(Opcode.PONG, b"there?")]
        transport.close(1000, "")


# --- last words ---------------------------------------------------------------------------


def test_what_the_server_said_last_is_received_after_a_failed_send(join):
    transport, peer = join()
    peer.send(b"a last word")
    peer.close(1001, "going away")
    peer.sock.close()

    with pytest.raises(ConnectionLostError, match="going away") as at_send:
        send_until_lost(transport)
    assert transport.receive(0.0) == b"a last word"
    with pytest.raises(ConnectionLostError, match="1001: going away") as at_receive:
        transport.receive(0.0)
    assert at_send.value.code == at_receive.value.code == 1001


def test_failed_send_after_no_close_is_a_vanished_connection(join):
    transport, peer = join()
    peer.send(b"a last word")
    peer.sock.close()

    with pytest.raises(ConnectionLostError, match="vanished") as caught:
        send_until_lost(transport)
    assert transport.receive(0.0) == b"a last word"
    assert caught.value.retry is True


def test_looking_once_finds_a_message_that_takes_several_reads(join, monkeypatch):
    monkeypatch.setattr(frames, "FIRST_BYTES", 10)
    transport, peer = join()
    peer.send(bytes(100), b"next")

    assert transport.receive(0.0) == bytes(100)
    assert transport.receive(0.0) == b"next"
    assert transport.receive(0.0) is None


def test_time_that_has_passed_already_is_no_time(join):
    transport, peer = join()

    assert transport.receive(-0.1) is None
    peer.send(b"there")
    assert transport.receive(-0.1) == b"there"


# --- sending to a slow peer ---------------------------------------------------------------


def test_slow_peer_may_take_longer_than_the_time_out_as_long_as_it_takes_something(
    join, monkeypatch
):
    monkeypatch.setattr(websocket_transport, "_SEND_TIMEOUT_S", 0.5)
    transport, peer = join()
    sending = Work(transport.send, LONG_MESSAGE)
    for _ in range(10):  # 1 s together
        time.sleep(0.1)
        for _ in range(8):
            peer.read()

    assert peer.read_message() == LONG_MESSAGE
    sending.result()


def test_peer_that_takes_nothing_is_given_up(join, monkeypatch):
    monkeypatch.setattr(websocket_transport, "_SEND_TIMEOUT_S", 0.1)
    monkeypatch.setattr(websocket_transport, "_SLICE_S", 0.1)
    transport, _ = join()

    with pytest.raises(ConnectionLostError) as caught:
        transport.send(LONG_MESSAGE)
    assert caught.value.retry is True
    assert "takes nothing in" in str(caught.value.__cause__)


def test_ping_is_answered_in_the_middle_of_a_long_message(join):
    transport, peer = join()
    sending = Work(transport.send, LONG_MESSAGE)
    peer.ping()

    assert peer.read_message() == LONG_MESSAGE
    sending.result()
    answer = [frame.opcode for frame in peer.frames].index(Opcode.PONG)
    assert any(is_data(frame) for frame in peer.frames[answer:])


def test_two_sides_that_send_at_once_do_not_wait_for_each_other(join):
    transport, peer = join()
    sending = Work(transport.send, LONG_MESSAGE)
    peer.send(LONG_MESSAGE)  # reads nothing before all of it is gone

    assert peer.read_message() == LONG_MESSAGE
    sending.result()
    assert transport.receive(5.0) == LONG_MESSAGE


def test_close_of_the_server_ends_a_send_that_waits(join):
    transport, peer = join()
    sending = Work(transport.send, LONG_MESSAGE)
    peer.close(1001, "going away")

    with pytest.raises(ConnectionLostError, match="going away"):
        sending.result()


def test_message_that_was_interrupted_is_finished_before_the_next(join, monkeypatch):
    transport, peer = join()
    with monkeypatch.context() as patch:
        patch.setattr(transport, "_move", interrupt)
        with pytest.raises(KeyboardInterrupt):
            transport.send(LONG_MESSAGE)

    sending = Work(transport.send, b"goodbye")
    while sum(frame.fin for frame in peer.frames) < 2:
        assert peer.read()
    sending.result()
    data = [frame.data for frame in peer.frames if is_data(frame)]
    assert b"".join(data[:-1]) == LONG_MESSAGE
    assert data[-1] == b"goodbye"


def interrupt(*_):
    raise KeyboardInterrupt


# --- a socket that wants something else first ---------------------------------------------


@pytest.mark.parametrize("error", [ssl.SSLWantWriteError, ssl.SSLWantReadError])
def test_read_that_wants_something_first_is_no_broken_connection(join, error):
    transport, peer = join()
    transport._sock = Sabotaged(transport._sock, "recv_into", error())
    peer.send(b"message")

    assert transport.receive(5.0) == b"message"


@pytest.mark.parametrize("error", [ssl.SSLWantWriteError, ssl.SSLWantReadError])
def test_write_that_wants_something_first_is_no_broken_connection(join, error):
    transport, peer = join()
    transport._sock = Sabotaged(transport._sock, "send", error())
    peer.ping()  # something to read, as TLS would have
    transport.send(b"message")

    assert peer.read_message() == b"message"


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """A server's context, with a certificate that the client trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_long_messages_pass_over_tls_both_ways(join, tls):
    transport, peer = join(context=tls, scheme="wss")
    sending = Work(transport.send, LONG_MESSAGE)

    assert peer.read_message() == LONG_MESSAGE
    sending.result()
    peer_sending = Work(peer.send, LONG_MESSAGE, b"next")
    assert transport.receive(10.0) == LONG_MESSAGE
    assert transport.receive(10.0) == b"next"
    peer_sending.result()


def test_bytes_that_are_decrypted_already_are_not_waited_for(join, tls, monkeypatch):
    # One record holds the message; after the first read the rest of it is no longer in the kernel.
    monkeypatch.setattr(frames, "FIRST_BYTES", 10)
    transport, peer = join(context=tls, scheme="wss")
    peer.send(bytes(100))

    assert transport.receive(1.0) == bytes(100)
    assert transport.receive(0.0) is None


def test_last_words_over_tls_are_received_after_a_failed_send(join, tls):
    transport, peer = join(context=tls, scheme="wss")
    peer.send(b"a last word")
    peer.close(1001, "going away")
    peer.sock.close()

    with pytest.raises(ConnectionLostError, match="going away"):
        send_until_lost(transport)
    assert transport.receive(0.0) == b"a last word"


# --- more than anybody reads --------------------------------------------------------------


def test_keeper_stops_reading_when_enough_messages_wait(join, monkeypatch):
    monkeypatch.setattr(frames, "FIRST_BYTES", 1000)
    transport, peer = join(limits=Limits(max_message_bytes=1000))
    messages = [number.to_bytes(2, "big") * 250 for number in range(100)]
    peer.send(*messages)
    peer.ping()
    transport._read_all()

    # 2 x 1,000 bytes are the bound; the read that passes it brings two messages at most, and a
    # message counts 500 + 64: four of them are 2,256.
    assert 4 <= len(transport._messages) <= 6
    assert [transport.receive(5.0) for _ in messages] == messages
    assert transport.receive(0.0) is None
    peer.read_until(Opcode.PONG)


def test_empty_messages_do_not_wait_without_bound(join):
    transport, peer = join(limits=Limits(max_message_bytes=1000))
    peer.send(*[b""] * 1000)  # 2 bytes each on the way, all within one read
    transport._read_all()

    assert transport._is_full()


def test_server_is_not_called_silent_while_nobody_listens(join, monkeypatch):
    monkeypatch.setattr(websocket_transport, "_GIVE_UP_AFTER_S", 0.0)
    transport, peer = join(limits=Limits(max_message_bytes=10))
    peer.send(b"message")
    transport._read_all()
    transport._look_after()
    transport.send(b"still here")

    assert peer.read_message() == b"still here"
    assert transport.receive(0.0) == b"message"


def test_silent_server_is_pinged_during_one_long_wait(join, monkeypatch):
    monkeypatch.setattr(websocket_transport, "_PING_AFTER_S", 0.0)
    monkeypatch.setattr(websocket_transport, "_SLICE_S", 0.05)
    transport, peer = join()
    receiving = Work(transport.receive, 3600.0)
    peer.read_until(Opcode.PING)
    peer.send(b"message")

    assert receiving.result() == b"message"


def test_silent_server_is_given_up_and_its_last_words_are_kept(join, monkeypatch):
    transport, peer = join()
    monkeypatch.setattr(websocket_transport, "_GIVE_UP_AFTER_S", 0.0)
    peer.send(b"a last word")
    transport._look_after()

    assert transport.receive(0.0) == b"a last word"
    with pytest.raises(ConnectionLostError):
        transport.receive(0.0)


# --- closing ------------------------------------------------------------------------------


def test_close_from_another_thread_ends_a_receive_that_waits(join):
    transport, _ = join()
    receiving = Work(transport.receive, None)
    while not transport._turn.locked():
        time.sleep(0.001)
    Work(transport.close, 1000, "").result()

    with pytest.raises(ConnectionLostError, match="closed by this side"):
        receiving.result()


def test_interrupted_close_frees_the_socket_and_may_be_repeated(join, monkeypatch):
    transport, _ = join()
    monkeypatch.setattr(transport, "_move", interrupt)

    with pytest.raises(KeyboardInterrupt):
        transport.close(1000, "")
    assert transport._sock.fileno() == -1
    transport.close(1000, "")


def test_close_from_two_threads_at_once_says_goodbye_once(join):
    transport, peer = join()
    closings = [Work(transport.close, 1000, "done") for _ in range(2)]
    for closing in closings:
        closing.result()
    while peer.read():
        pass

    assert [frame.opcode for frame in peer.frames] == [Opcode.CLOSE]
    for operation in (lambda: transport.receive(0.0), lambda: transport.send(b"")):
        with pytest.raises(ConnectionLostError, match="closed by this side"):
            operation()


def test_close_finds_the_answer_behind_messages_that_nobody_receives(join, monkeypatch):
    monkeypatch.setattr(websocket_transport, "_CLOSE_TIMEOUT_S", 10.0)
    transport, peer = join(limits=Limits(max_message_bytes=1000))
    peer.send(*[bytes(1000)] * 100)
    closing = Work(transport.close, 1000, "done")
    peer.read_until(Opcode.CLOSE)
    peer.flush()
    closing.result()

    assert transport._protocol.close_rcvd is not None
