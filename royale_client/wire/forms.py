"""Headers that came or went before, so that the next one like them need not be taken apart again.

The header of a `step` or an `action` is, byte for byte, the one before with other numbers in two or
three places. A `Form` is such a header with holes in those places, and where the arrays lie. It is
only made of a header that passed every check, and what fits it differs from that header in nothing
but the holes, whose values are read and judged each time. Whatever does not fit a form is read or
written as if there were none: a form words no error and lets nothing through.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgpack

from royale_client.wire.array_table import Layout
from royale_client.wire.codec import (
    LENGTH_BYTES,
    PADDING,
    Parsed,
    check_nesting,
    header_end,
    pack,
    unpack,
)
from royale_client.wire.dtypes import Array
from royale_client.wire.limits import Limits

MAX_FORMS = 64
"""Forms kept by one owner; the oldest makes room for the next."""
MAX_FORM_BYTES = 2048
"""Longest header that is kept."""

Hole: TypeAlias = Literal["unsigned", "double", "list"]
"""An integer from 0 to 2**32 - 1; a 64-bit float; or one value of any kind, in the last hole."""
Facts = TypeVar("Facts")

_MIN_LAST_BYTES = 9
"""Bytes after the last hole, at least: so many that no number in a hole reaches beyond them."""
_FIRST_BYTES = 20
_LAST_BYTES = 12
_DOUBLE_MARK = 0xCB
_DOUBLE = struct.Struct(">d")
_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4}
"""First byte of an integer -> bytes after it; one below 0x80 is the integer itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Generic[Facts]):
    """A header with holes, where the arrays lie, and what else is known of such messages."""

    parts: tuple[tuple[bytes, str, Hole], ...]
    """For each hole, the bytes before it (a float's mark included), its key and its kind."""
    last: bytes
    """The bytes after the last hole."""
    layout: Layout
    """Where the arrays lie."""
    gaps: tuple[bytes, ...]
    """The zeros in front of each array, if they lie in the order of the table."""
    facts: Facts
    """What its owner found out about the message it was made of."""

    def read(self, data: bytes, end: int, max_nesting: int) -> dict[str, Any] | None:
        """Read the values in the holes of a header that ends at ``end``; None if it does not fit.

        Raises:
            MessageDecodeError: A list is not well-formed.
        """
        last_begin = end - len(self.last)
        if not data.startswith(self.last, last_begin):
            return None
        values: dict[str, Any] = {}
        at = LENGTH_BYTES
        for piece, key, hole in self.parts:
            if not data.startswith(piece, at):
                return None
            at += len(piece)
            if at >= last_begin:
                return None
            if hole == "double":
                (values[key],) = _DOUBLE.unpack_from(data, at)
                at += 8
            elif hole == "list":
                values[key] = unpack(data[at:last_begin])
                check_nesting(values, max_nesting)
                at = last_begin
            elif data[at] < 0x80:
                values[key] = data[at]
                at += 1
            else:
                size = _UNSIGNED.get(data[at])
                if size is None:
                    return None
                values[key] = int.from_bytes(data[at + 1 : at + 1 + size], "big")
                at += 1 + size
        return values if at == last_begin else None

    def write(self, values: Mapping[str, Any], arrays: Iterable[Array]) -> bytes | None:
        """Write a message; None if a value does not fit its hole.

        Args:
            values: What the holes are filled with, by key.
            arrays: Contiguous arrays of the layout's shapes and types, in its order.

        Raises:
            ContractError: A list holds what msgpack cannot write.
        """
        pieces: list[Any] = [b""]
        for piece, key, hole in self.parts:
            value = values[key]
            if hole == "double":
                if type(value) is not float:
                    return None
                pieces += (piece, _DOUBLE.pack(value))
            elif hole == "list":
                pieces += (piece, pack(value, key))
            elif type(value) is int and 0 <= value < 2**32:
                pieces += (piece, _packed(value))
            else:
                return None
        pieces.append(self.last)
        size = sum(map(len, pieces))
        pieces[0] = size.to_bytes(LENGTH_BYTES, "little")
        pieces.append(PADDING[-(LENGTH_BYTES + size) & 7])
        for gap, array in zip(self.gaps, arrays, strict=True):
            pieces += (gap, array)
        return b"".join(pieces)


