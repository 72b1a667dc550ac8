"""Messages out of a stream of WebSocket frames (RFC 6455, section 5), for both sides.

A message in binary frames is what nearly every byte belongs to, and is put together here. Every
other frame is passed on as it came, to a library that knows the rest of the protocol: pings and
pongs one by one, and from the first frame on that is neither, all that follows. Whatever the
library makes of such a frame, no message comes after it. Owns no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

FIRST_BYTES = 16 * 1024
"""Room for what one read brings; grows to the longest frame of the connection."""
KEPT_BYTES = 2 * 2**20
"""Longest room that is kept. Frames of our own are shorter."""
MOST_FRAMES = 4096
"""Of one message; even empty ones are not free."""

FIN = 0x80
CONT, BINARY = 0x0, 0x2
_MASKED = 0x80
_PING_OR_PONG = (FIN | 0x9, FIN | 0xA)
_short, _medium, _long = Struct("!BB").pack, Struct("!BBH").pack, Struct("!BBQ").pack


def frame_head(first: int, length: int, *, is_masked: bool) -> bytes:
    """Write the head of a frame, without the mask that follows it if it is masked.

    Args:
        first: `BINARY` or `CONT`, with `FIN` if it is the last frame of its message.
        length: Bytes of data.
        is_masked: Whether the data are, as those of a client are.
    """
    mask_bit = _MASKED if is_masked else 0
    if length < 126:
        return _short(first, mask_bit | length)
    if length < 2**16:
        return _medium(first, mask_bit | 126, length)
    return _long(first, mask_bit | 127, length)


class FrameReader:
    """Reads one connection: bytes go to where `get_buffer` says, and `buffer_updated` takes them.

    Args:
        max_bytes: Longest message.
        take_message: Called with each message, in order.
        take_other: Called with frames that are no part of a message, as they came.
        refuse: Called with a reason, once, to end a connection for a message that is too long.
        unmask: Returns the data of a masked frame, given the mask, if the frames must be masked, as
            those of a client are; None if they must not.
    """

    def __init__(
        self,
        max_bytes: int,
        *,
        take_message: Callable[[bytes], None],
        take_other: Callable[[bytes], None],
        refuse: Callable[[str], None],
        unmask: Callable[[memoryview, bytearray], bytes] | None,
    ) -> None:
        self._max_bytes = max_bytes
        self._take_message = take_message
        self._take_other = take_other
        self._refuse = refuse
        self._unmask = unmask
        self._mask_bit, self._mask_bytes = (_MASKED, 4) if unmask else (0, 0)
        self._buffer = bytearray(FIRST_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = 0  # of the first frame that is not taken yet
        self._end = 0  # of what has arrived
        self._wanted = 0  # bytes of that frame, as far as they are known
        self._parts: list[bytes] = []  # of a message that comes in several frames
        self._parts_bytes = 0
        self._is_passing_on = False

    # --- bytes ----------------------------------------------------------------------------

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return where the next bytes go; there is room for one at least."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has become whole by as many bytes more."""
        self._end += nbytes
        if self._is_passing_on:
            self._pass_on(self._end)
        while self._begin < self._end and self._take_frame():
            pass
        if self._begin < self._end or len(self._buffer) > KEPT_BYTES:
            self._make_room()
        else:
            self._begin = self._end = 0

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
        """Go on in another buffer; whoever filled this one may still hold it."""
        buffer = bytearray(size)
        buffer[: self._end] = self._view[: self._end]
        self._buffer, self._view = buffer, memoryview(buffer)

    # --- frames ---------------------------------------------------------------------------

    def _take_frame(self) -> bool:
        """Take the first frame, if it has arrived."""
        buffer, begin = self._buffer, self._begin
        arrived = self._end - begin
        if arrived < 2:
            self._wanted = 2
            return False
        first, second = buffer[begin], buffer[begin + 1]
        length = second & 0x7F
        is_data = first & 0x7F == (CONT if self._parts else BINARY)
        is_other = not is_data and (first not in _PING_OR_PONG or length > 125)
        if is_other or second & _MASKED != self._mask_bit:
            self._leave()
            return False
        head_bytes = 2
        if length > 125:
            head_bytes = 4 if length == 126 else 10
            if arrived < head_bytes:
                self._wanted = head_bytes
                return False
            length = int.from_bytes(buffer[begin + 2 : begin + head_bytes], "big")
        if length > self._max_bytes - self._parts_bytes:
            self._leave(f"got {length} bytes after {self._parts_bytes}")
            return False
        body = begin + head_bytes + self._mask_bytes
        end = body + length
        if end > self._end:
            self._wanted = end - begin
            return False
        if not is_data:
            self._pass_on(end)
        else:
            self._begin = end
            data = self._view[body:end]
            plain = self._unmask(data, buffer[body - 4 : body]) if self._unmask else bytes(data)
            if first == FIN | BINARY:
                self._take_message(plain)
            else:
                self._take_part(plain, is_last=first >= FIN)
        return True

    def _take_part(self, data: bytes, *, is_last: bool) -> None:
        """Take the data of one frame of several."""
        self._parts.append(data)
        self._parts_bytes += len(data)
        if is_last:
            data = b"".join(self._parts)
            self._forget_parts()
            self._take_message(data)
        elif len(self._parts) >= MOST_FRAMES:
            self._leave(f"got {MOST_FRAMES} frames and more to come")

    def _forget_parts(self) -> None:
        self._parts.clear()
        self._parts_bytes = 0

    def _leave(self, reason: str | None = None) -> None:
        """Pass on all that follows, with a message begun if there is one; or refuse it."""
        self._is_passing_on = True
        if reason is not None:
            self._refuse(f"{reason}; a message may have {self._max_bytes} bytes")
        if self._parts:
            self._forget_parts()
            self._take_other(bytes([BINARY, self._mask_bit]) + bytes(self._mask_bytes))
        self._pass_on(self._end)

    def _pass_on(self, end: int) -> None:
        """Pass on what comes before ``end``."""
        data = bytes(self._view[self._begin : end])
        self._begin = end
        self._take_other(data)
