"""A Transport over one WebSocket, with every exception of the library turned into one of ours.

Connections are direct: proxy variables of the environment are ignored unless a proxy is asked for,
and all addresses of a name are tried and named. Pings are answered by a thread of the library, so a
long environment step does not end the connection. This module never retries and never decodes.
"""

from __future__ import annotations

import logging
import socket
import time
from urllib.parse import urlsplit

import websockets.exceptions as ws_errors
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as websocket_connect
from websockets.typing import Subprotocol

from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    ServerAddress,
    ServerUnreachableError,
    TokenRefusedError,
)
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL

logger = logging.getLogger(__name__)

_PING_INTERVAL_S = 20.0
_PING_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
# While the environment computes, nobody reads the queue; a full queue would stop the reading thread
# and with it the answers to pings. 1,024 messages are hours of «busy» notes.
_MAX_QUEUED_MESSAGES = 1024
_UNRETRYABLE_CLOSE_CODES = frozenset({1002, 1003, 1007, 1008, 1009, 1010})


def connect(address: ServerAddress, limits: Limits, timeout_s: float = 10.0) -> WebSocketTransport:
    """Open one connection.

    Args:
        address: Where to connect.
        limits: Messages longer than its ``max_message_bytes`` end the connection.
        timeout_s: Seconds for name look-up, TCP, TLS and the WebSocket handshake together.

    Raises:
        ServerUnreachableError: If no address accepted a connection; names all that were tried.
        TokenRefusedError: If the server wants another token.
        HandshakeRefusedError: If what answered is no server of this protocol.
    """
    deadline = time.monotonic() + timeout_s
    sock, peer = (None, f"proxy {_without_password(address.proxy)}")
    if address.proxy is None:
        sock, peer = _dial(address.url, *address.host_and_port, deadline)
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else None
    try:
        # As a context manager, since that is the one form all releases of the library agree on.
        connection = websocket_connect(
            address.url,
            sock=sock,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            additional_headers=headers,
            proxy=address.proxy,
            open_timeout=max(0.1, deadline - time.monotonic()),
            ping_interval=_PING_INTERVAL_S,
            ping_timeout=_PING_TIMEOUT_S,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=limits.max_message_bytes,
            max_queue=_MAX_QUEUED_MESSAGES,
        ).__enter__()
    except (ws_errors.WebSocketException, OSError, ValueError, ImportError) as error:
        if sock is not None:
            sock.close()
        raise _handshake_error(address.url, peer, error) from error
    if connection.subprotocol != SUBPROTOCOL:
        connection.close(1002, "subprotocol")
        raise _foreign_server(address.url, f"it did not agree to the subprotocol {SUBPROTOCOL}")
    logger.info("connected to %s at %s", address.url, peer)
    return WebSocketTransport(connection)


class WebSocketTransport:
    """`royale_client.transport.Transport` over one open WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Send one binary message; see `Transport.send`."""
        try:
            self._connection.send(data)
        except (ws_errors.WebSocketException, OSError) as error:
            raise _lost(error) from error

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message; see `Transport.receive`."""
        try:
            return self._connection.recv(timeout_s, decode=False)
        except TimeoutError:
            return None
        except (ws_errors.WebSocketException, OSError) as error:
            raise _lost(error) from error

    def close(self, code: int, reason: str) -> None:
        """Say goodbye to the peer, wait briefly for its answer, and free the socket."""
        # A close reason may hold 123 bytes of UTF-8.
        self._connection.close(code, reason.encode()[:120].decode(errors="ignore"))


def _dial(url: str, host: str, port: int, deadline: float) -> tuple[socket.socket, str]:
    """Connect to the first address of ``host`` that accepts, and say which one that was."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServerUnreachableError(url, ((host, f"the name is not known ({error})"),)) from error
    attempts: list[tuple[str, str]] = []
    for position, (family, kind, protocol, _, target) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        # A silent address must leave time for the ones after it.
        sock.settimeout(max(0.1, (deadline - time.monotonic()) / (len(found) - position)))
        try:
            sock.connect(target)
        except OSError as error:
            sock.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror
            attempts.append((_readable(target), reason or str(error)))
        else:
            sock.settimeout(None)
            return sock, _readable(target)
    raise ServerUnreachableError(url, tuple(attempts))


def _readable(target: tuple[object, ...]) -> str:
    """Write a socket address as host:port, IPv6 in brackets."""
    host, port = str(target[0]), target[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _without_password(proxy: str | None) -> str:
    """Write a proxy's address without user and password."""
    if proxy is None:
        return "none"
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _handshake_error(
    url: str, peer: str, error: Exception
) -> ServerUnreachableError | HandshakeRefusedError:
    """Turn whatever failed during the handshake into one of our errors."""
    if isinstance(error, ws_errors.InvalidStatus):
        return _status_error(url, error.response.status_code)
    if isinstance(error, ws_errors.InvalidMessage) and isinstance(error.__cause__, EOFError):
        return ServerUnreachableError(url, ((peer, "closed during the handshake"),))
    if isinstance(error, ws_errors.InvalidProxy | ws_errors.ProxyError):
        return HandshakeRefusedError(
            f"{peer} did not open a way to {url}: {error}; check --proxy, or leave it out"
        )
    if isinstance(error, ws_errors.InvalidHandshake | ws_errors.InvalidURI | ValueError):
        return _foreign_server(url, str(error))
    if isinstance(error, ImportError):
        return HandshakeRefusedError(f"{peer}: {error}")
    return ServerUnreachableError(url, ((peer, str(error) or type(error).__name__),))


def _status_error(url: str, status: int) -> HandshakeRefusedError:
    if status in {401, 403}:
        return TokenRefusedError(
            f"{url} refused the token (HTTP {status}): set ROYALE_TOKEN or --token-file to the "
            "token the server was started with",
            status=status,
        )
    if status == 429 or status >= 500:
        return HandshakeRefusedError(
            f"{url} cannot take this client now (HTTP {status})", status=status, retry=True
        )
    error = _foreign_server(url, f"it answered with HTTP {status}")
    error.status = status
    return error


def _foreign_server(url: str, detail: str) -> HandshakeRefusedError:
    return HandshakeRefusedError(
        f"what answers at {url} is not a royale server of protocol {SUBPROTOCOL}: {detail}; check "
        "host and port, and that client and server are of the same release"
    )


def _lost(error: Exception) -> ConnectionLostError:
    """Turn the end of a connection into our error, with the peer's code and reason."""
    if not isinstance(error, ws_errors.ConnectionClosed):
        return ConnectionLostError(f"the connection broke: {error}")
    frame = error.rcvd or error.sent
    if frame is None:
        return ConnectionLostError("the connection to the server vanished without a close message")
    if frame.code == 1009:
        message = (
            "a message was larger than the limit of the side that received it "
            f"({frame.reason or 'no size given'}); use fewer environments per client, or raise the "
            "server's message limit"
        )
    else:
        message = f"the connection was closed ({frame.code}: {frame.reason or 'no reason given'})"
    return ConnectionLostError(
        message,
        code=frame.code,
        reason=frame.reason,
        retry=frame.code not in _UNRETRYABLE_CLOSE_CODES,
    )
