"""Messages out of bytes: whatever comes, in whatever pieces, the library alone would make the same.

The library is asked as it is installed, so a release that reads frames otherwise fails here.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import apply_mask

from royale_client.wire import frames
from royale_client.wire.frames import FIRST_BYTES, KEPT_BYTES, MOST_FRAMES, FrameReader

MAX_BYTES = 100_000


class Library:
    """The library's half of a connection, without a socket."""

    def __init__(self, side):
        self.protocol = Protocol(side, state=State.OPEN, max_size=MAX_BYTES)
        self.events = []
        self.sent = []

    def data_received(self, data):
        self.protocol.receive_data(data)
        self.events += self.protocol.events_received()
        self.sent += self.protocol.data_to_send()

    @property
    def end(self):
        """How it stands with the connection."""
        protocol = self.protocol
        sent = [head[0] for head in self.sent if head]  # not the masks of a client's frames
        return protocol.state, protocol.close_rcvd, protocol.close_sent, sent

    @property
    def refuses_length(self):
        close = self.protocol.close_sent
        return close is not None and close.code == CloseCode.MESSAGE_TOO_BIG


def messages_of(events):
    """Whole messages up to the first text frame, after which nobody listens."""
    messages, parts = [], []
    for frame in events:
        if frame.opcode is Opcode.TEXT:
            break
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            parts.append(bytes(frame.data))
            if frame.fin:
                messages.append(b"".join(parts))
                parts = []
    return messages


class Fed:
    """A reader that is fed as a socket does it."""

    def __init__(self, side=Side.SERVER, max_bytes=MAX_BYTES):
        self.library = Library(side)
        self.messages = []
        self.reader = FrameReader(
            max_bytes,
            take_message=self.messages.append,
            take_other=self.library.data_received,
            refuse=partial(self.library.protocol.fail, CloseCode.MESSAGE_TOO_BIG),
            unmask=apply_mask if side is Side.SERVER else None,
        )

    def feed(self, data):
        """Hand in bytes as far as there is room, again and again; return the reads it took."""
        reads = 0
        while data:
            room = self.reader.get_buffer()
            assert len(room) > 0
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.reader.buffer_updated(count)
            reads += 1
        return reads

    @property
    def room(self):
        return len(self.reader.get_buffer())


def written(opcode, data, fin=True, mask=b"mask", rsv=0):
    """A frame as bytes, right or wrong."""
    head = bytes([fin << 7 | rsv << 4 | opcode])
    length = len(data)
    mask_bit = bool(mask) << 7
    if length < 126:
        head += bytes([mask_bit | length])
    elif length < 65536:
        head += bytes([mask_bit | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([mask_bit | 127]) + length.to_bytes(8, "big")
    return head + mask + (apply_mask(data, mask) if mask else data)


def message(data, *cuts, mask=b"mask"):
    """A binary message, cut into frames."""
    parts = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    return b"".join(
        written(Opcode.CONT if i else Opcode.BINARY, part, fin=i == len(parts) - 1, mask=mask)
        for i, part in enumerate(parts)
    )


payloads = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([125, 126, 127, 600, 65_535, 65_536, MAX_BYTES, MAX_BYTES + 1]).map(
        lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256)
    ),
)


@st.composite
def streams(draw):
    """A side, and bytes that the other sends it: frames in order, out of order and damaged."""
    side = draw(st.sampled_from([Side.SERVER, Side.CLIENT]))
    right, wrong = (b"mask", b"") if side is Side.SERVER else (b"", b"mask")
    masks = st.sampled_from([right] * 9 + [wrong])
    ordinary = st.builds(partial(message, mask=right), payloads)
    cut = st.builds(
        lambda data, cut: message(data, min(cut, len(data)), mask=right),
        payloads,
        st.integers(0, 300),
    )
    others = st.builds(
        written,
        st.sampled_from([0, 1, 2, 2, 2, 3, 8, 9, 10, 11]),
        payloads,
        fin=st.booleans(),
        mask=masks,
        rsv=st.sampled_from([0] * 9 + [4]),
    )
    pings = st.builds(
        partial(written, mask=right), st.sampled_from([9, 10]), st.binary(max_size=125)
    )
    closes = st.builds(
        partial(written, 8, mask=right), st.sampled_from([b"", b"\x03\xe8bye", b"\x01"])
    )
    heads = st.sampled_from([b"\x82", b"\x82\xfe", b"\x82\x7e\0", b"\x82\xff" + b"\xff" * 8])
    kinds = ordinary | cut | pings | others | closes | heads
    return side, b"".join(draw(st.lists(kinds, max_size=8)))


