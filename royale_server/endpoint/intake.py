"""Takes whole messages out of the bytes of one open connection, on the way to the library.

A message in binary frames is what nearly every byte belongs to, and is put together here, in the
callback that brings its last byte. Every other frame is the library's: pings and pongs one by one,
and from the first frame on that is neither, all that follows. Whatever the library makes of such a
frame, no message comes after it. Knows nothing of what messages say; never sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from websockets.frames import CloseCode, Opcode

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    def apply_mask(data: memoryview, mask: bytearray) -> bytes:
        """Unmask what a client sent."""

else:  # where the library has it from: compiled, if it was
    from websockets.frames import apply_mask

FIRST_BYTES = 16 * 1024
"""Room for what one read brings; grows to the longest frame of the connection."""
KEPT_BYTES = 2 * 2**20
"""Longest room that is kept. Frames of our clients are shorter."""
MOST_FRAMES = 4096
"""Of one message, as the library has it; even empty ones are not free."""

# Plain numbers: to compare with a member of an enumeration takes longer than all else here.
_FIN = 0x80
_MASKED = 0x80
_CONT, _BINARY = int(Opcode.CONT), int(Opcode.BINARY)
_PING_OR_PONG = (_FIN | int(Opcode.PING), _FIN | int(Opcode.PONG))
_BEGUN = bytes([_BINARY, _MASKED]) + bytes(4)
"""A first frame without data."""


class Intake(asyncio.BufferedProtocol):
    """What the transport of an open connection talks to, in place of the library's connection.

    Args:
        connection: The library's, after the handshake.
        max_bytes: Longest message.
        take: Called with each message, in order, never while it is running.
    """

    def __init__(
        self, connection: ServerConnection, max_bytes: int, take: Callable[[bytes], None]
    ) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._take = take
        self._buffer = bytearray(FIRST_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = 0  # of the first frame that is not taken yet
        self._end = 0  # of what has arrived
        self._wanted = 0  # bytes of that frame, as far as they are known
        self._parts: list[bytes] = []  # of a message that comes in several frames
        self._parts_bytes = 0
        self._is_library_reading = False

    def install(self) -> None:
        """Read from now on. The client has been silent since the end of the handshake."""
        self._connection.transport.set_protocol(self)

    # --- what the transport calls ---------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has become whole."""
        self._end += nbytes
        if self._is_library_reading:
            self._pass_on(self._end)
        while self._take_frame():
            pass
        self._make_room()

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

    # --- frames ---------------------------------------------------------------------------

    def _take_frame(self) -> bool:
        """Take the first frame, if it has arrived; RFC 6455, section 5.2."""
        buffer, begin = self._buffer, self._begin
        arrived = self._end - begin
        if arrived < 2:
            self._wanted = 2
            return False
        first, second = buffer[begin], buffer[begin + 1]
        length = second & 0x7F
        head_bytes = 6 if length < 126 else 8 if length == 126 else 14
        is_data = first & 0x7F == (_CONT if self._parts else _BINARY)
        is_other = not is_data and (first not in _PING_OR_PONG or head_bytes > 6)
        if second < _MASKED or is_other:
            return self._leave_to_library()
        body = begin + head_bytes
        if head_bytes > 6:
            if arrived < head_bytes - 4:
                self._wanted = head_bytes
                return False
            length = int.from_bytes(buffer[begin + 2 : body - 4], "big")
        if length > self._max_bytes - self._parts_bytes:
            return self._refuse(f"got {length} bytes after {self._parts_bytes}")
        end = body + length
        if end > self._end:
            self._wanted = head_bytes + length
            return False
        if is_data:
            self._begin = end
            data = apply_mask(self._view[body:end], buffer[body - 4 : body])
            self._take_part(data, is_last=first >= _FIN)
        else:
            self._pass_on(end)
        return True

    def _take_part(self, data: bytes, *, is_last: bool) -> None:
        """Take the data of one frame; a message may come in several."""
        if is_last and not self._parts:
            self._take(data)
            return
        self._parts.append(data)
        self._parts_bytes += len(data)
        if is_last:
            data = b"".join(self._parts)
            self._forget_parts()
            self._take(data)
        elif len(self._parts) >= MOST_FRAMES:
            self._refuse(f"got {MOST_FRAMES} frames and more to come")

    def _forget_parts(self) -> None:
        self._parts.clear()
        self._parts_bytes = 0

    def _refuse(self, reason: str) -> bool:
        """End the connection for a message that is too long."""
        text = f"{reason}; a message may have {self._max_bytes} bytes"
        self._connection.protocol.fail(CloseCode.MESSAGE_TOO_BIG, text)
        return self._leave_to_library()

    def _leave_to_library(self) -> bool:
        """Let the library read on from here, with a message begun if there is one."""
        self._is_library_reading = True
        if self._parts:
            self._forget_parts()
            self._connection.data_received(_BEGUN)
        self._pass_on(self._end)
        return False

    def _pass_on(self, end: int) -> None:
        """Hand the library what comes before ``end``."""
        data = bytes(self._view[self._begin : end])
        self._begin = end
        self._connection.data_received(data)

    # --- room -----------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Have room for the rest of the first frame, or for a part of it while it is long.

        Room grows with what has arrived, never with what is only announced.
        """
        arrived = self._end - self._begin
        if arrived and self._wanted <= len(self._buffer) - self._begin:
            return
        if self._begin:
            self._view[:arrived] = self._view[self._begin : self._end]
            self._begin, self._end = 0, arrived
        if arrived == len(self._buffer):
            self._resize(min(self._wanted, 2 * arrived))
        elif not arrived and len(self._buffer) > KEPT_BYTES:
            self._resize(FIRST_BYTES)

    def _resize(self, size: int) -> None:
        """Go on in another buffer; the transport still holds the one that it has filled."""
        buffer = bytearray(size)
        buffer[: self._end] = self._view[: self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
