"""A Transport through a proxy: the library's own blocking connection, which knows the ways.

It reads in a thread of its own, which costs more per message than the direct transport, and is why
that one exists. This module never retries and never decodes.
"""

from __future__ import annotations

import logging
import ssl
from urllib.parse import urlsplit

import websockets.exceptions as ws_errors
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as websocket_connect
from websockets.typing import Subprotocol

from royale_client.dialling import foreign_server, handshake_error, lost
from royale_client.transport import ServerAddress
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL

logger = logging.getLogger(__name__)

_PING_INTERVAL_S = 20.0
_PING_TIMEOUT_S = 20.0
_CLOSE_TIMEOUT_S = 5.0
# While the environment computes, nobody reads the queue; a full queue would stop the reading thread
# and with it the answers to pings. 1,024 messages are hours of «busy» notes.
_MAX_QUEUED_MESSAGES = 1024


def connect(address: ServerAddress, limits: Limits, timeout_s: float) -> ProxiedTransport:
    """Open one connection through the proxy of the address.

    Args:
        address: Where to connect.
        limits: Messages longer than its ``max_message_bytes`` end the connection.
        timeout_s: Seconds for TCP, TLS and both handshakes together; the look-up of the proxy's
            name has the system's own limit.

    Raises:
        ServerUnreachableError: If the proxy or the server did not answer.
        TokenRefusedError: If the server wants another token.
        HandshakeRefusedError: If what answered is no server of this protocol.
    """
    peer = f"proxy {_without_password(address.proxy)}"
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else None
    is_tls = urlsplit(address.url).scheme == "wss"
    try:
        # As a context manager, since that is the one form all releases of the library agree on.
        connection = websocket_connect(
            address.url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            additional_headers=headers,
            proxy=address.proxy,
            ssl=ssl.create_default_context(cafile=address.tls_ca) if is_tls else None,
            open_timeout=timeout_s,
            ping_interval=_PING_INTERVAL_S,
            ping_timeout=_PING_TIMEOUT_S,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=limits.max_message_bytes,
            max_queue=_MAX_QUEUED_MESSAGES,
        ).__enter__()
    except (ws_errors.WebSocketException, OSError, ValueError, ImportError) as error:
        raise handshake_error(address.url, peer, error) from error
    if connection.subprotocol != SUBPROTOCOL:
        connection.close(1002, "subprotocol")
        raise foreign_server(address.url, f"it did not agree to the subprotocol {SUBPROTOCOL}")
    logger.info("connected to %s at %s", address.url, peer)
    return ProxiedTransport(connection)


class ProxiedTransport:
    """`royale_client.transport.Transport` over one open WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Send one binary message; see `Transport.send`."""
        try:
            self._connection.send(data)
        except (ws_errors.WebSocketException, OSError) as error:
            raise lost(error) from error

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message; see `Transport.receive`."""
        try:
            return self._connection.recv(timeout_s, decode=False)
        except TimeoutError:
            return None
        except (ws_errors.WebSocketException, OSError) as error:
            raise lost(error) from error

    def close(self, code: int, reason: str) -> None:
        """Say goodbye to the peer, wait briefly for its answer, and free the socket."""
        # A close reason may hold 123 bytes of UTF-8.
        self._connection.close(code, reason.encode()[:120].decode(errors="ignore"))


def _without_password(proxy: str | None) -> str:
    """Write a proxy's address without user and password."""
    assert proxy is not None, "whoever has none connects directly"
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
