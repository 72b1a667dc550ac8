"""A Transport over one WebSocket, driven by the caller's own thread.

The protocol is the sans-I/O half of the library; what is here moves its bytes. A message costs a
third of what it costs by way of a reading thread, which has to wake for each. While the caller is
busy with its environments, a keeper looks after the connection now and then, so that pings are
answered all the same, until more messages wait for the caller than it may have in memory.

The socket never blocks: whoever waits, waits in `_move`, for bytes of either direction, so that a
server that sends is listened to while it is sent to. This module never retries and never decodes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, SelectSelector
from urllib.parse import urlsplit

import websockets.exceptions as ws_errors
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from royale_client import proxied_transport
from royale_client.dialling import (
    dial,
    dial_file,
    foreign_server,
    handshake_error,
    lost_with,
    secure,
    shake_hands,
)
from royale_client.frame_writer import FrameWriter
from royale_client.transport import ConnectionLostError, ServerAddress, Transport
from royale_client.wire.frames import FrameReader
from royale_client.wire.limits import Limits
from royale_client.wire.version import SUBPROTOCOL

logger = logging.getLogger(__name__)

_MOST_READS = 1024
"""In a row, without giving somebody else a turn; more than a kernel holds."""
_BYTES_PER_MESSAGE = 64
"""What a waiting message costs beside its bytes; even empty ones are not free."""
_KEEP_EVERY_S = 0.1
_SLICE_S = 0.5
"""Longest wait in one piece; after it the connection is looked after, and a close is noticed."""
_PING_AFTER_S = 20.0
_GIVE_UP_AFTER_S = 40.0
"""Without a sign of life, the answer to a ping included."""
_SEND_TIMEOUT_S = 60.0
"""Without one byte accepted; a long message on a slow line may take longer than that."""
_CLOSE_TIMEOUT_S = 5.0


def connect(address: ServerAddress, limits: Limits, timeout_s: float = 10.0) -> Transport:
    """Open one connection: directly, unless the address has a proxy.

    Proxy variables of the environment are ignored.

    Args:
        address: Where to connect.
        limits: Messages longer than its ``max_message_bytes`` end the connection.
        timeout_s: Seconds for name look-up, connecting, TLS and the WebSocket handshake together;
            only the look-up may take longer, since the system's own limit holds there.

    Raises:
        ServerUnreachableError: If no address accepted a connection; names all that were tried.
        TokenRefusedError: If the server wants another token.
        HandshakeRefusedError: If what answered is no server of this protocol.
    """
    if address.proxy is not None:
        return proxied_transport.connect(address, limits, timeout_s)
    deadline = time.monotonic() + timeout_s
    if address.socket_file is not None:
        sock, peer = dial_file(address.url, address.socket_file, deadline), address.socket_file
        url = "ws://localhost/"  # nobody asks for a host there
    else:
        sock, peer = dial(address.url, *address.host_and_port, deadline)
        url = address.url
    try:
        if urlsplit(url).scheme == "wss":
            sock = secure(sock, address.host_and_port[0], deadline, address.tls_ca)
        protocol = ClientProtocol(
            parse_uri(url),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=limits.max_message_bytes,
            logger=_quiet_logger(),
        )
        early = shake_hands(protocol, sock, address.token, deadline)
    except (ws_errors.WebSocketException, OSError, EOFError, ValueError) as error:
        sock.close()
        raise handshake_error(address.url, peer, error) from error
    if protocol.subprotocol != SUBPROTOCOL:
        sock.close()
        raise foreign_server(address.url, f"it did not agree to the subprotocol {SUBPROTOCOL}")
    logger.info("connected to %s at %s", address.url, peer)
    return WebSocketTransport(sock, protocol, limits.max_message_bytes, early)


class WebSocketTransport:
    """`royale_client.transport.Transport` over one open WebSocket.

    `send` and `receive` are for one thread; `close` may come from any, and ends their waiting.

    Args:
        sock: The connected socket, plain or TLS; it belongs to the transport from now on.
        protocol: The library's protocol, open; reads and writes all that is no message.
        max_message_bytes: Longest message. Once twice as many bytes of messages wait to be
            received, nothing more is read, and pings are not answered, until they are. One message
            and one read may exceed that.
        early: What came behind the handshake.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol: ClientProtocol,
        max_message_bytes: int,
        early: bytes = b"",
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._waiting = {
            wanted: _waiting(sock, wanted)
            for wanted in (EVENT_READ, EVENT_WRITE, EVENT_READ | EVENT_WRITE)
        }
        self._protocol = protocol
        self._reader = FrameReader(
            max_message_bytes,
            take_message=self._take_message,
            take_other=self._take_other,
            refuse=partial(protocol.fail, CloseCode.MESSAGE_TOO_BIG),
            unmask=None,
        )
        self._has_others = False  # frames that are no messages, which may want an answer
        self._max_queued_bytes = 2 * max_message_bytes
        self._turn = threading.Lock()  # whoever holds it uses socket, protocol and all below
        self._messages: deque[bytes] = deque()
        self._queued_bytes = 0
        self._unsent: memoryview | None = None  # rest of the frame that is on its way
        self._urgent: deque[bytes] = deque()  # pings, pongs, close: sent before the next frame
        self._outgoing = FrameWriter()
        # TLS may have to write in order to read, and the other way round.
        self._to_read, self._to_write = EVENT_READ, EVENT_WRITE
        self._stuck_since: float | None = None
        self._heard_at = time.monotonic()
        self._has_pinged = False
        self._failure: OSError | None = None
        self._is_closed = threading.Event()
        with self._turn:
            self._take_early(early)
        keeper = threading.Thread(target=self._keep, name="royale-keeper", daemon=True)
        keeper.start()

    def send(self, data: bytes) -> None:
        """Send one binary message; see `Transport.send`."""
        with self._turn:
            self._raise_if_lost()
            self._outgoing.add(data)
            self._push()
            while self._is_sending():
                if not self._move(_SLICE_S):
                    self._look_after()
                self._raise_if_lost()
            self._raise_if_lost()

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message; see `Transport.receive`."""
        messages = self._messages
        with self._turn:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            left_s = _SLICE_S if timeout_s is None else max(0.0, timeout_s)
            while not messages:
                self._raise_if_lost()
                if not self._move(min(left_s, _SLICE_S)):
                    self._look_after()
                    if left_s == 0.0:
                        self._raise_if_lost()
                        return None
                if deadline is not None:
                    left_s = max(0.0, deadline - time.monotonic())
            data = messages.popleft()
            self._queued_bytes -= len(data) + _BYTES_PER_MESSAGE
            return data

    def close(self, code: int, reason: str) -> None:
        """Say goodbye to the peer, wait briefly for its answer, and free the socket."""
        self._is_closed.set()  # first, so that whoever has the turn gives it up
        with self._turn:
            if self._sock.fileno() < 0:
                return
            try:
                if not self._is_lost():
                    self._say_goodbye(code, reason)
            finally:
                self._forget_messages()
                self._sock.close()

    def _say_goodbye(self, code: int, reason: str) -> None:
        """Send a close frame and wait for the peer's, past the messages it sent before."""
        # A close reason may hold 123 bytes of UTF-8.
        text = reason.encode()[:120].decode(errors="ignore")
        self._protocol.send_close(code, text)
        self._digest()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while self._is_awaited() and (left_s := deadline - time.monotonic()) > 0:
            self._forget_messages()  # a full queue would hide the answer
            self._move(left_s)

    # --- moving bytes ---------------------------------------------------------------------

    def _move(self, timeout_s: float) -> bool:
        """Wait until bytes can move in either direction, and move some; whether they could."""
        reads, is_sending = not self._is_full(), self._is_sending()
        has_decrypted = reads and self._tls is not None and self._tls.pending() > 0
        if not has_decrypted:  # such bytes no longer wake the system's call
            wanted = (self._to_read if reads else 0) | (self._to_write if is_sending else 0)
            if not self._waiting[wanted](timeout_s):
                return False
        if is_sending:
            self._push()
        if reads and self._failure is None:
            self._read()
        return True

    def _read(self) -> bool:
        """Take in one read without waiting, and answer what wants an answer; whether it brought."""
        try:
            count = self._sock.recv_into(self._reader.get_buffer())
        except (BlockingIOError, ssl.SSLWantReadError):
            self._to_read = EVENT_READ
            return False
        except ssl.SSLWantWriteError:
            self._to_read = EVENT_WRITE
            return False
        except OSError as error:
            self._fail(error)
            return False
        self._to_read = EVENT_READ
        self._is_heard()
        if count:
            self._reader.buffer_updated(count)
        else:
            self._protocol.receive_eof()
        if self._has_others or not count:
            self._has_others = False
            self._digest()
        return count > 0

    def _take_early(self, early: bytes) -> None:
        while early:
            room = self._reader.get_buffer()
            piece, early = early[: len(room)], early[len(room) :]
            room[: len(piece)] = piece
            self._reader.buffer_updated(len(piece))
        self._digest()

    def _read_all(self) -> None:
        """Take in what has arrived, as far as there is room for it."""
        for _ in range(_MOST_READS):
            if self._is_full() or self._protocol.state is not State.OPEN or not self._read():
                return

    def _digest(self) -> None:
        """Take over what the protocol made of the bytes, and send its answers if they go at once.

        After a close frame nothing may be sent. The peer waits for the end of the connection then,
        and nobody may come to read for long.
        """
        self._take_events()
        # An empty piece means the end of our side, which hanging up says.
        self._urgent.extend(piece for piece in self._protocol.data_to_send() if piece)
        if self._protocol.state is not State.OPEN:
            self._outgoing.clear()
        if self._failure is None:
            self._push()
        if self._protocol.state is not State.OPEN and not self._is_closed.is_set():
            self._hang_up()

    def _push(self) -> None:
        """Hand the system what it takes at once of what is to be sent."""
        while (piece := self._next_piece()) is not None:
            try:
                count = self._sock.send(piece)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._to_write = EVENT_WRITE
                break
            except ssl.SSLWantReadError:
                self._to_write = EVENT_READ
                break
            except OSError as error:
                self._fail(error)
                return
            self._to_write = EVENT_WRITE
            self._unsent = piece[count:] if count < len(piece) else None
            if self._stuck_since is not None:
                self._stuck_since = None
                self._is_heard()  # its system made room for more
        else:
            return
        if self._stuck_since is None:
            self._stuck_since = time.monotonic()

    def _next_piece(self) -> memoryview | None:
        """Return what is to be sent next; a frame that was begun comes before any other."""
        if self._unsent is None:
            if self._urgent:
                self._unsent = memoryview(self._urgent.popleft())
            elif self._outgoing:
                self._unsent = self._outgoing.next_frame()
        return self._unsent

    def _is_sending(self) -> bool:
        return self._unsent is not None or bool(self._urgent) or bool(self._outgoing)

    def _take_other(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._has_others = True

    def _take_events(self) -> None:
        """Look at what the protocol made of frames that are no messages; most it has answered."""
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "text")

    def _take_message(self, data: bytes) -> None:
        self._messages.append(data)
        self._queued_bytes += len(data) + _BYTES_PER_MESSAGE

    def _forget_messages(self) -> None:
        self._messages.clear()
        self._queued_bytes = 0

    def _is_full(self) -> bool:
        return self._queued_bytes >= self._max_queued_bytes

    # --- life and death -------------------------------------------------------------------

    def _keep(self) -> None:
        """Look after the connection while nobody else does."""
        while not self._is_closed.wait(_KEEP_EVERY_S):
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if not self._is_closed.is_set() and not self._is_lost():
                    self._read_all()
                    self._push()
                    self._look_after()
            finally:
                self._turn.release()

    def _look_after(self) -> None:
        """Ask a silent server whether it is there, and give it up if it is not."""
        now = time.monotonic()
        if self._is_lost():
            return
        if self._stuck_since is not None and now - self._stuck_since >= _SEND_TIMEOUT_S:
            self._fail(TimeoutError("the server takes nothing in"))
        elif self._is_full():
            self._is_heard()  # or might be, if somebody listened
        elif now - self._heard_at >= _GIVE_UP_AFTER_S:
            self._fail(TimeoutError("no sign of life"))
        elif now - self._heard_at >= _PING_AFTER_S and not self._has_pinged:
            self._has_pinged = True
            self._protocol.send_ping(b"")
            self._digest()

    def _is_heard(self) -> None:
        self._heard_at = time.monotonic()
        self._has_pinged = False

    def _fail(self, error: OSError) -> None:
        """Give the socket up, after its last bytes: they may say why, and can still be received."""
        if self._failure is not None:
            return
        self._failure = error
        self._drop_unsent()
        self._read_all()
        self._drop_unsent()
        if self._protocol.state is not State.CLOSED:
            self._protocol.receive_eof()
            self._take_events()
        self._hang_up()

    def _drop_unsent(self) -> None:
        self._unsent, self._stuck_since = None, None
        self._urgent.clear()
        self._outgoing.clear()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

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


def _waiting(sock: socket.socket, wanted: int) -> Callable[[float], bool]:
    """Make a function that waits some seconds for a socket and says whether it became ready.

    Neither kind holds a descriptor of its own.
    """
    if not hasattr(select, "poll"):  # not every system has it
        selector = SelectSelector()
        selector.register(sock, wanted)
        return lambda timeout_s: bool(selector.select(timeout_s))
    # Unlike select, poll knows descriptors of any number; the selector around it costs time.
    poll = select.poll()
    reads, writes = wanted & EVENT_READ, wanted & EVENT_WRITE
    poll.register(sock, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))
    return lambda timeout_s: bool(poll.poll(math.ceil(timeout_s * 1000.0)))


def _quiet_logger() -> logging.Logger:
    """The library tells of every frame below this level."""
    library = logging.getLogger("royale_client.websockets")
    library.setLevel(logging.WARNING)
    return library
