"""Bytes of a message to and from a header map and named arrays. No object is ever unpickled.

Layout: header length (u32, little-endian) | header (msgpack map) | zeros up to a multiple of 8 |
the arrays, each at a multiple of 8 from the start of this tail, little-endian, C order, in one
piece without holes. The header's key ``a`` lists them: ``{name: [dtype code, [dims], offset]}``.
The decoder looks at every announced size before it touches memory and returns views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from royale_client.wire.array_table import MAX_DIMS, Layout, read_table
from royale_client.wire.dtypes import CODES, Array
from royale_client.wire.errors import ContractError, MessageDecodeError, brief
from royale_client.wire.limits import Limits

LENGTH_BYTES = 4
"""Bytes of the header length in front."""

PADDING = tuple(bytes(count) for count in range(8))
"""So many zeros, by their number."""


def encode(header: dict[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Write one message.

    Args:
        header: Texts, numbers, booleans, None, lists and maps; its key ``a`` is reserved.
        arrays: Arrays of any layout and byte order; written little-endian in C order.

    Returns:
        The message, allocated once.

    Raises:
        ContractError: An array of a type that cannot travel (object, text, structured, …) or of
            more than 8 dimensions, or a header value that msgpack cannot write; names it.
    """
    table: dict[str, tuple[str, tuple[int, ...], int]] = {}
    parts: list[Any] = [b"", b"", b""]
    offset = 0
    for name, given in arrays.items():
        code = CODES.get(given.dtype)
        array = given
        if code is None or not given.flags.c_contiguous or given.ndim > MAX_DIMS:
            array, code = _normalised(name, given)
        parts += (PADDING[-offset & 7], array)
        offset = (offset + 7) & -8
        table[name] = (code, array.shape, offset)
        offset += array.nbytes
    packed = pack({**header, "a": table} if table else header, header.get("t"))
    parts[0] = len(packed).to_bytes(LENGTH_BYTES, "little")
    parts[1] = packed
    parts[2] = PADDING[-(LENGTH_BYTES + len(packed)) & 7]
    return b"".join(parts)


