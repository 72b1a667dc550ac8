"""Takes whole messages out of the bytes of one open connection, on the way to the library.

They are handed on in the callback that brings their last byte, without a task in between. Knows
nothing of what messages say; never sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from websockets.frames import CloseCode

from royale_client.wire.frames import FrameReader
from royale_server.endpoint.handshake import ObservedConnection

try:  # as the library itself does
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask


logger = logging.getLogger(__name__)

MOST_OTHERS = 1000
"""Frames in a second that are no messages, such as pings; each wants an answer, and costs one."""


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
        connection: ObservedConnection,
        max_bytes: int,
        take: Callable[[bytes], None],
        answered: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._answered = answered
        self._clock = asyncio.get_running_loop().time
        self._num_others, self._counted_since = 0, 0.0
        self.read_at = self._clock()
        """When something was last read, in the time of the loop."""
        super().__init__(
            max_bytes,
            take_message=take,
            take_other=self._tell_library,
            refuse=partial(connection.protocol.fail, CloseCode.MESSAGE_TOO_BIG),
            unmask=apply_mask,
        )

    def buffer_updated(self, nbytes: int) -> None:
        """Take in what was read."""
        self.read_at = self._clock()
        super().buffer_updated(nbytes)

    def _tell_library(self, data: bytes) -> None:
        if self._is_flooded():
            return
        self._connection.data_received(data)
        self._answered()

    def _is_flooded(self) -> bool:
        """Cut off who sends more than anybody needs, and say whether that happened."""
        now = self._clock()
        if now - self._counted_since > 1.0:
            self._num_others, self._counted_since = 0, now
        self._num_others += 1
        if self._num_others == MOST_OTHERS + 1:
            logger.warning(
                "client at %s sends more than %d pings a second: cut off",
                self._connection.address,
                MOST_OTHERS,
            )
            self._connection.transport.abort()
        return self._num_others > MOST_OTHERS

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
