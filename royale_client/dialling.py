"""Finding the server, shaking hands, and saying in our words what went wrong with a connection.

This module never retries, and knows no connection after its handshake.
"""

from __future__ import annotations

import os
import socket
import ssl
import stat
import time

import websockets.exceptions as ws_errors
from websockets.client import ClientProtocol
from websockets.frames import Close
from websockets.http11 import Response
from websockets.protocol import State

from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    ServerUnreachableError,
    TokenRefusedError,
)
from royale_client.wire.errors import one_line
from royale_client.wire.version import SUBPROTOCOL

_UNRETRYABLE_CLOSE_CODES = frozenset({1002, 1003, 1007, 1008, 1009, 1010})
_TOO_BIG = 1009
_READ_BYTES = 64 * 1024
_MAX_SAID = 300
"""Characters of what a server says of its refusal."""
_FILE_BUFFER_BYTES = 2**20
"""Of a socket file, which has room for a small part of a message of images otherwise."""


def dial(url: str, host: str, port: int, deadline: float) -> tuple[socket.socket, str]:
    """Connect to the first address of ``host`` that accepts, and say which one that was.

    Args:
        url: What the user gave, for messages.
        host: Name or address.
        port: Port.
        deadline: Monotonic time by which one must have accepted. The name look-up has the system's
            own limit, and after it every address has 0.1 s at least.

    Raises:
        ServerUnreachableError: If none did; names all that were tried.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServerUnreachableError(url, ((host, f"the name is not known ({error})"),)) from error
    attempts: list[tuple[str, str]] = []
    for position, (family, kind, protocol, _, target) in enumerate(found):
        # A silent address must leave time for the ones after it.
        limit_s = max(0.1, (deadline - time.monotonic()) / (len(found) - position))
        try:
            sock = _connected(socket.socket(family, kind, protocol), target, limit_s)
        except OSError as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror
            attempts.append((_readable(target), reason or str(error)))
        else:
            return sock, _readable(target)
    raise ServerUnreachableError(url, tuple(attempts))


def dial_file(url: str, path: str, deadline: float) -> socket.socket:
    """Connect to a socket file of this machine.

    Args:
        url: What the user gave, for messages.
        path: The file.
        deadline: Monotonic time by which it must have accepted.

    Raises:
        ServerUnreachableError: If there is none, or nobody listens behind it.
        HandshakeRefusedError: If it belongs to somebody else, or there can be none.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise HandshakeRefusedError(f"{url}: this system has no socket files; use ws://HOST:PORT")
    sock = socket.socket(socket.AF_UNIX)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _FILE_BUFFER_BYTES)
    try:
        return _connected(sock, path, max(0.1, deadline - time.monotonic()))
    except FileNotFoundError as error:
        raise ServerUnreachableError(url, ((path, "there is no such file"),)) from error
    except ConnectionRefusedError as error:
        reason = "nobody listens there any more"
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            reason = "this is no socket file"
        raise ServerUnreachableError(url, ((path, reason),)) from error
    except PermissionError as error:
        raise HandshakeRefusedError(
            f"{url}: permission denied; the socket file is for the user who started the server. "
            "Run the client as that user, or connect over TCP"
        ) from error
    except OSError as error:
        raise ServerUnreachableError(url, ((path, error.strerror or str(error)),)) from error


def _connected(
    sock: socket.socket, target: tuple[object, ...] | str, limit_s: float
) -> socket.socket:
    """Connect one socket, or close it and raise what went wrong."""
    try:
        if isinstance(target, tuple):
            # A step is sent in one go and waited for: to hold it back for more only delays it.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(limit_s)
        sock.connect(target)
    except OSError:
        sock.close()
        raise
    return sock


def secure(
    sock: socket.socket, host: str, deadline: float, tls_ca: str | None = None
) -> ssl.SSLSocket:
    """Agree on TLS with the server, whose certificate must be valid for ``host``.

    Args:
        sock: The connected socket.
        host: Name or address by which the server was called.
        deadline: Monotonic time by which it must have answered.
        tls_ca: PEM file of the authorities that may vouch for it; None takes the system's.

    Raises:
        OSError: If the certificate is refused, the connection ends, or the deadline passes.
    """
    sock.settimeout(_left_s(deadline))  # for all of what wrap_socket does together
    context = ssl.create_default_context(cafile=tls_ca)
    return context.wrap_socket(sock, server_hostname=host)


def shake_hands(
    protocol: ClientProtocol, sock: socket.socket, token: str | None, deadline: float
) -> bytes:
    """Upgrade the connection to a WebSocket.

    Args:
        protocol: The library's protocol, not yet connected.
        sock: The connected socket; its time-out is changed.
        token: Sent as a bearer token; None sends none.
        deadline: Monotonic time by which the server must have answered in full.

    Returns:
        What came behind the answer; the protocol has not seen it.

    Raises:
        WebSocketException: Of the library, if the answer is not the one to a handshake.
        OSError: If the connection breaks, or the deadline passes.
    """
    request = protocol.connect()
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    protocol.send_request(request)
    for piece in protocol.data_to_send():
        sock.settimeout(_left_s(deadline))
        sock.sendall(piece)
    head = b""
    while protocol.handshake_exc is None:
        sock.settimeout(_left_s(deadline))  # anew, since an answer may come drop by drop
        data = sock.recv(_READ_BYTES)
        if not data:
            protocol.receive_eof()
            continue
        head, rest = _cut_behind_head(head, data)
        protocol.receive_data(data[: len(data) - len(rest)])
        if protocol.state is State.OPEN:
            return rest
        if rest:
            protocol.receive_data(rest)  # of the text that goes with a refusal
    raise protocol.handshake_exc


