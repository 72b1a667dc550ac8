"""A Transport over one WebSocket on a blocking socket, driven by the caller's own thread.

The protocol is the sans-I/O half of the library; what is here moves its bytes. A message costs a
third of what it costs by way of a reading thread, which has to wake for each. While the caller is
busy with its environments, a keeper looks after the connection now and then, so that pings are
answered all the same. This module never retries and never decodes.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import deque
from urllib.parse import urlsplit

import websockets.exceptions as ws_errors
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from royale_client import proxied_transport
from royale_client.dialling import dial, foreign_server, handshake_error, lost_with
from royale_client.transport import ConnectionLostError, ServerAddress, Transport
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_KEEP_EVERY_S = 0.1
_PING_AFTER_S = 20.0
_GIVE_UP_AFTER_S = 80.0
"""Without a sign of life, the answer to a ping included."""
_SEND_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0


def connect(address: ServerAddress, limits: Limits, timeout_s: float = 10.0) -> Transport:
    """Open one connection: directly, unless the address has a proxy.

    Proxy variables of the environment are ignored.

    Args:
        address: Where to connect.
        limits: Messages longer than its ``max_message_bytes`` end the connection.
        timeout_s: Seconds for name look-up, TCP, TLS and the WebSocket handshake together.

    Raises:
        ServerUnreachableError: If no address accepted a connection; names all that were tried.
        TokenRefusedError: If the server wants another token.
        HandshakeRefusedError: If what answered is no server of this protocol.
    """
    if address.proxy is not None:
        return proxied_transport.connect(address, limits, timeout_s)
    deadline = time.monotonic() + timeout_s
    sock, peer = dial(address.url, *address.host_and_port, deadline)
    try:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        if urlsplit(address.url).scheme == "wss":
            host, _ = address.host_and_port
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        protocol = ClientProtocol(
            parse_uri(address.url),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=limits.max_message_bytes,
            logger=_quiet_logger(),
        )
        _shake_hands(protocol, sock, address.token)
    except (ws_errors.WebSocketException, OSError, EOFError, ValueError) as error:
        sock.close()
        raise handshake_error(address.url, peer, error) from error
    if protocol.subprotocol != SUBPROTOCOL:
        sock.close()
        raise foreign_server(address.url, f"it did not agree to the subprotocol {SUBPROTOCOL}")
    logger.info("connected to %s at %s", address.url, peer)
    return WebSocketTransport(sock, protocol)


class WebSocketTransport:
    """`royale_client.transport.Transport` over one open WebSocket.

    Args:
        sock: The connected socket.
        protocol: The library's protocol, open.
    """

    def __init__(self, sock: socket.socket, protocol: ClientProtocol) -> None:
        self._sock = sock
        self._protocol = protocol
        self._turn = threading.Lock()  # whoever holds it uses socket and protocol
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._heard_at = time.monotonic()
        self._has_pinged = False
        self._failure: OSError | None = None
        self._is_closed = threading.Event()
        with self._turn:
            self._take_events()  # what came together with the end of the handshake
        keeper = threading.Thread(target=self._keep, name="royale-keeper", daemon=True)
        keeper.start()

    def send(self, data: bytes) -> None:
        """Send one binary message; see `Transport.send`."""
        with self._turn:
            self._raise_if_lost()
            self._protocol.send_binary(data)
            self._flush()
            self._raise_if_lost()

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message; see `Transport.receive`."""
        messages = self._messages
        with self._turn:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            wait_s = _PING_AFTER_S if timeout_s is None else timeout_s
            while not messages:
                self._raise_if_lost()
                self._read(wait_s)
                if messages:
                    break
                self._look_after()
                if deadline is not None:
                    wait_s = deadline - time.monotonic()
                    if wait_s <= 0:
                        self._raise_if_lost()
                        return None
            return messages.popleft()

    def close(self, code: int, reason: str) -> None:
        """Say goodbye to the peer, wait briefly for its answer, and free the socket."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        with self._turn:
            if self._protocol.state is State.OPEN and self._failure is None:
                # A close reason may hold 123 bytes of UTF-8.
                text = reason.encode()[:120].decode(errors="ignore")
                self._protocol.send_close(code, text)
                self._flush()
                deadline = time.monotonic() + _CLOSE_TIMEOUT_S
                while self._is_awaited() and (left_s := deadline - time.monotonic()) > 0:
                    self._read(left_s)
            self._sock.close()

    # --- moving bytes ---------------------------------------------------------------------

    def _read(self, timeout_s: float) -> None:
        """Read what is there, or wait for something, and answer what wants an answer."""
        try:
            self._sock.settimeout(timeout_s)
            data = self._sock.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._failed(error)
            return
        if data:
            self._heard_at = time.monotonic()
            self._has_pinged = False
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._take_events()
        self._flush()
        if self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None:
            self._hang_up()  # the peer waits for it, and nobody may come to read for long

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _flush(self) -> None:
        """Send what the protocol has to say; an empty piece means the end of our side."""
        pieces = self._protocol.data_to_send()
        if not pieces:
            return
        try:
            self._sock.settimeout(_SEND_TIMEOUT_S)
            for piece in pieces:
                if piece:
                    self._sock.sendall(piece)
                else:
                    self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        """The socket is of no use any more; what came before can still be read."""
        self._failure = error
        if self._protocol.state is not State.CLOSED:
            self._protocol.receive_eof()
            self._take_events()

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            if not isinstance(event, Frame) or event.opcode in (Opcode.PING, Opcode.PONG):
                continue
            if event.opcode is Opcode.TEXT:
                self._protocol.fail(1003, "text")
            elif event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._take_part(event)

    def _take_part(self, frame: Frame) -> None:
        """Take one frame; a message may come in several."""
        if frame.fin and not self._parts:
            self._messages.append(bytes(frame.data))
            return
        self._parts.append(bytes(frame.data))
        if frame.fin:
            self._messages.append(b"".join(self._parts))
            self._parts.clear()

    # --- life and death -------------------------------------------------------------------

    def _keep(self) -> None:
        """Look after the connection while nobody else does."""
        while not self._is_closed.wait(_KEEP_EVERY_S):
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if not self._is_closed.is_set() and not self._is_lost():
                    self._read(0.0)
                    self._look_after()
            finally:
                self._turn.release()

    def _look_after(self) -> None:
        """Ask a silent server whether it is there, and give it up if it is not."""
        silent_s = time.monotonic() - self._heard_at
        if silent_s >= _GIVE_UP_AFTER_S:
            self._hang_up()
            self._failed(TimeoutError("no sign of life"))
        elif silent_s >= _PING_AFTER_S and not self._has_pinged and not self._is_lost():
            self._has_pinged = True
            self._protocol.send_ping(b"")
            self._flush()

    def _is_awaited(self) -> bool:
        """Whether the peer's answer to our close is still to come."""
        has_ended = self._failure is not None or self._protocol.state is State.CLOSED
        return not has_ended and self._protocol.close_rcvd is None

    def _is_lost(self) -> bool:
        """Whether nothing more will come; that it is said is enough."""
        return self._protocol.state is not State.OPEN or self._failure is not None

    def _raise_if_lost(self) -> None:
        if self._is_closed.is_set():
            raise ConnectionLostError("the connection was closed by this side")
        if self._is_lost():
            received, sent = self._protocol.close_rcvd, self._protocol.close_sent
            raise lost_with(received or sent) from self._failure


def _shake_hands(protocol: ClientProtocol, sock: socket.socket, token: str | None) -> None:
    """Upgrade the connection to a WebSocket; raises whatever went wrong."""
    request = protocol.connect()
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    protocol.send_request(request)
    for piece in protocol.data_to_send():
        sock.sendall(piece)
    while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        data = sock.recv(_READ_BYTES)
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
    if protocol.handshake_exc is not None:
        raise protocol.handshake_exc


def _quiet_logger() -> logging.Logger:
    """The library tells of every frame below this level."""
    library = logging.getLogger("royale_client.websockets")
    library.setLevel(logging.WARNING)
    return library
