"""Bytes of a message to and from a header map and named arrays. No object is ever unpickled.

Layout: header length (u32, little-endian) | header (msgpack map) | zeros up to a multiple of 8 |
the arrays, each at a multiple of 8 from the start of this tail, little-endian, C order, in one
piece without holes. The header's key ``a`` lists them: ``{name: [dtype code, [dims], offset]}``.
The decoder looks at every announced size before it touches memory and returns views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from royale_client.wire.dtypes import CODES, DTYPES, Array
from royale_client.wire.errors import ContractError, MessageDecodeError, brief
from royale_client.wire.limits import Limits

MAX_DIMS = 8
"""Dimensions of one array."""
LENGTH_BYTES = 4
"""Bytes of the header length in front."""
MAX_EXTENT = 2**48
"""Bytes that the dims of an array may multiply to when zeros are left out, as NumPy does."""
ITEM_BYTES = {code: dtype.itemsize for code, dtype in DTYPES.items()}
"""Wire code -> bytes of one element."""

_PADDING = tuple(bytes(count) for count in range(8))


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
        parts += (_PADDING[-offset & 7], array)
        offset = (offset + 7) & -8
        table[name] = (code, array.shape, offset)
        offset += array.nbytes
    packed = _pack({**header, "a": table} if table else header)
    parts[0] = len(packed).to_bytes(LENGTH_BYTES, "little")
    parts[1] = packed
    parts[2] = _PADDING[-(LENGTH_BYTES + len(packed)) & 7]
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
    buffer = _checked_buffer(data, limits)
    header, tail = _read_header(buffer, limits)
    table = header.pop("a", None)
    _check_nesting(header, limits.max_header_nesting)
    return header, _read_arrays(table, buffer, tail, limits)


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


def _pack(header: dict[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(header)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContractError(
            "the header holds what msgpack cannot write",
            where=f"header of {brief(header.get('t'))}",
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


def _read_header(buffer: bytes | memoryview, limits: Limits) -> tuple[dict[str, Any], int]:
    """Return the header and where the tail begins."""
    length = int.from_bytes(buffer[:LENGTH_BYTES], "little")
    tail = (LENGTH_BYTES + length + 7) & -8
    if length > limits.max_header_bytes or tail > len(buffer):
        raise MessageDecodeError(
            "the header is longer than allowed or than the message",
            got=f"{length} bytes in a message of {len(buffer)}",
            expected=f"at most {limits.max_header_bytes}, and padding to a multiple of 8",
        )
    header = _unpack(buffer[LENGTH_BYTES : LENGTH_BYTES + length])
    if type(header) is not dict:
        raise MessageDecodeError("the header is no map", got=brief(header))
    return header, tail


def _unpack(packed: bytes | memoryview) -> object:
    """Unpack strictly: text keys, each once, valid UTF-8, no binary, no extension types.

    msgpack bounds every announced length by the bytes at hand.
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


def _check_nesting(header: dict[str, Any], levels: int) -> None:
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


def _read_arrays(
    table: object, buffer: bytes | memoryview, tail: int, limits: Limits
) -> dict[str, Array]:
    """View every array of the tail; this loop is most of the cost of decoding."""
    if table is None:
        table = {}
    if type(table) is not dict or len(table) > limits.max_arrays:
        raise MessageDecodeError(
            "the array table is no map, or too large",
            got=brief(table),
            expected=f"a map of at most {limits.max_arrays} arrays",
        )
    room = len(buffer) - tail
    arrays: dict[str, Array] = {}
    end = 0
    in_order = True
    for name, entry in table.items():
        code, dims, offset, size = _checked_entry(name, entry, room)
        begin = tail + offset
        # Strips what booleans may be; whatever is left over is none.
        if code == "?" and bytes(buffer[begin : begin + size]).strip(b"\0\1"):
            raise _bad_array(name, entry, "booleans that are 0 or 1")
        arrays[name] = np.ndarray(dims, DTYPES[code], buffer, begin)
        in_order = in_order and offset == (end + 7) & -8
        end = offset + size
    if not in_order or end != room:
        _check_spans([(entry[2], arrays[name].nbytes) for name, entry in table.items()], room)
    return arrays


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