def _cut_behind_head(before: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Find the blank line that ends the head of an answer.

    Args:
        before: The last three bytes that came before.
        data: What has come.

    Returns:
        The last three bytes for the next time, and what follows the head.
    """
    both = before + data
    end = both.find(b"\r\n\r\n")
    return both[-3:], b"" if end < 0 else both[end + 4 :]


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s


def _readable(target: tuple[object, ...]) -> str:
    """Write a socket address as host:port, IPv6 in brackets."""
    host, port = str(target[0]), target[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def handshake_error(
    url: str, peer: str, error: Exception
) -> ServerUnreachableError | HandshakeRefusedError:
    """Turn whatever failed during the handshake into one of our errors."""
    if isinstance(error, ws_errors.InvalidStatus):
        return _status_error(url, error.response)
    if isinstance(error, ws_errors.InvalidMessage) and isinstance(error.__cause__, EOFError):
        return ServerUnreachableError(url, ((peer, "closed during the handshake"),))
    said = one_line(str(error))  # it may quote the peer
    if isinstance(error, ws_errors.InvalidProxy | ws_errors.ProxyError | ImportError):
        return HandshakeRefusedError(
            f"{peer} did not open a way to {url}: {said}; check --proxy, or leave it out"
        )
    if isinstance(error, ssl.SSLError):
        return _tls_error(url, error)
    if isinstance(error, ws_errors.InvalidHandshake | ws_errors.InvalidURI | ValueError):
        return foreign_server(url, said)
    return ServerUnreachableError(url, ((peer, said or type(error).__name__),))


def _tls_error(url: str, error: ssl.SSLError) -> HandshakeRefusedError:
    """What it means that no TLS came about; to try again does not change it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeRefusedError(
            f"the certificate of {url} is not to be trusted: {error.verify_message}; if it is "
            "yours, give the file of who signed it with --tls-ca, and call the server by a name "
            "in its certificate"
        )
    return HandshakeRefusedError(
        f"no TLS with {url}: {error.reason or error}; write ws:// if the server was started "
        "without --tls-cert"
    )


def _status_error(url: str, response: Response) -> HandshakeRefusedError:
    """What an HTTP answer in place of a WebSocket means."""
    status = response.status_code
    if status == 401:
        return TokenRefusedError(
            f"{url} refused the token (HTTP {status}): set ROYALE_TOKEN or --token-file to the "
            "token the server was started with",
            status=status,
        )
    if status == 403:
        said = one_line(bytes(response.body or b"").decode(errors="replace").strip())[:_MAX_SAID]
        return HandshakeRefusedError(
            f"{url} does not let this client in (HTTP {status}): {said or 'it does not say why'}",
            status=status,
        )
    if status == 429 or status >= 500:
        return HandshakeRefusedError(
            f"{url} cannot take this client now (HTTP {status})", status=status, retry=True
        )
    error = foreign_server(url, f"it answered with HTTP {status}")
    error.status = status
    return error


def foreign_server(url: str, detail: str) -> HandshakeRefusedError:
    """What answered is no server of this protocol."""
    return HandshakeRefusedError(
        f"what answers at {url} is not a royale server of protocol {SUBPROTOCOL}: {detail}; check "
        "host and port, that it is wss:// for a server with TLS, and that client and server are of "
        "the same release"
    )


def lost(error: Exception | None) -> ConnectionLostError:
    """Turn the end of a connection into our error, with the peer's code and reason.

    Args:
        error: What the library or the system raised; None if the connection just ended.
    """
    if error is not None and not isinstance(error, ws_errors.ConnectionClosed):
        return ConnectionLostError(f"the connection broke: {one_line(str(error))}")
    return lost_with(None if error is None else error.rcvd or error.sent)


def lost_with(frame: Close | None) -> ConnectionLostError:
    """The connection ended with a close frame of the peer or of ours, or with none."""
    if frame is None:
        return ConnectionLostError("the connection to the server vanished without a close message")
    said = one_line(frame.reason)
    if frame.code == _TOO_BIG:
        message = (
            "a message was larger than the limit of the side that received it "
            f"({said or 'no size given'}); use fewer environments per client, or raise the "
            "server's message limit"
        )
    else:
        message = f"the connection was closed ({frame.code}: {said or 'no reason given'})"
    return ConnectionLostError(
        message,
        code=frame.code,
        reason=said,
        retry=frame.code not in _UNRETRYABLE_CLOSE_CODES,
    )