class Forms(Generic[Facts]):
    """The forms of one session's messages in one direction; bounded.

    Args:
        holes: Keys of the header whose values change from message to message.
        limits: What to refuse for its size.
    """

    def __init__(self, holes: Mapping[str, Hole], limits: Limits) -> None:
        self._holes = holes
        self._limits = limits
        self._known: dict[Hashable, Form[Facts]] = {}
        self._seen_once: set[Hashable] = set()

    def __len__(self) -> int:
        """Return the number of forms that are kept."""
        return len(self._known)

    def find(self, key: Hashable) -> Form[Facts] | None:
        """Return the form that was learnt under a key."""
        return self._known.get(key)

    def read(
        self, data: bytes | bytearray | memoryview
    ) -> tuple[Facts, dict[str, Any], list[Array]] | None:
        """Read a message of a known form; None if it is of none.

        Returns:
            The facts of the form, the values in its holes, and the arrays in its order.

        Raises:
            MessageDecodeError: A list in the header, or a boolean, is not well-formed.
        """
        if type(data) is not bytes or len(data) > self._limits.max_message_bytes:
            return None
        key, end = read_key(data)
        form = self._known.get(key)
        tail = (end + 7) & -8
        if form is None or len(data) - tail != form.layout.room:
            return None
        if end - LENGTH_BYTES > self._limits.max_header_bytes:
            return None
        values = form.read(data, end, self._limits.max_header_nesting)
        return None if values is None else (form.facts, values, form.layout.views(data, tail))

    def is_wanted(self, key: Hashable) -> bool:
        """Tell whether to learn a form: at its second message, so that a rare one costs little."""
        if key in self._seen_once:
            return True
        if len(self._seen_once) >= MAX_FORMS:
            self._seen_once.clear()
        self._seen_once.add(key)
        return False

    def learn(self, key: Hashable, message: Parsed, facts: Facts | None) -> None:
        """Keep the form of a message that passed every check, if it has one and there are facts."""
        header = bytes(message.buffer[LENGTH_BYTES : header_end(message.buffer)])
        if facts is None or len(header) > MAX_FORM_BYTES:
            return
        cut = _cut(header, self._holes)
        if cut is None:
            return
        while len(self._known) >= MAX_FORMS:
            del self._known[next(iter(self._known))]
        layout = message.layout
        sizes = (math.prod(shape) * dtype.itemsize for shape, dtype, _ in layout.spans)
        self._known[key] = Form(
            parts=cut[0],
            last=cut[1],
            layout=layout,
            gaps=(b"", *(PADDING[-size & 7] for size in sizes))[: len(layout.spans)],
            facts=facts,
        )


def read_key(buffer: bytes | memoryview) -> tuple[bytes, int]:
    """Return the key of a message that comes in, and where its header ends.

    The key is the first and the last bytes of the header. As `Step` and `Action` write it, no hole
    is among them; the first tell message and group, and the last the size of the last array and
    where it lies. Other headers may share a key, and then a place, or have many.
    """
    end = header_end(buffer)
    first = buffer[LENGTH_BYTES : LENGTH_BYTES + _FIRST_BYTES]
    return bytes(first) + buffer[end - _LAST_BYTES : end], end


def _packed(value: int) -> bytes:
    """Write an integer below 2**32 as msgpack does: in the shortest form."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value < 0x100:
        return b"\xcc" + value.to_bytes(1, "big")
    return (
        b"\xcd" + value.to_bytes(2, "big")
        if value < 0x10000
        else b"\xce" + value.to_bytes(4, "big")
    )


def _cut(
    header: bytes, holes: Mapping[str, Hole]
) -> tuple[tuple[tuple[bytes, str, Hole], ...], bytes] | None:
    """Cut the holes out of a well-formed header; None if a value is written in an unusual way."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(header)
    parts: list[tuple[bytes, str, Hole]] = []
    done = 0
    for _ in range(unpacker.read_map_header()):
        key = unpacker.unpack()
        begin = unpacker.tell()
        unpacker.skip()
        hole = holes.get(key)
        if hole is None:
            continue
        mark = header[begin]
        unusual = (
            mark != _DOUBLE_MARK
            if hole == "double"
            else hole == "unsigned" and mark >= 0x80 and mark not in _UNSIGNED
        )
        if unusual or (parts and parts[-1][2] == "list"):
            return None
        begin += hole == "double"
        parts.append((header[done:begin], key, hole))
        done = unpacker.tell()
    last = header[done:]
    return (tuple(parts), last) if parts and len(last) >= _MIN_LAST_BYTES else None
