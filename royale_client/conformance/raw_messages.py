"""Bytes that are no messages, or not quite: what the codec of the product refuses to write."""

from __future__ import annotations

from typing import Any

import msgpack

from royale_client.wire.codec import LENGTH_BYTES, encode, header_end
from royale_client.wire.dtypes import Array
from royale_client.wire.errors import brief
from royale_client.wire.messages import Message


def assemble(header: bytes, tail: bytes = b"", *, length: int | None = None) -> bytes:
    """Put a message together from its header as it is.

    Args:
        header: Any bytes.
        tail: Bytes of the arrays.
        length: What the first four bytes say; None says the truth.
    """
    front = (len(header) if length is None else length).to_bytes(LENGTH_BYTES, "little")
    return front + header + bytes(-(LENGTH_BYTES + len(header)) % 8) + tail


def packed(value: object) -> bytes:
    """Pack any value that msgpack knows, binary and extension types among them."""
    data: bytes = msgpack.packb(value, strict_types=False)
    return data


def with_entry(message: Message, key: bytes, value: bytes) -> bytes:
    """Write a message whose header has one more entry, given as packed bytes.

    The header must have fewer than 15 entries, so that its first byte alone counts them.
    """
    data = encode(*message.to_wire())
    end = header_end(data)
    header, tail = data[LENGTH_BYTES:end], data[(end + 7) & -8 :]
    if not 0x80 <= header[0] < 0x8F:
        raise ValueError(f"a header of another kind: {brief(header[:1])}")
    return assemble(bytes([header[0] + 1]) + header[1:] + key + value, tail)


def with_header(message: Message, **changes: Any) -> bytes:  # noqa: ANN401 - any header value
    """Write a message with other header values; an ellipsis leaves an entry out."""
    header, arrays = message.to_wire()
    return encode({k: v for k, v in (header | changes).items() if v is not ...}, arrays)


def with_arrays(message: Message, **changes: Array | None) -> bytes:
    """Write a message with other arrays; None leaves an array out."""
    header, arrays = message.to_wire()
    return encode(header, {k: v for k, v in (arrays | changes).items() if v is not None})


def with_table(message: Message, name: str, entry: list[Any], **changes: Array) -> bytes:
    """Write a message whose array table says something else about one array.

    Args:
        message: A message with arrays.
        name: The array.
        entry: What its entry in the table is to be.
        changes: Other arrays instead of the message's own.
    """
    data = with_arrays(message, **changes)
    end = header_end(data)
    header: dict[str, Any] = msgpack.unpackb(data[LENGTH_BYTES:end])
    header["a"][name] = entry
    return assemble(packed(header), data[(end + 7) & -8 :])


def with_tail(message: Message, more: bytes) -> bytes:
    """Write a message that goes on after its last array."""
    return encode(*message.to_wire()) + more


def loosely_laid_out(message: Message) -> bytes:
    """Write a message in a legal way that no encoder of the product would choose.

    The table is in reverse order, padding is not zero, and the header has a key nobody knows.
    """
    header, arrays = message.to_wire()
    spans, tail = {}, b""
    codes = table_of(encode(header, arrays)) if arrays else {}
    for name, array in arrays.items():
        tail += b"\xaa" * (-len(tail) % 8)
        code, dims, _ = codes[name]
        spans[name] = [code, dims, len(tail)]
        tail += array.astype(array.dtype.newbyteorder("<"), order="C").tobytes()
    table = {"a": dict(reversed(spans.items()))} if spans else {}
    data = packed({**header, "x-unknown": {"to": ["everybody", None]}, **table})
    padding = b"\xaa" * (-(LENGTH_BYTES + len(data)) % 8)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data + padding + tail


def table_of(data: bytes) -> dict[str, list[Any]]:
    """Read the array table of a message."""
    header: dict[str, Any] = msgpack.unpackb(data[LENGTH_BYTES : header_end(data)])
    table: dict[str, list[Any]] = header["a"]
    return table
