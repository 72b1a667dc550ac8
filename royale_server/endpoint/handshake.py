"""Says in one line why a connection never became a WebSocket.

Scanners, browsers and clients of other protocols come by; releases of the library differ in what
they say about them, from nothing to a traceback. Never says anything of a connection that opened,
or of one whose token was refused: others do.
"""

from __future__ import annotations

import asyncio
import http
import logging

from websockets.asyncio.server import ServerConnection

from royale_client.wire.version import SUBPROTOCOL

logger = logging.getLogger(__name__)

SPOKEN_OF_ELSEWHERE = (http.HTTPStatus.SWITCHING_PROTOCOLS, http.HTTPStatus.UNAUTHORIZED)


class ObservedConnection(ServerConnection):
    """A connection whose failed handshake is worth a line."""

    _address = "an unknown address"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the peer while it is there."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._address = f"{peer[0]}:{peer[1]}"

    def connection_lost(self, exc: Exception | None) -> None:
        """Say how the handshake failed, if it did."""
        super().connection_lost(exc)
        response = self.response
        if response is not None and response.status_code in SPOKEN_OF_ELSEWHERE:
            return
        if response is not None:
            reason = f"answered with HTTP {response.status_code} {response.reason_phrase}"
        else:
            failure = self.protocol.handshake_exc
            reason = str(failure) if failure is not None else "it said nothing in time"
        logger.warning(
            "a connection from %s was closed: %s; a client speaks WebSocket with subprotocol %s",
            self._address,
            reason,
            SUBPROTOCOL,
        )
