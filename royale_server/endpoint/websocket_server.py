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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN

from royale_client.wire.frames import BINARY, FIN, frame_head
from royale_client.wire.grammar import CLOSE_CODES
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.connection import PING_INTERVAL_S
from royale_server.endpoint.handshake import ObservedConnection
from royale_server.endpoint.hub import Hub
from royale_server.endpoint.intake import Intake
from royale_server.endpoint.socket_file import SocketFile

logger = logging.getLogger(__name__)

GREETING_CONNECTIONS = 64
"""Connections beyond the sessions: clients that say hello, and strangers that do not."""
HANDSHAKE_TIMEOUT_S = 4.0
CLOSE_TIMEOUT_S = 2.0
SHORT_BYTES = 64 * 1024
"""Longer answers are not copied once more to stand behind the head of their frame."""
MAX_QUEUED_BYTES = 64 * 2**20
"""Answers a client may leave unread before it is cut off."""


class SocketConnection:
    """A connection whose sends never block: what the system does not take waits in the transport.

    Args:
        socket: The library's connection, open.
        patience_s: How long a client may take to read its last words.
    """

    def __init__(self, socket: ObservedConnection, patience_s: float) -> None:
        self._socket = socket
        self._patience_s = patience_s
        self._closing: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return self._socket.address

    def send(self, data: bytes) -> None:
        """Send one message; a client that reads nothing is cut off at `MAX_QUEUED_BYTES`."""
        socket = self._socket
        transport = socket.transport
        if socket.protocol.state is not OPEN or transport.is_closing():
            return  # the reading side reports it
        head = frame_head(FIN | BINARY, len(data), is_masked=False)
        if len(data) < SHORT_BYTES:
            transport.write(head + data)
        else:
            transport.write(head)
            transport.write(data)
        self.cut_off_if_unread()

    def cut_off_if_unread(self) -> None:
        """End a connection whose client leaves too much unread; pongs count like answers."""
        transport = self._socket.transport
        if not transport.is_closing() and transport.get_write_buffer_size() > MAX_QUEUED_BYTES:
            logger.warning("client at %s reads nothing: cut off", self.address)
            transport.abort()

    def close(self, reason: str) -> None:
        """Close once everything is sent."""
        self._closing = asyncio.create_task(self._close(CLOSE_CODES[reason], reason))

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._socket.drain()
                await self._socket.close(code, reason)
        except OSError:  # it took too long, or is gone already
            self._socket.transport.abort()


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
        self._servers: list[Server] = []
        self._file: SocketFile | None = None
        self._sockets: set[ObservedConnection] = set()
        self._has_failed = False

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen for clients of this and other machines.

        Returns:
            The addresses really listened on.

        Raises:
            OSError: If the address cannot be had.
        """
        server = await serve(self._handle, host, port, **self._settings())
        self._servers.append(server)
        return [socket.getsockname()[:2] for socket in server.sockets]

    async def start_on_file(self, path: Path) -> str:
        """Listen for clients of the same user on this machine, at a socket file.

        Returns:
            What they take for ``--server-url``.

        Raises:
            ConfigError: If the file cannot be made.
        """
        self._file = SocketFile(path)
        sock = self._file.socket
        self._servers.append(await unix_serve(self._handle, sock=sock, **self._settings()))
        return self._file.url

    def _settings(self) -> dict[str, Any]:
        edge_logger = logging.getLogger("royale_server.websockets")
        edge_logger.setLevel(logging.WARNING)  # below it the library tells every frame
        edge_logger.addFilter(_without_traceback)
        return {
            "subprotocols": [websockets.Subprotocol(SUBPROTOCOL)],
            "compression": None,
            "max_size": self._limits.max_message_bytes,
            "ping_interval": PING_INTERVAL_S,
            "ping_timeout": self._ping_timeout_s,
            "open_timeout": HANDSHAKE_TIMEOUT_S,
            "close_timeout": CLOSE_TIMEOUT_S,
            "process_request": self._check_token,
            "create_connection": ObservedConnection,
            "logger": edge_logger,
        }

    async def stop(self) -> None:
        """Stop listening and wait, briefly, until every connection is closed."""
        for server in self._servers:
            server.close(close_connections=False)
        if self._file is not None:
            self._file.remove()
        closing = {asyncio.create_task(socket.wait_closed()): socket for socket in self._sockets}
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
        for task, socket in closing.items():
            if not task.done():
                task.cancel()
                socket.transport.abort()  # stuck or stopped: it will not be waited for

    def _check_token(self, connection: ServerConnection, request: Request) -> Response | None:
        if self._token is None:
            return None
        given = request.headers.get("Authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return None
        assert isinstance(connection, ObservedConnection)
        logger.warning("client at %s: token missing or wrong", connection.address)
        text = "This server wants a token: set ROYALE_TOKEN or --token-file on the client.\n"
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, text)

    async def _handle(self, socket: ServerConnection) -> None:
        assert isinstance(socket, ObservedConnection)
        if self._hub.num_connections >= self._max_connections:
            await socket.close(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        connection = SocketConnection(socket, self._ping_timeout_s)
        peer = self._hub.opened(connection)
        socket.on_text = partial(self._tell, self._hub.refuse_text, peer)
        take = partial(self._tell, self._hub.received, peer)
        max_bytes = self._limits.max_message_bytes
        Intake(socket, max_bytes, take, connection.cut_off_if_unread).install()
        self._sockets.add(socket)
        why = "connection closed"
        try:
            await socket.recv()  # until the connection is lost: its messages do not come this way
        except websockets.ConnectionClosedError as error:
            why = f"connection lost: {error}"
        except websockets.ConnectionClosedOK:
            pass
        finally:
            self._sockets.discard(socket)
            socket.on_text = None  # it refers back here
            self._tell(self._hub.closed, peer, why)

    def _tell(self, event: Callable[..., None], *arguments: object) -> None:
        """Tell the hub of an event, unless it has failed: the run must not go on half-dead."""
        if self._has_failed:
            return
        try:
            event(*arguments)
        except Exception as error:  # frame accounting
            self._has_failed = True
            self._hub.fail(error)


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


def write_address(path: Path, address: str) -> None:
    """Tell scripts where the server listens, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(f"{address}\n", encoding="utf-8")
    temporary.replace(path)
