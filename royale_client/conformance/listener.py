"""Where the client under test connects: a WebSocket server that hands connections to scenarios."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from royale_client.conformance.link import CLOSE_TIMEOUT_S, Link
from royale_client.conformance.scenario import SetupError
from royale_client.wire.version import SUBPROTOCOL

Start: TypeAlias = Callable[[str], Callable[[], None]]
"""Starts a client that dials a URL, and returns what ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A client that has connected."""

    link: Link
    offered: tuple[str, ...]
    """Subprotocols that it offered."""
    authorization: str | None
    """The header of that name."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set once nobody needs the connection any more."""

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection, in whatever state it is."""
        self.link.close(code, reason)
        self.released.set()


class Listener:
    """Listens until it is closed.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Raises:
        SetupError: The address cannot be had.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._visits: queue.SimpleQueue[Visit] = queue.SimpleQueue()
        try:
            self._server: Server = serve(
                self._handle,
                host,
                port,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                select_subprotocol=_select,
                compression=None,
                max_size=None,
                ping_interval=None,
                close_timeout=CLOSE_TIMEOUT_S,
                logger=_quiet_logger(),
            )
        except OSError as error:
            raise SetupError(f"cannot listen on {host}:{port}: {error}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"ws://{shown}:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def next_visit(self, timeout_s: float) -> Visit | None:
        """Return the next client that connects, or None if there is none in time."""
        try:
            return self._visits.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def send_away(self) -> None:
        """Close connections that no scenario has waited for."""
        while (visit := self.next_visit(0)) is not None:
            visit.close(1001)

    def close(self) -> None:
        """Listen no longer."""
        self.send_away()
        self._server.shutdown()
        self._thread.join()

    def _handle(self, connection: ServerConnection) -> None:
        request = connection.request
        assert request is not None
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        visit = Visit(
            link=Link(connection),
            offered=tuple(name.strip() for name in offered.split(",") if name.strip()),
            authorization=request.headers.get("Authorization"),
        )
        self._visits.put(visit)
        visit.released.wait()


def _select(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return next((name for name in offered if name == SUBPROTOCOL), None)


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("royale_client.conformance.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
