"""The network edge: WebSocket connections on one side, the hub on the other.

One asyncio loop, the I/O thread. Turns connections into hub events and queued messages into
frames; knows nothing of what the messages say. Compression is off, keepalive pings are answered
while a learn step runs, because nothing on this thread computes.
"""

from __future__ import annotations

import asyncio
import hmac
import http
import logging
from collections import deque
from pathlib import Path

import websockets
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from royale_client.wire.grammar import CLOSE_CODES
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.handshake import ObservedConnection
from royale_server.endpoint.hub import Hub

logger = logging.getLogger(__name__)

PING_INTERVAL_S = 20.0
GREETING_CONNECTIONS = 64
"""Connections beyond the sessions: clients that say hello, and strangers that do not."""
HANDSHAKE_TIMEOUT_S = 4.0
CLOSE_TIMEOUT_S = 2.0
MAX_QUEUED_BYTES = 64 * 2**20
"""Answers a client may leave unread before it is cut off."""


class SocketConnection:
    """A connection whose sends never block: messages queue here and one task drains them."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._close_reason: str | None = None
        host, port = socket.remote_address[:2] if socket.remote_address else ("local", 0)
        self._address = f"{host}:{port}"

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return self._address

    def send(self, data: bytes) -> None:
        """Queue one message; a client that reads nothing is cut off at `MAX_QUEUED_BYTES`."""
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            logger.warning("client at %s reads nothing: cut off", self._address)
            self._queue.clear()
            self._socket.transport.abort()
        self._wake.set()

    def close(self, reason: str) -> None:
        """Close once the queue is sent."""
        self._close_reason = reason
        self._wake.set()

    async def drain(self) -> None:
        """Send what is queued until closed. Ends quietly when the connection does."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    data = self._queue.popleft()
                    await self._socket.send(data)
                    self._queued_bytes -= len(data)
                if self._close_reason is not None:
                    code = CLOSE_CODES[self._close_reason]
                    await self._socket.close(code, self._close_reason)
                    return
        except websockets.ConnectionClosed:
            return  # the reading side reports it


class WebSocketServer:
    """Listens and feeds the hub.

    Args:
        hub: Takes connections and messages.
        limits: Bounds the size of a message.
        token: What clients must present, or None.
        max_sessions: Clients that may take part.
        ping_timeout_s: How long a ping may stay unanswered. No shorter than the time an environment
            may take for a step, during which some clients cannot answer.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        limits: Limits,
        token: str | None,
        max_sessions: int,
        ping_timeout_s: float,
    ) -> None:
        self._hub = hub
        self._limits = limits
        self._token = token
        self._max_connections = max_sessions + GREETING_CONNECTIONS
        self._ping_timeout_s = max(PING_INTERVAL_S, ping_timeout_s)
        self._server: Server | None = None

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen.

        Returns:
            The addresses really listened on.

        Raises:
            OSError: If the address cannot be had.
        """
        edge_logger = logging.getLogger("royale_server.websockets")
        edge_logger.setLevel(logging.WARNING)  # below it the library tells every frame
        edge_logger.addFilter(_without_traceback)
        self._server = await serve(
            self._handle,
            host,
            port,
            subprotocols=[websockets.Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=self._limits.max_message_bytes,
            max_queue=4,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=self._ping_timeout_s,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            process_request=self._check_token,
            create_connection=ObservedConnection,
            logger=edge_logger,
        )
        return [socket.getsockname()[:2] for socket in self._server.sockets]

    async def stop(self) -> None:
        """Stop listening and wait, briefly, until every connection is closed."""
        if self._server is None:
            return
        self._server.close(close_connections=False)
        connections = list(self._server.connections)
        closing = [asyncio.create_task(connection.wait_closed()) for connection in connections]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
        for task, connection in zip(closing, connections, strict=True):
            if not task.done():
                task.cancel()
                connection.transport.abort()  # stuck or stopped: it will not be waited for

    def _check_token(self, connection: ServerConnection, request: Request) -> Response | None:
        if self._token is None:
            return None
        given = request.headers.get("Authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return None
        host, port = connection.remote_address[:2]
        logger.warning("client at %s:%s: token missing or wrong", host, port)
        text = "This server wants a token: set ROYALE_TOKEN or --token-file on the client.\n"
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, text)

    async def _handle(self, socket: ServerConnection) -> None:
        if self._hub.num_connections >= self._max_connections:
            await socket.close(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        connection = SocketConnection(socket)
        peer = self._hub.opened(connection)
        draining = asyncio.create_task(connection.drain())
        why = "connection closed"
        try:
            async for data in socket:
                if isinstance(data, str):
                    self._hub.refuse_text(peer)
                else:
                    self._hub.received(peer, data)
        except websockets.ConnectionClosedError as error:
            why = f"connection lost: {error}"
        except Exception as error:  # frame accounting: the run must not go on half-dead
            self._hub.fail(error)
        finally:
            if peer.is_closed:  # by the hub: its last words are still to be sent
                await draining
            self._hub.closed(peer, why)
            draining.cancel()


def _without_traceback(record: logging.LogRecord) -> bool:
    """Say what a peer did wrong in one line: a stranger's bytes are no error of ours."""
    if record.getMessage() == "opening handshake failed":
        return False  # `ObservedConnection` says so, whatever the release of the library
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        cause = error.__cause__ or error
        record.msg = f"{record.getMessage()}: {cause}"
        record.args = ()
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def write_address(path: Path, host: str, port: int) -> None:
    """Tell scripts where the server listens, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(f"{host}:{port}\n", encoding="utf-8")
    temporary.replace(path)
