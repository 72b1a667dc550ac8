"""One WebSocket of the suite, message by message, whichever side it is on.

Unlike the transports of the product it lets through what they refuse: text messages, any bytes, any
close code. It knows nothing of what messages say.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)
from websockets.sync.client import connect, unix_connect
from websockets.sync.connection import Connection
from websockets.typing import Subprotocol

from royale_client.conformance.scenario import SetupError
from royale_client.transport import ServerAddress
from royale_client.wire.version import SUBPROTOCOL

CLOSE_TIMEOUT_S = 2.0


class EndedError(Exception):
    """The peer has closed the connection.

    Args:
        code: Its close code; None if it said none.
        reason: The text that came with it.
    """

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(f"closed ({code or 'without a code'}{f': {reason}' if reason else ''})")
        self.code = code
        self.reason = reason


class RefusedError(Exception):
    """The opening handshake was answered with something else.

    Args:
        status: HTTP status; None if there was none.
    """

    def __init__(self, status: int | None, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Link:
    """An open WebSocket.

    Args:
        connection: The library's, of either side.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol both sides agreed on."""
        return self._connection.subprotocol

    @property
    def extensions(self) -> tuple[str, ...]:
        """Names of the extensions in use."""
        return tuple(extension.name for extension in self._connection.protocol.extensions)

    def send(self, data: bytes | str) -> None:
        """Send one message, binary or text.

        Raises:
            EndedError: The connection is closed.
        """
        try:
            self._connection.send(data)
        except ConnectionClosed as error:
            raise _ended(error) from error

    def send_in_frames(self, data: bytes, size: int) -> None:
        """Send one binary message as several WebSocket frames of ``size`` bytes.

        Raises:
            EndedError: The connection is closed.
        """
        try:
            self._connection.send(data[at : at + size] for at in range(0, len(data), size))
        except ConnectionClosed as error:
            raise _ended(error) from error

    def receive(self, timeout_s: float) -> bytes | str | None:
        """Return the next message, or None if there was none in time.

        Raises:
            EndedError: The connection is closed, and every message was read.
        """
        try:
            return self._connection.recv(timeout_s)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise _ended(error) from error

    def answers_ping(self, timeout_s: float) -> bool:
        """Tell whether the peer answers a ping in time.

        Raises:
            EndedError: The connection is closed.
        """
        try:
            return self._connection.ping().wait(timeout_s)
        except ConnectionClosed as error:
            raise _ended(error) from error

    def cut(self) -> None:
        """End the connection without a word, as a network that fails."""
        with contextlib.suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close; closing twice is harmless."""
        self._connection.close(code, reason)


@contextlib.contextmanager
def dialled(
    address: ServerAddress,
    timeout_s: float,
    *,
    token: str | None,
    subprotocols: Sequence[str] = (SUBPROTOCOL,),
) -> Iterator[Link]:
    """Connect to a server, and close the connection in the end.

    Args:
        address: Where it is.
        timeout_s: Seconds for connecting and the opening handshake.
        token: Presented as a bearer token; None presents none.
        subprotocols: What is offered.

    Raises:
        RefusedError: It answered with something else than a WebSocket.
        SetupError: Nobody answers there.
    """
    settings: dict[str, Any] = {
        "subprotocols": [Subprotocol(name) for name in subprotocols] or None,
        "compression": None,
        "additional_headers": {} if token is None else {"Authorization": f"Bearer {token}"},
        "open_timeout": timeout_s,
        "close_timeout": CLOSE_TIMEOUT_S,
        "max_size": None,
        "ping_interval": None,
    }
    file = address.socket_file
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(
                connect(address.url, proxy=None, **settings)
                if file is None
                else unix_connect(file, "ws://localhost/", **settings)
            )
        except InvalidStatus as error:
            raise RefusedError(error.response.status_code, str(error)) from error
        except InvalidMessage as error:
            raise RefusedError(None, f"no HTTP answer: {error}") from error
        except InvalidHandshake as error:
            raise RefusedError(None, str(error)) from error
        except (OSError, WebSocketException) as error:
            raise SetupError(f"no server at {address.url}: {error}") from error
        yield Link(connection)


def wait_for_end(
    link: Link, timeout_s: float, on_message: Callable[[bytes | str], None]
) -> EndedError | None:
    """Read on until the peer closes.

    Args:
        link: The connection.
        timeout_s: Seconds for it.
        on_message: Called with what the peer sends before; may raise to end the waiting.

    Returns:
        How it closed; None if it did not in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            data = link.receive(left_s)
        except EndedError as ended:
            return ended
        if data is not None:
            on_message(data)
    return None


def _ended(error: ConnectionClosed) -> EndedError:
    frame = error.rcvd
    return EndedError(None if frame is None else frame.code, "" if frame is None else frame.reason)
