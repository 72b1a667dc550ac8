"""Frames of messages: the library reads back what was written, whatever the length."""

import pytest
from websockets.frames import Opcode
from websockets.protocol import Protocol, Side

from royale_client.frame_writer import FRAME_BYTES, SHORT_BYTES, FrameWriter
from royale_client.wire.frames import MOST_FRAMES

PATTERN = bytes(range(251)) * (3 * FRAME_BYTES // 251 + 1)
"""A length that no power of two divides, so that bytes in the wrong place show."""
LENGTHS = [
    *(0, 1, 7, 125, 126, 127, 600, 2**16 - 1, 2**16),
    *range(SHORT_BYTES - 1, SHORT_BYTES + 10),
    *(FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES + 12_345),
]


def frames_of(writer):
    """What a server's library makes of all that is to be sent, each piece gone before the next."""
    server = Protocol(Side.SERVER, max_size=None)
    while writer:
        server.receive_data(bytes(writer.next_frame()))
    return server.events_received()


def messages_of(frames):
    messages, parts = [], []
    for frame in frames:
        assert frame.opcode is (Opcode.CONT if parts else Opcode.BINARY)
        parts.append(bytes(frame.data))
        if frame.fin:
            messages.append(b"".join(parts))
            parts = []
    assert not parts
    return messages


@pytest.mark.parametrize("length", LENGTHS)
def test_message_is_read_back_whatever_its_length(length):
    writer = FrameWriter()
    writer.add(PATTERN[:length])
    frames = frames_of(writer)
    assert messages_of(frames) == [PATTERN[:length]]
    assert len(frames) == max(1, -(-length // FRAME_BYTES))


def test_messages_follow_each_other_in_the_same_memory():
    writer = FrameWriter()
    messages = [PATTERN[:length] for length in (FRAME_BYTES, 5, SHORT_BYTES + 3, 0, 100_000)]
    for message in messages:
        writer.add(message)
    assert messages_of(frames_of(writer)) == messages


def test_what_is_given_up_in_the_middle_leaves_a_clean_beginning():
    writer = FrameWriter()
    writer.add(PATTERN[: 3 * FRAME_BYTES])
    writer.next_frame()
    writer.clear()
    assert not writer
    writer.add(b"next")
    assert messages_of(frames_of(writer)) == [b"next"]


def test_every_frame_has_a_mask_of_its_own():
    writer = FrameWriter()
    masks = set()
    for _ in range(50):
        writer.add(b"same")
        masks.add(bytes(writer.next_frame()[2:6]))
    assert len(masks) > 40  # of 2**32


def test_very_long_message_has_no_more_frames_than_a_reader_takes():
    class Long(FrameWriter):
        """Counts instead of writing."""

        def _long_frame(self, head, mask, part):
            return memoryview(head)

    writer = Long()
    size = 2 * MOST_FRAMES * FRAME_BYTES
    writer._messages.append(_Sized(size))
    count = 0
    while writer:
        writer.next_frame()
        count += 1
    assert count <= MOST_FRAMES


class _Sized:
    """As long as it says, without the bytes."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, cut):
        start, stop, _ = cut.indices(self.size)
        return _Sized(stop - start)
