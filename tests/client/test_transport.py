"""Addresses and connections: direct, named, refused and lost."""

import os
import socket
import ssl
import threading
import time
from urllib.parse import quote

import pytest
import websockets.exceptions as ws_errors
from websockets.datastructures import Headers
from websockets.frames import Close
from websockets.http11 import Response
from websockets.sync.server import serve, unix_serve

from royale_client import dialling, proxied_transport
from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    MemoryTransport,
    ServerAddress,
    ServerUnreachableError,
    TokenRefusedError,
)
from royale_client.websocket_transport import connect
from royale_client.wire.errors import ConfigError
from royale_client.wire.limits import Limits
from tests.certificates import CERT, KEY, OTHER_CERT
from tests.client.fake_server import SocketServer


def closed_port():
    """A port nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def dial(url, **options):
    return connect(ServerAddress(url=url, **options), Limits(), timeout_s=5.0)


def raw_server(handler, **options):
    server = serve(handler, "127.0.0.1", 0, compression=None, **options)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    return server, thread, f"ws://127.0.0.1:{server.socket.getsockname()[1]}"


@pytest.fixture
def serving():
    """Starts websocket servers with a handler of the test's own."""
    started = []

    def start(handler, **options):
        server, thread, url = raw_server(handler, **{"subprotocols": ["royale.v1"], **options})
        started.append((server, thread))
        return url

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()


def echo(connection):
    for message in connection:
        connection.send(message)


def test_memory_pair_carries_messages_in_order_both_ways():
    here, there = MemoryTransport.pair()
    here.send(b"1")
    here.send(b"2")
    there.send(b"3")

    assert [there.receive(1.0), there.receive(1.0), here.receive(1.0)] == [b"1", b"2", b"3"]
    assert there.receive(0) is None


def test_closed_memory_pair_is_read_to_its_end_and_then_lost():
    here, there = MemoryTransport.pair()
    here.send(b"last")
    here.close(1001, "going away")

    assert there.receive(None) == b"last"
    with pytest.raises(ConnectionLostError, match="1001: going away"):
        there.receive(None)
    with pytest.raises(ConnectionLostError):
        there.send(b"too late")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "http://localhost:8000", "ws://"),
        *("ws://host:0", "ws://host:x", "ws://[", "file:///run/royale"),
    ],
)
def test_senseless_url_is_refused_with_the_right_form(url):
    with pytest.raises(ConfigError, match="ws://HOST:PORT"):
        ServerAddress(url=url)


@pytest.mark.parametrize(
    "url", ["unix://run/s", "unix:/run/s", "unix:s", "unix:///s?x", "unix:///s#"]
)
def test_url_of_a_socket_file_has_the_whole_path(url):
    with pytest.raises(ConfigError, match="unix:///PATH"):
        ServerAddress(url=url)


def test_path_of_a_socket_file_is_unquoted_and_no_proxy_leads_there():
    assert ServerAddress(url="unix:///run/a%20%23b").socket_file == "/run/a #b"
    assert ServerAddress(url="ws://h").socket_file is None
    with pytest.raises(ConfigError, match="no proxy leads to a socket file"):
        ServerAddress(url="unix:///run/s", proxy="http://p:1")


def test_token_is_not_shown():
    assert "secret" not in repr(ServerAddress(url="ws://h:1", token="secret"))


def test_ipv6_literal_and_default_ports_are_understood():
    assert ServerAddress(url="ws://[::1]:8000").host_and_port == ("::1", 8000)
    assert ServerAddress(url="ws://h").host_and_port == ("h", 80)
    assert ServerAddress(url="wss://h").host_and_port == ("h", 443)


def test_messages_travel_over_a_real_socket(serving):
    transport = dial(serving(echo))
    message = bytes(range(256)) * 100
    transport.send(message)

    assert transport.receive(5.0) == message
    assert transport.receive(0) is None
    transport.close(1000, "")


