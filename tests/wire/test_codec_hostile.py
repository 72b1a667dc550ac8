"""Bytes that are no message cost no more than their size and raise one error (cases H25, H26)."""

from __future__ import annotations

import pickle
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.wire.codec import decode, encode, peek
from royale_client.wire.errors import MessageDecodeError, ProtocolError
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    Restore,
    Restored,
    Snapshot,
    Snapshotted,
    decode_message,
    encode_message,
)
from royale_client.wire.snapshots import as_states

LIMITS = Limits()


def framed(header: bytes, tail: bytes = b"") -> bytes:
    """Put raw header bytes and a raw tail into the layout of a message."""
    front = len(header).to_bytes(4, "little") + header
    return front + bytes(-len(front) & 7) + tail


def with_table(table: Any, tail: bytes = b"") -> bytes:
    return framed(msgpack.packb({"t": "x", "a": table}), tail)


HOSTILE_HEADERS = {
    "array of 2**31 announced": bytes.fromhex("dd7fffffff"),
    "map of 2**31 announced": bytes.fromhex("df7fffffff"),
    "binary of 2**31 announced": bytes.fromhex("c67fffffff"),
    "text of 2**32 announced": bytes.fromhex("dbffffffff"),
    "100,000 nested lists": b"\x91" * 100_000 + b"\xc0",
    "100,000 nested lists in a map": b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0",
    "500 nested lists in a map": b"\x81\xa1x" + b"\x91" * 500 + b"\xc0",
    "reserved byte": b"\xc1",
    "no map": msgpack.packb([1, 2]),
    "a number": b"\x01",
    "trailing bytes in the header": msgpack.packb({"t": "x"}) + b"\x00",
    "two maps": msgpack.packb({"t": "x"}) * 2,
    "duplicate key": b"\x82\xa1t\xa1x\xa1t\xa1y",
    "duplicate key below": b"\x81\xa1x\x82\xa1t\xa1x\xa1t\xa1y",
    "integer key": msgpack.packb({1: "a"}),
    "binary key": msgpack.packb({b"t": "x"}),
    "empty binary key": msgpack.packb({b"": "x"}),
    "nil key": msgpack.packb({None: "x"}),
    "binary value": msgpack.packb({"t": b"x"}),
    "extension": msgpack.packb({"t": msgpack.ExtType(5, b"data")}),
    "empty extension": b"\x81\xa1t\xc7\x00\x05",
    "extension of one byte": b"\x81\xa1t\xd4\x05\x00",
    "extension of sixteen bytes": b"\x81\xa1t\xd8\x05" + bytes(16),
    "timestamp": msgpack.packb({"t": msgpack.Timestamp(1, 0)}),
    "long timestamp": msgpack.packb({"t": msgpack.Timestamp(2**40, 5)}),
    "broken UTF-8": b"\x81\xa1t\xa1\xff",
    "surrogate": b"\x81\xa1t\xa3\xed\xa0\x80",
    "empty header": b"",
}


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_a_hostile_header_is_refused(name: str) -> None:
    with pytest.raises(MessageDecodeError):
        decode(framed(HOSTILE_HEADERS[name]), LIMITS)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x00\x00\x00", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff" * 64],
)
def test_messages_too_short_for_their_header_are_refused(data: bytes) -> None:
    with pytest.raises(MessageDecodeError):
        decode(data, LIMITS)


@pytest.mark.parametrize("data", ["hello", None, 5, ["x"], np.zeros(3)])
def test_anything_but_bytes_is_refused(data: Any) -> None:
    with pytest.raises(MessageDecodeError, match="no block of bytes"):
        decode(data, LIMITS)


def test_a_text_frame_is_named_as_such() -> None:
    with pytest.raises(MessageDecodeError, match="text frame"):
        decode("hello", LIMITS)  # type: ignore[arg-type]


def test_a_strided_buffer_is_refused() -> None:
    with pytest.raises(MessageDecodeError, match="one block"):
        decode(memoryview(bytes(64))[::2], LIMITS)


