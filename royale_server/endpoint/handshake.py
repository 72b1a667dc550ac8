"""The library's connection, as far as it is ours: who is there, why it never opened, no messages.

Scanners, browsers and clients of other protocols come by; releases of the library differ in what
they say about them, from nothing to a traceback, so that is said here, in one line. Never says
anything of a connection that opened, or of one that was refused: others do.
"""

from __future__ import annotations

import asyncio
import http
import socket
from collections.abc import Callable
from struct import Struct

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response

from royale_client.wire.version import SUBPROTOCOL

_CREDENTIALS = Struct("3i")  # process, user, group
_DATA = (Opcode.CONT, Opcode.TEXT, Opcode.BINARY)


def _say_nothing(_address: str, _text: str) -> None:
    """Nobody listens."""


class ObservedConnection(ServerConnection):
    """A connection whose failed handshake is worth a line, and whose messages `Intake` takes."""

    address = "nowhere yet"
    """Where the peer is, for messages."""
    say: Callable[[str, str], None] = staticmethod(_say_nothing)
    """Called with the address and a line about a handshake that failed."""
    was_refused = False
    """By `EntryRules`, which was said then."""
    on_text: Callable[[], None] | None = None
    """Called for the first text frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the peer while it is there."""
        super().connection_made(transport)
        self.address = address_of(transport)

    def process_event(self, event: Request | Response | Frame) -> None:
        """Keep data frames from the library's queue, which nobody reads.

        Those that come this way are no part of a message: text, what precedes a violation of the
        protocol, or what was sent before the handshake was over.
        """
        if not isinstance(event, Frame) or event.opcode not in _DATA:
            super().process_event(event)
        elif event.opcode is Opcode.TEXT and self.on_text is not None:
            tell, self.on_text = self.on_text, None
            tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say how the handshake failed, if it did."""
        super().connection_lost(exc)
        response = self.response
        if self.was_refused:
            return
        if response is not None and response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS:
            return
        if response is not None:
            reason = f"answered with HTTP {response.status_code} {response.reason_phrase}"
        else:
            failure = self.protocol.handshake_exc
            reason = str(failure) if failure is not None else "it said nothing in time"
        self.say(
            self.address,
            f"a connection from {self.address} was closed: {reason}; a client speaks WebSocket "
            f"with subprotocol {SUBPROTOCOL}",
        )


def address_of(transport: asyncio.BaseTransport) -> str:
    """Say where a peer is: host and port, or which process of this machine it is."""
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        return f"{peer[0]}:{peer[1]}"
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "SO_PEERCRED"):
        return "this machine"
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return f"process {_CREDENTIALS.unpack(credentials)[0]} of this machine"