def test_message_above_one_mebibyte_passes(serving):
    transport = dial(serving(echo, max_size=None))
    message = bytes(1_843_200)  # two 640x480 colour cameras, case H20
    transport.send(message)

    assert transport.receive(5.0) == message
    transport.close(1000, "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_on_ipv4_loopback_is_found_at_once_by_either_name(host):
    with SocketServer() as server:
        started_s = time.monotonic()
        transport = dial(f"ws://{host}:{server.port}")

        assert time.monotonic() - started_s < 1.0
        transport.close(1000, "")


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["[::1]", "localhost"])
def test_server_on_ipv6_loopback_is_found_at_once(host, monkeypatch):
    try:
        server = SocketServer(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    # Not every machine maps localhost to both addresses; the client must try all that it maps to.
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", server.port, 0, 0)),
    ]
    if host == "localhost":
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with server:
        started_s = time.monotonic()
        transport = dial(f"ws://{host}:{server.port}")

        assert time.monotonic() - started_s < 1.0
        transport.close(1000, "")


def test_unreachable_server_is_reported_with_every_address_that_was_tried(monkeypatch):
    port = closed_port()
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)

    with pytest.raises(ServerUnreachableError) as caught:
        dial(f"ws://localhost:{port}")

    assert [address for address, _ in caught.value.attempts] == [
        f"127.0.0.1:{port}",
        f"127.0.0.2:{port}",
    ]
    assert f"127.0.0.1:{port}: Connection refused" in str(caught.value)


def test_unknown_name_is_reported_as_such(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(ServerUnreachableError, match="the name is not known"):
        dial("ws://no-such-host:8000")


def test_proxy_variables_of_the_environment_are_ignored(serving, monkeypatch):
    # Case H27: every variable points to a closed port and none excludes loopback.
    dead = f"http://127.0.0.1:{closed_port()}"
    for name in ("http_proxy", "https_proxy", "all_proxy", "socks_proxy", "ws_proxy", "wss_proxy"):
        monkeypatch.setenv(name, dead)
        monkeypatch.setenv(name.upper(), dead)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert "http_proxy" in os.environ
    transport = dial(serving(echo))
    for number in range(100):
        transport.send(str(number).encode())
        assert transport.receive(5.0) == str(number).encode()

    transport.close(1000, "")


def test_proxy_is_used_when_asked_for_and_named_without_its_password():
    proxy = f"http://user:hidden@127.0.0.1:{closed_port()}"

    with pytest.raises(ServerUnreachableError) as caught:
        dial("ws://127.0.0.1:8000", proxy=proxy)

    assert "proxy http://127.0.0.1" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_token_travels_as_a_bearer_and_its_refusal_cannot_heal(serving):
    seen = []

    def check(connection, request):
        seen.append(request.headers.get("Authorization"))
        return connection.respond(401, "no\n") if "right" not in (seen[-1] or "") else None

    url = serving(echo, process_request=check)
    dial(url, token="right").close(1000, "")
    with pytest.raises(TokenRefusedError, match="ROYALE_TOKEN") as caught:
        dial(url, token="wrong")

    assert seen == ["Bearer right", "Bearer wrong"]
    assert caught.value.retry is False


def test_server_that_answers_to_another_name_is_quoted_and_its_refusal_cannot_heal(serving):
    def check(connection, request):
        return connection.respond(403, "Use --allow-host.\x1b[2J\n")

    with pytest.raises(HandshakeRefusedError) as caught:
        dial(serving(echo, process_request=check))
    assert r"(HTTP 403): Use --allow-host.\x1b[2J" in str(caught.value)
    assert not isinstance(caught.value, TokenRefusedError)
    assert caught.value.retry is False


# --- TLS ------------------------------------------------------------------------------------


def served_tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT, KEY)
    return context


def test_server_is_trusted_if_the_named_authority_vouches_for_it_by_that_name(serving):
    url = serving(echo, ssl=served_tls()).replace("ws://", "wss://")
    transport = dial(url, tls_ca=str(CERT))
    transport.send(b"abc")
    assert transport.receive(5.0) == b"abc"
    transport.close(1000, "")


@pytest.mark.parametrize("authority", [None, OTHER_CERT])
def test_server_that_nobody_vouches_for_is_left_at_once(serving, authority):
    url = serving(echo, ssl=served_tls()).replace("ws://", "wss://")
    with pytest.raises(HandshakeRefusedError, match="self-signed certificate") as caught:
        dial(url, tls_ca=None if authority is None else str(authority))
    assert "--tls-ca" in str(caught.value)
    assert caught.value.retry is False


def test_server_whose_certificate_is_for_another_name_is_refused(serving):
    address = ServerAddress(url=serving(echo, ssl=served_tls())).host_and_port
    with (
        socket.create_connection(address) as sock,
        pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"),
    ):
        dialling.secure(sock, "192.0.2.7", time.monotonic() + 5, str(CERT))


