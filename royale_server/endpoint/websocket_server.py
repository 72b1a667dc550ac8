"""The network edge: WebSocket connections on one side, the hub on the other.

One asyncio loop, the I/O thread. Turns connections into hub events and queued messages into
frames; knows nothing of what the messages say. Compression is off, keepalive pings are answered
while a learn step runs, because that is another thread's.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN

from royale_client.wire.errors import one_line
from royale_client.wire.frames import BINARY, FIN, frame_head
from royale_client.wire.grammar import CLOSE_CODES
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL
from royale_server.endpoint.connection import PING_INTERVAL_S
from royale_server.endpoint.door import Doorkeeper
from royale_server.endpoint.entry import EntryRules
from royale_server.endpoint.handshake import ObservedConnection
from royale_server.endpoint.hub import Hub
from royale_server.endpoint.intake import Intake
from royale_server.endpoint.keepalive import Keepalive
from royale_server.endpoint.socket_file import SocketFile

logger = logging.getLogger(__name__)

GREETING_CONNECTIONS = 64
"""Connections beyond the sessions: clients that say hello, and strangers that do not."""
HANDSHAKE_TIMEOUT_S = 4.0
CLOSE_TIMEOUT_S = 2.0
SHORT_BYTES = 64 * 1024
"""Longer answers are not copied once more to stand behind the head of their frame."""


class SocketConnection:
    """A connection whose sends never block: what the system does not take waits in the transport.

    Args:
        socket: The library's connection, open.
        patience_s: How long a client may take to read its last words.
        max_unread_bytes: What a client may leave unread before it is cut off.
    """

    def __init__(
        self, socket: ObservedConnection, patience_s: float, max_unread_bytes: int
    ) -> None:
        self._socket = socket
        self._patience_s = patience_s
        self._max_unread_bytes = max_unread_bytes
        self._closing: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return self._socket.address

    def send(self, data: bytes) -> None:
        """Send one message; a client that reads nothing is cut off."""
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
        transport, limit = self._socket.transport, self._max_unread_bytes
        if not transport.is_closing() and transport.get_write_buffer_size() > limit:
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
        rules: Who may connect.
        max_sessions: Clients that may take part.
        max_unread_bytes: Answers that a client may leave unread.
        ping_timeout_s: How long a client may give no sign of life after a ping.
        patience_s: How long a client may take to read its last words: an environment may be in the
            middle of a step.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        limits: Limits,
        rules: EntryRules,
        max_sessions: int,
        max_unread_bytes: int,
        ping_timeout_s: float,
        patience_s: float,
    ) -> None:
        self._hub = hub
        self._limits = limits
        self._doors = [Doorkeeper(rules), Doorkeeper(replace(rules, hosts=None))]
        self._max_unread_bytes = max_unread_bytes
        self._max_connections = max_sessions + GREETING_CONNECTIONS
        self._ping_timeout_s = ping_timeout_s
        self._patience_s = max(PING_INTERVAL_S, patience_s)
        self._servers: list[Server] = []
        self._file: SocketFile | None = None
        self._sockets: set[ObservedConnection] = set()
        self._has_failed = False

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> list[tuple[str, int]]:
        """Listen for clients of this and other machines.

        Args:
            host: Address to listen on.
            port: Port; 0 takes a free one.
            tls: What clients are to be answered with over TLS; None speaks in the clear.

        Returns:
            The addresses really listened on.

        Raises:
            OSError: If the address cannot be had.
        """
        settings = self._settings(self._doors[0])
        if tls is not None:
            settings |= {"ssl": tls, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}
        server = await serve(self._handle, host, port, **settings)
        self._servers.append(server)
        return [socket.getsockname()[:2] for socket in server.sockets]

    async def start_on_file(self, path: Path) -> str:
        """Listen for clients of the same user on this machine, at a socket file.

        Nothing but this machine's own programs can reach it, and no browser: what it is called
        does not matter.

        Returns:
            What they take for ``--server-url``.

        Raises:
            ConfigError: If the file cannot be made.
        """
        self._file = SocketFile(path)
        sock = self._file.socket
        settings = self._settings(self._doors[1])
        self._servers.append(await unix_serve(self._handle, sock=sock, **settings))
        return self._file.url

    def _settings(self, doors: Doorkeeper) -> dict[str, Any]:
        edge_logger = logging.getLogger("royale_server.websockets")
        edge_logger.setLevel(logging.WARNING)  # below it the library tells every frame
        edge_logger.addFilter(_without_traceback)
        return {
            "subprotocols": [websockets.Subprotocol(SUBPROTOCOL)],
            "compression": None,
            "max_size": self._limits.max_message_bytes,
            "ping_interval": None,  # see `Keepalive`
            "open_timeout": HANDSHAKE_TIMEOUT_S,
            "close_timeout": CLOSE_TIMEOUT_S,
            "process_request": partial(_refuse_again, doors),
            "create_connection": doors,
            "logger": edge_logger,
        }

    async def stop(self) -> None:
        """Stop listening and wait, briefly, until every connection is closed."""
        for server in self._servers:
            server.close(close_connections=False)
        for doors in self._doors:
            doors.close()
        if self._file is not None:
            self._file.remove()
        closing = {asyncio.create_task(socket.wait_closed()): socket for socket in self._sockets}
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
        for task, socket in closing.items():
            if not task.done():
                task.cancel()
                socket.transport.abort()  # stuck or stopped: it will not be waited for

    async def _handle(self, socket: ServerConnection) -> None:
        assert isinstance(socket, ObservedConnection)
        is_full = self._hub.num_connections >= self._max_connections
        if is_full and not self._hub.drop_a_stranger():
            await socket.close(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        connection = SocketConnection(socket, self._patience_s, self._max_unread_bytes)
        peer = self._hub.opened(connection)
        socket.on_text = partial(self._tell, self._hub.refuse_text, peer)
        take = partial(self._tell, self._hub.received, peer)
        max_bytes = self._limits.max_message_bytes
        intake = Intake(socket, max_bytes, take, connection.cut_off_if_unread)
        intake.install()
        keepalive = Keepalive(
            socket, intake, interval_s=PING_INTERVAL_S, timeout_s=self._ping_timeout_s
        )
        keeping = asyncio.create_task(keepalive.run())
        self._sockets.add(socket)
        why = "connection closed"
        try:
            await socket.recv()  # until the connection is lost: its messages do not come this way
        except websockets.ConnectionClosedError as error:
            # The library quotes the client.
            why = f"connection lost: {keepalive.why or one_line(str(error))}"
        except websockets.ConnectionClosedOK:
            pass
        finally:
            keeping.cancel()
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


def _refuse_again(
    doors: Doorkeeper, connection: ServerConnection, request: Request
) -> Response | None:
    """Judge a request as the library has read it, which decides; the door may be mistaken."""
    refusal = doors.rules.refusal(request.headers.get_all)
    if refusal is None:
        return None
    assert isinstance(connection, ObservedConnection)
    connection.was_refused = True
    doors.say(connection.address, f"client at {connection.address}: {refusal.why}")
    return connection.respond(refusal.status, refusal.text)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Say what a peer did wrong in one line: a stranger's bytes are no error of ours."""
    if record.getMessage() == "opening handshake failed":
        return False  # `ObservedConnection` says so, whatever the release of the library
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        cause = error.__cause__ or error
        record.msg = f"{record.getMessage()}: {one_line(str(cause))}"
        record.args = ()
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def write_address(path: Path, address: str) -> None:
    """Tell scripts where the server listens, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(f"{address}\n", encoding="utf-8")
    temporary.replace(path)