@given(streams(), st.lists(st.integers(1, 70_000), max_size=12))
@example((Side.SERVER, message(b"a") + written(1, b"text") + message(b"never")), [])
@example((Side.SERVER, message(b"abc", 1, 2) + written(8, b"\x03\xe8")), [1] * 12)
@example((Side.CLIENT, message(b"abc", 1, 2, mask=b"") + written(8, b"", mask=b"")), [1] * 12)
def test_reader_agrees_with_the_library_on_every_stream_of_bytes(sent, cuts):
    side, stream = sent
    library, fed = Library(side), Fed(side)
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        if piece:
            library.data_received(piece)
            fed.feed(piece)
        assert fed.messages == messages_of(library.events)
        if library.refuses_length:
            break
        assert fed.library.end == library.end
    if library.refuses_length and not fed.library.refuses_length:
        # The frame is wrong in other ways as well, which shows when all of it has come.
        fed.feed(bytes(MAX_BYTES))
        assert fed.library.protocol.state is not State.OPEN


def test_ping_between_the_frames_of_a_message_is_answered_before_the_message_ends():
    fed = Fed()
    begin = written(Opcode.BINARY, b"ab", fin=False)
    fed.feed(begin + written(Opcode.PING, b"there?"))
    assert fed.library.sent == [Frame(Opcode.PONG, b"there?").serialize(mask=False)]
    assert fed.messages == []
    fed.feed(written(Opcode.CONT, b"cd"))
    assert fed.messages == [b"abcd"]


@pytest.mark.parametrize("side", Side)
def test_messages_are_the_callers_to_keep(side):
    mask = b"mask" if side is Side.SERVER else b""
    fed = Fed(side)
    fed.feed(message(b"first", mask=mask) + message(b"second", mask=mask))
    fed.feed(message(bytes(FIRST_BYTES), mask=mask))
    assert fed.messages[:2] == [b"first", b"second"]
    assert all(type(data) is bytes for data in fed.messages)


def test_long_message_is_read_in_one_piece_once_the_room_has_grown():
    data = bytes(MAX_BYTES)
    fed = Fed()
    fed.feed(message(data))
    assert fed.feed(message(data)) == 1
    assert fed.messages == [data, data]


def test_announced_length_costs_no_memory_before_it_has_arrived():
    fed = Fed(max_bytes=2**40)
    fed.feed(b"\x82\xff" + (2**39).to_bytes(8, "big") + bytes(4))
    assert fed.room <= FIRST_BYTES
    fed.feed(bytes(FIRST_BYTES))
    assert fed.room <= 2 * FIRST_BYTES


def test_room_for_a_very_long_frame_is_given_back():
    fed = Fed(max_bytes=2**40)
    fed.feed(message(bytes(KEPT_BYTES + 1)))
    assert len(fed.messages) == 1
    assert fed.room == FIRST_BYTES


@pytest.mark.parametrize("data", [b"", b"x"])
def test_message_of_too_many_frames_is_refused_like_one_that_is_too_long(monkeypatch, data):
    monkeypatch.setattr(frames, "MOST_FRAMES", 8)
    fed = Fed()
    fed.feed(written(Opcode.BINARY, data, fin=False))
    for _ in range(6):
        fed.feed(written(Opcode.CONT, data, fin=False))
    assert fed.library.protocol.state is State.OPEN
    fed.feed(written(Opcode.CONT, data, fin=False) + written(Opcode.CONT, data))
    assert fed.library.refuses_length
    assert fed.messages == []


def test_message_of_very_many_frames_passes():
    fed = Fed()
    fed.feed(message(bytes(MOST_FRAMES), *range(1, MOST_FRAMES)))
    assert fed.messages == [bytes(MOST_FRAMES)]


@pytest.mark.parametrize("side", Side)
def test_frames_that_the_library_writes_are_read(side):
    other = Protocol(Side.CLIENT if side is Side.SERVER else Side.SERVER)
    other.send_binary(b"x" * 70_000)
    fed = Fed(side)
    fed.feed(b"".join(other.data_to_send()))
    assert fed.messages == [b"x" * 70_000]