def test_server_without_tls_is_left_at_once(serving):
    url = serving(echo).replace("ws://", "wss://")
    with pytest.raises(HandshakeRefusedError, match=r"no TLS with wss://.*write ws://") as caught:
        dial(url, tls_ca=str(CERT))
    assert caught.value.retry is False


@pytest.mark.parametrize(
    ("url", "authority", "complaint"),
    [
        ("ws://h", CERT, "only counts with wss://"),
        ("unix:///tmp/s", CERT, "only counts with wss://"),
        ("wss://h", CERT.with_name("none"), "No such file"),
        ("wss://h", KEY, "holds no certificate"),
    ],
)
def test_authorities_that_cannot_vouch_are_refused(url, authority, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ServerAddress(url=url, tls_ca=str(authority))


def test_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="holds a user or a password") as caught:
        ServerAddress(url="ws://user:hidden@h:1")
    assert "hidden" not in str(caught.value)


# --- socket files ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path_factory):
    """A folder for socket files, whose whole paths may have a hundred bytes."""
    return tmp_path_factory.mktemp("s")


def test_messages_and_token_travel_over_a_socket_file(folder):
    path = folder / "a b"
    seen = []

    def check(connection, request):
        seen.append((request.headers["Authorization"], request.headers["Host"]))

    with unix_serve(
        echo, str(path), subprotocols=["royale.v1"], compression=None, process_request=check
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        transport = dial(f"unix://{quote(str(path))}", token="right")
        for message in (b"", bytes(range(256)) * 1000):
            transport.send(message)
            assert transport.receive(5.0) == message
        transport.close(1000, "")
        server.shutdown()
        thread.join()
    assert seen == [("Bearer right", "localhost")]


def test_socket_file_that_leads_nowhere_says_why(folder):
    gone, text, none = folder / "gone", folder / "text", folder / "none"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(gone))
        sock.listen()
    text.write_text("no socket")
    for path, reason in (
        (none, "there is no such file"),
        (gone, "nobody listens there any more"),
        (text, "this is no socket file"),
        (folder / ("long" * 40), "AF_UNIX path too long"),
    ):
        with pytest.raises(ServerUnreachableError) as caught:
            dial(f"unix://{path}")
        assert caught.value.attempts == ((str(path), reason),)
        assert caught.value.retry is True


def test_socket_file_of_somebody_else_is_not_tried_again(folder, monkeypatch):
    def refused(sock, *_):
        sock.close()
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(dialling, "_connected", refused)
    with pytest.raises(
        HandshakeRefusedError, match="permission denied; the socket file is"
    ) as caught:
        dial(f"unix://{folder}/s")
    assert caught.value.retry is False


@pytest.mark.parametrize(
    ("status", "retry"), [(429, True), (503, True), (404, False), (426, False)]
)
def test_http_refusals_are_told_apart_by_whether_they_can_heal(serving, status, retry):
    url = serving(echo, process_request=lambda c, request: c.respond(status, "no\n"))

    with pytest.raises(HandshakeRefusedError) as caught:
        dial(url)

    assert caught.value.status == status
    assert caught.value.retry is retry


def test_server_of_another_protocol_is_left_at_once(serving):
    with pytest.raises(HandshakeRefusedError, match=r"did not agree to the subprotocol royale\.v1"):
        dial(serving(echo, subprotocols=None))