HOSTILE_TABLES: dict[str, tuple[Any, bytes]] = {
    "shape 2**31 squared": ({"a0": ["f4", [2**31, 2**31], 0]}, b""),
    "shape beyond 64 bits": ({"a0": ["f8", [2**63, 2**63, 2**63], 0]}, bytes(8)),
    "shape that wraps to zero in 64 bits": ({"a0": ["i1", [2**32, 2**32], 0]}, b""),
    "empty with a huge side": ({"a0": ["f8", [0, 2**62, 8], 0]}, b""),
    "negative side": ({"a0": ["f4", [-1], 0]}, bytes(8)),
    "two negative sides": ({"a0": ["f4", [-1, -2], 0]}, bytes(8)),
    "side that is no integer": ({"a0": ["f4", [1.0], 0]}, bytes(8)),
    "side that is a boolean": ({"a0": ["f4", [True], 0]}, bytes(4)),
    "side that is a text": ({"a0": ["f4", ["a", 2**40], 0]}, bytes(8)),
    "nine dims": ({"a0": ["i1", [1] * 9, 0]}, b"\x00"),
    "dims that are a number": ({"a0": ["f4", 2, 0]}, bytes(8)),
    "object dtype": ({"a0": ["O", [1], 0]}, bytes(8)),
    "structured dtype": ({"a0": ["f4,f4", [1], 0]}, bytes(8)),
    "dtype that is a list": ({"a0": [["f4"], [1], 0]}, bytes(8)),
    "big-endian dtype": ({"a0": [">f4", [1], 0]}, bytes(4)),
    "offset beyond the tail": ({"a0": ["f4", [1], 8]}, bytes(8)),
    "negative offset": ({"a0": ["f4", [1], -8]}, bytes(8)),
    "offset beyond 64 bits": ({"a0": ["f4", [1], 2**64 - 8]}, bytes(8)),
    "offset that is no multiple of 8": ({"a0": ["f4", [1], 4]}, bytes(8)),
    "offset that is a boolean": ({"a0": ["f4", [1], False]}, bytes(4)),
    "missing offset": ({"a0": ["f4", [1]]}, bytes(4)),
    "entry that is a map": ({"a0": {"dtype": "f4"}}, b""),
    "table that is a list": ([["f4", [1], 0]], bytes(4)),
    "table that is a number": (7, b""),
    "overlap": ({"a0": ["f4", [4], 0], "a1": ["f4", [2], 8]}, bytes(16)),
    "the same bytes twice": ({"a0": ["f4", [4], 0], "a1": ["f4", [4], 0]}, bytes(16)),
    "hole before the first": ({"a0": ["f4", [2], 8]}, bytes(16)),
    "hole between": ({"a0": ["f4", [2], 0], "a1": ["f4", [2], 16]}, bytes(24)),
    "bytes after the last": ({"a0": ["f4", [2], 0]}, bytes(9)),
    "bytes without arrays": ({}, bytes(8)),
    "one byte short": ({"a0": ["f4", [2], 0]}, bytes(7)),
    "boolean of 2": ({"a0": ["?", [2], 0]}, b"\x01\x02"),
}


@pytest.mark.parametrize("name", HOSTILE_TABLES)
def test_a_hostile_array_table_is_refused(name: str) -> None:
    table, tail = HOSTILE_TABLES[name]
    with pytest.raises(MessageDecodeError):
        decode(with_table(table, tail), LIMITS)


def test_arrays_may_be_listed_in_any_order() -> None:
    data = with_table({"b": ["u1", [1], 8], "a": ["u1", [3], 0]}, b"\1\2\3\0\0\0\0\0\5")
    _, arrays = decode(data, LIMITS)
    assert arrays["a"].tolist() == [1, 2, 3]
    assert arrays["b"].tolist() == [5]


def test_more_arrays_than_the_limit_are_refused() -> None:
    arrays = {f"a{index}": np.zeros(1) for index in range(4)}
    data = encode({}, arrays)
    assert len(decode(data, Limits(max_arrays=4))[1]) == 4
    with pytest.raises(MessageDecodeError, match="too large"):
        decode(data, Limits(max_arrays=3))


def test_size_limits_are_exact() -> None:
    data = encode({"t": "x"}, {"a0": np.zeros(8)})
    header_bytes = int.from_bytes(data[:4], "little")
    exact = Limits(max_message_bytes=len(data), max_header_bytes=header_bytes)
    assert decode(data, exact)[0] == {"t": "x"}
    with pytest.raises(MessageDecodeError):
        decode(data, Limits(max_message_bytes=len(data) - 1))
    with pytest.raises(MessageDecodeError):
        decode(data, Limits(max_header_bytes=header_bytes - 1))


def test_nesting_up_to_the_limit_is_read_and_beyond_is_refused() -> None:
    def nested(levels: int) -> bytes:
        deep: Any = 0
        for _ in range(levels):
            deep = [deep]
        return framed(msgpack.packb({"x": deep}))

    limits = Limits(max_header_nesting=5)
    assert decode(nested(4), limits)  # the map is the fifth level
    with pytest.raises(MessageDecodeError, match="nested too deep"):
        decode(nested(5), limits)


