"""Writes messages as masked WebSocket frames, one at a time, without new memory for long ones.

Fresh memory of that size costs more than to mask and to send what is in it: the system hands it out
page by page, and takes it back after each message.
"""

from __future__ import annotations

import os
from collections import deque

import numpy as np

from royale_client.wire.frames import BINARY, CONT, FIN, MOST_FRAMES, frame_head

try:  # as the library itself does
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

FRAME_BYTES = 2**20
"""Longer messages are sent in frames of this size: a ping is answered between two frames."""
SHORT_BYTES = 32 * 1024
"""Frames up to this size are written anew; the memory allocator has such pieces at hand."""

_PAYLOAD_AT = 16
"""Where the data of a long frame begins, a multiple of the 8 bytes that are masked at once."""


class FrameWriter:
    """What is still to be sent of the messages of one connection."""

    def __init__(self) -> None:
        self._messages: deque[memoryview] = deque()
        self._frame_bytes = 0  # of the first message, once it is begun
        self._memory = bytearray()

    def add(self, data: bytes) -> None:
        """Send one more message, after the others."""
        self._messages.append(memoryview(data))

    def clear(self) -> None:
        """Send nothing more."""
        self._messages.clear()
        self._frame_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._messages)

    def next_frame(self) -> memoryview:
        """Return the next frame of the first message; it is good until the next is asked for."""
        message = self._messages[0]
        first = CONT
        if not self._frame_bytes:
            first = BINARY
            self._frame_bytes = max(FRAME_BYTES, -(-len(message) // (MOST_FRAMES // 2)))
        part = message[: self._frame_bytes]
        if len(part) < len(message):
            self._messages[0] = message[self._frame_bytes :]
        else:
            first |= FIN
            self._messages.popleft()
            self._frame_bytes = 0
        mask = os.urandom(4)
        head = frame_head(first, len(part), is_masked=True) + mask
        if len(part) <= SHORT_BYTES:
            return memoryview(head + apply_mask(part, mask))
        return self._long_frame(head, mask, part)

    def _long_frame(self, head: bytes, mask: bytes, part: memoryview) -> memoryview:
        end = _PAYLOAD_AT + len(part)
        if len(self._memory) < end:
            self._memory = bytearray(end)
        words = len(part) // 8
        np.bitwise_xor(
            np.frombuffer(part, np.uint64, words),
            np.frombuffer(2 * mask, np.uint64)[0],
            out=np.frombuffer(self._memory, np.uint64, words, _PAYLOAD_AT),
        )
        self._memory[_PAYLOAD_AT + 8 * words : end] = apply_mask(part[8 * words :], mask)
        begin = _PAYLOAD_AT - len(head)
        self._memory[begin:_PAYLOAD_AT] = head
        return memoryview(self._memory)[begin:end]