def decode(
    data: bytes | bytearray | memoryview, limits: Limits
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read one message.

    Args:
        data: The whole message. It must not change while the arrays are in use.
        limits: What to refuse for its size.

    Returns:
        The header without its array table, and the arrays as read-only views of ``data``.

    Raises:
        MessageDecodeError: Anything that is not exactly one well-formed message.
    """
    parsed = parse(data, limits)
    return parsed.header, parsed.arrays()


@dataclass(slots=True, kw_only=True)
class Parsed:
    """One well-formed message, but for the values of its arrays."""

    header: dict[str, Any]
    """The header without its array table."""
    layout: Layout
    """Where the arrays lie."""
    buffer: bytes | memoryview
    """The whole message."""
    tail: int
    """Where the arrays begin."""

    def arrays(self) -> dict[str, Array]:
        """View the arrays.

        Raises:
            MessageDecodeError: A boolean is neither 0 nor 1.
        """
        return dict(zip(self.layout.names, self.layout.views(self.buffer, self.tail), strict=True))


def parse(data: bytes | bytearray | memoryview, limits: Limits) -> Parsed:
    """Read the header of one message and find its arrays.

    Raises:
        MessageDecodeError: The header or the array table is not well-formed.
    """
    buffer = _checked_buffer(data, limits)
    header, tail = _read_header(buffer, limits)
    table = header.pop("a", None)
    check_nesting(header, limits.max_header_nesting)
    layout = read_table(table, len(buffer) - tail, limits)
    return Parsed(header=header, layout=layout, buffer=buffer, tail=tail)


def peek(data: bytes | bytearray | memoryview, limits: Limits) -> dict[str, Any]:
    """Read the header alone, whatever follows it.

    The first message of a connection is looked at in this way, so that the protocol version of
    any peer, however new, is known before the rest of its message is judged.

    Raises:
        MessageDecodeError: There is no well-formed header.
    """
    return _read_header(_checked_buffer(data, limits), limits)[0]


def _normalised(name: str, given: Array) -> tuple[Array, str]:
    """Copy an array to little-endian C order, or refuse it by name; 0-d stays 0-d."""
    dtype = given.dtype.newbyteorder("<")
    code = CODES.get(dtype)
    if code is None or given.ndim > MAX_DIMS:
        raise ContractError(
            "an array cannot travel",
            where=f"array {name!r}",
            got=f"dtype {given.dtype}, {given.ndim} dimensions",
            expected=f"one of {', '.join(CODES.values())}, at most {MAX_DIMS} dimensions",
            remedy="convert it before it is sent",
        )
    return np.array(given, dtype=dtype, order="C"), code


def pack(value: object, name: object) -> bytes:
    """Write a header, or a value of one; ``name`` is for the error.

    Raises:
        ContractError: It holds what msgpack cannot write.
    """
    try:
        packed: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContractError(
            "the header holds what msgpack cannot write",
            where=f"header of {brief(name)}",
            got=brief(str(error)),
            expected="texts, 64-bit numbers, booleans, lists and maps",
        ) from error
    return packed


def _checked_buffer(data: object, limits: Limits) -> bytes | memoryview:
    """Return something read-only over the message, whose length is within the limits."""
    buffer: bytes | memoryview
    if type(data) is bytes:
        buffer = data
    elif isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data)
        if not view.c_contiguous:
            raise MessageDecodeError("the message is not one block of memory")
        buffer = view.cast("B").toreadonly()
    else:
        raise MessageDecodeError(
            "the message is no block of bytes",
            got="a text frame" if isinstance(data, str) else type(data).__name__,
            expected="a binary frame",
        )
    if not LENGTH_BYTES < len(buffer) <= limits.max_message_bytes:
        raise MessageDecodeError(
            "the message has no possible length",
            got=f"{len(buffer)} bytes",
            expected=f"{LENGTH_BYTES + 1} to {limits.max_message_bytes}",
        )
    return buffer


def header_end(buffer: bytes | memoryview) -> int:
    """Return where the header ends, as the length in front of it says."""
    return LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "little")


def _read_header(buffer: bytes | memoryview, limits: Limits) -> tuple[dict[str, Any], int]:
    """Return the header and where the tail begins."""
    end = header_end(buffer)
    length = end - LENGTH_BYTES
    tail = (end + 7) & -8
    if length > limits.max_header_bytes or tail > len(buffer):
        raise MessageDecodeError(
            "the header is longer than allowed or than the message",
            got=f"{length} bytes in a message of {len(buffer)}",
            expected=f"at most {limits.max_header_bytes}, and padding to a multiple of 8",
        )
    header = unpack(buffer[LENGTH_BYTES:end])
    if type(header) is not dict:
        raise MessageDecodeError("the header is no map", got=brief(header))
    return header, tail


def unpack(packed: bytes | memoryview) -> object:
    """Unpack strictly: text keys, each once, valid UTF-8, no binary, no extension types.

    msgpack bounds every announced length by the bytes at hand.

    Raises:
        MessageDecodeError: It is not exactly one value of that kind.
    """
    try:
        return msgpack.unpackb(
            packed,
            raw=False,
            strict_map_key=True,
            use_list=True,
            object_pairs_hook=_distinct,
            ext_hook=_refuse_extension,
            max_bin_len=0,
            max_ext_len=0,
        )
    # The unpacker raises a different class for each kind of damage, and more in each release.
    except Exception as error:
        raise MessageDecodeError(
            "the header is not valid msgpack of this protocol",
            got=brief(str(error) or type(error).__name__),
            expected="a map of text keys, without binary, extension types or repeated keys",
        ) from error


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    table = dict(pairs)
    if len(table) != len(pairs) or b"" in table:
        raise ValueError("a map has a repeated or binary key")
    return table


def _refuse_extension(code: int, _data: bytes) -> None:
    raise ValueError(f"extension type {code}")


def check_nesting(header: dict[str, Any], levels: int) -> None:
    """Refuse a header that is nested deeper than ``levels``.

    Raises:
        MessageDecodeError: It is.
    """
    layer = [value for value in header.values() if type(value) is dict or type(value) is list]
    while layer:
        levels -= 1
        if levels == 0:
            raise MessageDecodeError("the header is nested too deep")
        layer = [
            item
            for box in layer
            for item in (box.values() if type(box) is dict else box)
            if type(item) is dict or type(item) is list
        ]
