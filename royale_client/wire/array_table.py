"""The array table of a message: what it may say, and where it says that the arrays lie.

A table is held against the bytes at hand before anything is read or allocated. What it says is kept
as a `Layout`, which is the same for every message with the same table and as many bytes of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.errors import MessageDecodeError, brief
from royale_client.wire.limits import Limits

MAX_DIMS = 8
"""Dimensions of one array."""
MAX_EXTENT = 2**48
"""Bytes that the dims of an array may multiply to when zeros are left out, as NumPy does."""
ITEM_BYTES = {code: dtype.itemsize for code, dtype in DTYPES.items()}
"""Wire code -> bytes of one element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the arrays of a message lie, counted from the start of its tail. Checked."""

    names: tuple[str, ...]
    """Names of the arrays, in the order of the table."""
    room: int
    """Bytes of the whole tail."""
    spans: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...]
    """Shape, dtype and offset of each array."""
    booleans: tuple[tuple[int, int, int], ...]
    """Index, begin and end of each array of booleans, whose bytes must be 0 or 1."""

    def views(self, buffer: bytes | memoryview, tail: int) -> list[Array]:
        """View every array of a message.

        Args:
            buffer: The message; its bytes after ``tail`` are ``room``.
            tail: Where the arrays begin.

        Returns:
            Read-only views, in the order of the table.

        Raises:
            MessageDecodeError: A boolean is neither 0 nor 1.
        """
        for index, begin, end in self.booleans:
            # Strips what booleans may be; whatever is left over is none.
            if bytes(buffer[tail + begin : tail + end]).strip(b"\0\1"):
                shape, _, offset = self.spans[index]
                entry = ["?", list(shape), offset]
                raise _bad_array(self.names[index], entry, "booleans that are 0 or 1")
        return [np.ndarray(shape, dtype, buffer, tail + at) for shape, dtype, at in self.spans]


def read_table(table: object, room: int, limits: Limits) -> Layout:
    """Check an array table.

    Args:
        table: What the header says of its arrays; None if nothing.
        room: Bytes of the tail.
        limits: How many arrays there may be.

    Raises:
        MessageDecodeError: An array is described wrongly or does not lie in the tail; or the arrays
            overlap, or leave bytes over.
    """
    if table is None:
        table = {}
    if type(table) is not dict or len(table) > limits.max_arrays:
        raise MessageDecodeError(
            "the array table is no map, or too large",
            got=brief(table),
            expected=f"a map of at most {limits.max_arrays} arrays",
        )
    spans: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
    booleans = []
    pieces = []
    for name, entry in table.items():
        code, dims, offset, size = _checked_entry(name, entry, room)
        if code == "?":
            booleans.append((len(spans), offset, offset + size))
        spans.append((tuple(dims), DTYPES[code], offset))
        pieces.append((offset, size))
    _check_spans(pieces, room)
    return Layout(names=tuple(table), room=room, spans=tuple(spans), booleans=tuple(booleans))


def _checked_entry(name: str, entry: object, room: int) -> tuple[str, list[int], int, int]:
    """Return dtype code, dims, offset and size in bytes of an array that lies inside the tail."""
    if type(entry) is not list or len(entry) != 3:
        raise _bad_array(name, entry, "three entries: dtype code, dims, offset")
    code, dims, offset = entry
    if type(code) is not str or code not in ITEM_BYTES:
        raise _bad_array(name, entry, f"a dtype code out of {', '.join(DTYPES)}")
    if type(dims) is not list or len(dims) > MAX_DIMS:
        raise _bad_array(name, entry, f"a list of at most {MAX_DIMS} dims")
    size = extent = ITEM_BYTES[code]
    for dim in dims:
        if type(dim) is not int or dim < 0:
            raise _bad_array(name, entry, "dims that are integers >= 0")
        size *= dim
        extent *= dim or 1
    if size > room or extent > MAX_EXTENT:
        raise _bad_array(name, entry, f"an array inside the {room} bytes of the tail")
    if type(offset) is not int or offset < 0 or offset & 7 or offset + size > room:
        raise _bad_array(
            name, entry, f"an offset in steps of 8 inside the {room} bytes of the tail"
        )
    return code, dims, offset, size


def _check_spans(spans: list[tuple[int, int]], room: int) -> None:
    """Refuse arrays that overlap, leave holes, or leave bytes over at the end."""
    end = 0
    for start, size in sorted(spans):
        if start != (end + 7) & -8:
            raise MessageDecodeError(
                "the arrays overlap or leave a hole",
                got=f"an array at {start}",
                expected=f"the next array at {(end + 7) & -8}",
            )
        end = start + size
    if end != room:
        raise MessageDecodeError(
            "the message goes on after its last array",
            got=f"{room} bytes of arrays",
            expected=f"{end}",
        )


def _bad_array(name: str, entry: object, expected: str) -> MessageDecodeError:
    return MessageDecodeError(
        "an array is described wrongly",
        where=f"array {brief(name)}",
        got=brief(entry),
        expected=expected,
    )