def test_a_message_cut_at_any_byte_is_refused() -> None:
    data = encode({"t": "x", "text": "four"}, {"a0": np.arange(3), "a1": np.zeros(5, np.uint8)})
    decode(data, LIMITS)
    for length in range(len(data)):
        with pytest.raises(MessageDecodeError):
            decode(data[:length], LIMITS)


def test_a_message_with_a_byte_more_is_refused() -> None:
    for arrays in ({}, {"a0": np.arange(3)}):
        with pytest.raises(MessageDecodeError):
            decode(encode({"t": "x"}, arrays) + b"\x00", LIMITS)


GREEDY_HEADERS = {
    "empty lists": b"\x90",
    "empty maps": b"\x80",
    "maps of one": b"\x81\xa0\xc0",
    "short texts": b"\xa2zq",
    "long integers": b"\xcd\xff\xff",
    "doubles": b"\xcb" + bytes(8),
}


@pytest.mark.parametrize("name", GREEDY_HEADERS)
def test_a_greedy_header_costs_less_than_fifty_megabytes(name: str) -> None:
    unit = GREEDY_HEADERS[name]
    count = (LIMITS.max_header_bytes - 16) // len(unit)
    data = framed(b"\x81\xa1x\xdd" + count.to_bytes(4, "big") + unit * count)
    assert peak_bytes(data) < 50_000_000


def test_a_header_of_distinct_keys_costs_less_than_fifty_megabytes() -> None:
    table = {f"{index:x}": None for index in range(LIMITS.max_header_bytes // 7)}
    assert peak_bytes(framed(msgpack.packb(table))) < 50_000_000


@pytest.mark.parametrize("name", [*HOSTILE_HEADERS, *HOSTILE_TABLES])
def test_a_hostile_message_costs_no_memory(name: str) -> None:
    if name in HOSTILE_HEADERS:
        data = framed(HOSTILE_HEADERS[name])
    else:
        data = with_table(*HOSTILE_TABLES[name])
    # A megabyte leaves room for the exceptions and the stack of 100,000 nested lists.
    assert peak_bytes(data) < 1_000_000 + 50 * len(data)


def peak_bytes(data: bytes) -> int:
    """Decode or fail to, and return the largest memory in use meanwhile."""
    tracemalloc.start()
    with suppress(MessageDecodeError):
        decode(data, LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


class _Marker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_pickle_in_the_clothes_of_an_array_is_never_opened(tmp_path: Path) -> None:
    marker = tmp_path / "opened"
    payload = pickle.dumps(_Marker(marker))
    as_header = framed(msgpack.packb({b"nd": True, b"kind": b"O", b"data": payload}))
    as_text = framed(msgpack.packb({"t": "step", "nd": True, "data": payload.hex()}))
    as_array = with_table({"a0": ["O", [1], 0]}, payload)
    for data in (as_header, as_array):
        with pytest.raises(MessageDecodeError):
            decode(data, LIMITS)
    with pytest.raises(ProtocolError):
        decode_message(as_text, LIMITS)
    assert not marker.exists()


def test_the_header_of_a_message_with_a_broken_tail_can_be_peeked_at() -> None:
    data = with_table({"a0": ["f4", [-1], 0]}, b"garbage")
    assert peek(data, LIMITS)["t"] == "x"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_the_decode_error(data: bytes) -> None:
    for candidate in (data, framed(data)):
        with suppress(MessageDecodeError):
            decode(candidate, LIMITS)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_message_with_changed_bytes_raises_only_protocol_errors(data: st.DataObject) -> None:
    good = encode(
        {"t": "step", "group": 0, "request": 1, "rows": 2, "env_time_s": 0.5},
        {"o0": np.zeros((2, 3), np.float32), "asks": np.array([192], np.uint8)},
    )
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        decode_message(bytes(bad), LIMITS)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_states_with_changed_bytes_raise_only_protocol_errors(data: st.DataObject) -> None:
    blocks = as_states([b"the wheel turns", b"\0" * 9])
    message = data.draw(
        st.sampled_from(
            [
                Snapshot(number=5),
                Snapshotted(number=5, states=blocks),
                Snapshotted(number=5, failure="no"),
                Restore(states=blocks),
                Restored(failure="no"),
            ]
        )
    )
    bad = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        decode_message(bytes(bad), LIMITS)