def test_server_that_is_no_websocket_server_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            peer, _ = listener.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HandshakeRefusedError, match="not a royale server"):
            dial(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_connection_that_ends_during_the_handshake_may_heal():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            peer, _ = listener.accept()
            peer.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ServerUnreachableError):
            dial(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


HOSTILE = "a reason\x1b]0;owned\x07\r\n12:00:00 INFO all is well"


def test_reason_of_a_close_cannot_steer_a_terminal(serving):
    transport = dial(serving(lambda connection: connection.close(1011, HOSTILE)))

    with pytest.raises(ConnectionLostError, match="a reason") as caught:
        transport.receive(5.0)
    assert str(caught.value).isprintable()
    assert caught.value.reason.isprintable()
    transport.close(1000, "")


@pytest.mark.parametrize(
    "header", ["Sec-WebSocket-Protocol: \x9b2J", "Connection: \x9b2J", "Upgrade: \x9b2J", "\x9b2J"]
)
def test_answer_to_a_handshake_cannot_steer_a_terminal(header):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            sock, _ = listener.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(f"HTTP/1.1 101 \x9b2J\r\n{header}\r\n\r\n".encode("latin-1"))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises((HandshakeRefusedError, ServerUnreachableError)) as caught:
            dial(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("code", "retry"), [(1001, True), (1011, True), (1013, True), (1008, False)]
)
def test_close_of_the_server_says_whether_to_come_back(serving, code, retry):
    def refuse(connection):
        connection.send(b"a last word")
        connection.close(code, "the reason")

    transport = dial(serving(refuse))

    assert transport.receive(5.0) == b"a last word"
    with pytest.raises(ConnectionLostError, match="the reason") as caught:
        transport.receive(5.0)
    assert caught.value.code == code
    assert caught.value.retry is retry
    transport.close(1000, "")


def test_message_too_large_for_the_server_is_explained_and_not_repeated(serving):
    transport = dial(serving(echo, max_size=1000))
    transport.send(bytes(2000))

    with pytest.raises(ConnectionLostError, match="larger than the limit") as caught:
        transport.receive(5.0)
    assert caught.value.retry is False
    transport.close(1000, "")


def test_message_too_large_for_the_client_ends_the_connection(serving):
    limits = Limits(max_message_bytes=1000)
    transport = connect(ServerAddress(url=serving(lambda c: c.send(bytes(2000)))), limits)

    with pytest.raises(ConnectionLostError, match="larger than the limit") as caught:
        transport.receive(5.0)
    assert caught.value.retry is False
    transport.close(1000, "")


def test_vanished_connection_is_lost_and_may_heal(serving):
    transport = dial(serving(lambda connection: connection.socket.shutdown(socket.SHUT_RDWR)))

    with pytest.raises(ConnectionLostError) as caught:
        transport.receive(5.0)
    assert caught.value.retry is True
    transport.close(1000, "")


def test_pings_are_answered_while_nobody_reads(serving):
    answered = threading.Event()

    def ping(connection):
        if connection.ping().wait(5.0):
            answered.set()
        connection.recv()

    transport = dial(serving(ping))

    # This thread does something else, as during a long environment step.
    assert answered.wait(5.0)
    transport.send(b"done")
    transport.close(1000, "")


def _examples():
    response = Response(500, "Internal Server Error", Headers(), b"")
    made = {
        ws_errors.ConnectionClosed: (Close(1001, ""), None),
        ws_errors.ConnectionClosedOK: (Close(1000, ""), None),
        ws_errors.ConnectionClosedError: (None, None),
        ws_errors.InvalidURI: ("uri", "why"),
        ws_errors.InvalidProxy: ("proxy", "why"),
        ws_errors.InvalidProxyStatus: (response,),
        ws_errors.InvalidStatus: (response,),
        ws_errors.InvalidHeader: ("name",),
        ws_errors.InvalidHeaderFormat: ("name", "error", "header", 0),
        ws_errors.InvalidHeaderValue: ("name",),
        ws_errors.InvalidOrigin: ("origin",),
        ws_errors.InvalidUpgrade: ("name",),
        ws_errors.PayloadTooBig: (10, 5),
        ws_errors.TooManyFragments: (10,),
        ws_errors.InvalidMethod: ("PUT",),
        ws_errors.InvalidProtocol: ("HTTP/0.9",),
        ws_errors.DuplicateParameter: ("name",),
        ws_errors.InvalidParameterName: ("name",),
        ws_errors.InvalidParameterValue: ("name", "value"),
    }
    kinds = [ws_errors.WebSocketException]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [kind(*made.get(kind, ())) for kind in dict.fromkeys(kinds)]


@pytest.mark.parametrize("error", _examples(), ids=lambda error: type(error).__name__)
def test_every_exception_of_the_library_becomes_one_of_ours(error, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(proxied_transport, "websocket_connect", fail)
    with pytest.raises((ServerUnreachableError, HandshakeRefusedError)):
        dial("ws://127.0.0.1:8000", proxy="http://127.0.0.1:3128")

    class Broken:
        send = recv = fail

    transport = proxied_transport.ProxiedTransport(Broken())
    with pytest.raises(ConnectionLostError):
        transport.send(b"")
    with pytest.raises(ConnectionLostError):
        transport.receive(0)
