"""Takes whole messages out of the bytes of one open connection, on the way to the library.

They are handed on in the callback that brings their last byte, without a task in between. Knows
nothing of what messages say; never sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode

from royale_client.wire.frames import FrameReader

try:  # as the library itself does
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask


class Intake(FrameReader, asyncio.BufferedProtocol):
    """What the transport of an open connection talks to, in place of the library's connection.

    Args:
        connection: The library's, after the handshake; gets every frame that is no message.
        max_bytes: Longest message.
        take: Called with each message, in order, never while it is running.
        answered: Called after the library got a frame, and may have answered it.
    """

    def __init__(
        self,
        connection: ServerConnection,
        max_bytes: int,
        take: Callable[[bytes], None],
        answered: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._answered = answered
        super().__init__(
            max_bytes,
            take_message=take,
            take_other=self._tell_library,
            refuse=partial(connection.protocol.fail, CloseCode.MESSAGE_TOO_BIG),
            unmask=apply_mask,
        )

    def _tell_library(self, data: bytes) -> None:
        self._connection.data_received(data)
        self._answered()

    def install(self) -> None:
        """Read from now on. The client has been silent since the end of the handshake."""
        self._connection.transport.set_protocol(self)

    def eof_received(self) -> None:
        """Tell the library."""
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the library."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the library."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the library."""
        self._connection.resume_writing()
