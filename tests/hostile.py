"""Messages that are nearly right, and some that are not at all, made of good ones by a Random."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

from royale_client.wire.codec import LENGTH_BYTES, PADDING, header_end

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    255,
    2**31,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
    0.5,
    math.nan,
    math.inf,
    "",
    "step",
    "\0\n\x1b[2J",
    "../../x",
    "x" * 5000,
    b"\x80\x04.",
    [],
    {},
    [0],
    [1, 2, 3],
    {"t": "hello"},
    [[[[[[[[]]]]]]]],
    ["f4", [2**31, 2**31], 0],
    ["f4", [-1], 0],
    ["O", [1], 0],
    msgpack.ExtType(5, b"x"),
)
"""What a field of a header may be replaced by."""


def hostile(random: Random, good: bytes) -> bytes:
    """Make a hostile message of a good one."""
    return random.choice(_WAYS)(random, good)


def _flip(random: Random, good: bytes) -> bytes:
    bad = bytearray(good)
    for _ in range(random.randint(1, 8)):
        bad[random.randrange(len(bad))] ^= random.randrange(1, 256)
    return bytes(bad)


def _flip_in_front(random: Random, good: bytes) -> bytes:
    bad = bytearray(good)
    bad[random.randrange(min(64, len(bad)))] = random.randrange(256)
    return bytes(bad)


def _cut(random: Random, good: bytes) -> bytes:
    return good[: random.randrange(len(good))]


def _lengthen(random: Random, good: bytes) -> bytes:
    return good + random.randbytes(random.randint(1, 64))


def _splice(random: Random, good: bytes) -> bytes:
    begin = random.randrange(len(good))
    return good[:begin] + random.randbytes(random.randint(1, 32)) + good[begin + 8 :]


def _repeat(random: Random, good: bytes) -> bytes:
    begin = random.randrange(len(good))
    return good[:begin] + good[begin : begin + 32] * 2 + good[begin + 32 :]


def _noise(random: Random, _good: bytes) -> bytes:
    return random.randbytes(random.randint(0, 300))


def _framed_noise(random: Random, _good: bytes) -> bytes:
    return framed(random.randbytes(random.randint(1, 200)), random.randbytes(8))


def _other_value(random: Random, good: bytes) -> bytes:
    """Well-formed msgpack with a value, somewhere, that does not belong there."""
    end = header_end(good)
    try:
        header = msgpack.unpackb(good[LENGTH_BYTES:end], strict_map_key=False)
    except Exception:  # it was no good message; noise then
        return _noise(random, good)
    _replace_somewhere(random, header)
    return framed(msgpack.packb(header), good[(end + 7) & -8 :])


def _replace_somewhere(random: Random, box: Any) -> None:
    """Replace, leave out or add a value of a map or list, or of one inside it."""
    keys = list(box) if isinstance(box, dict) else list(range(len(box)))
    if not keys:
        return
    key = random.choice(keys)
    inner = box[key]
    if isinstance(inner, dict | list) and inner and random.random() < 0.7:
        _replace_somewhere(random, inner)
    elif isinstance(box, dict) and random.random() < 0.2:
        del box[key]
    else:
        box[key] = random.choice(VALUES)


_WAYS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flip,
    _flip_in_front,
    _cut,
    _lengthen,
    _splice,
    _repeat,
    _noise,
    _framed_noise,
    _other_value,
    _other_value,
    _other_value,
)


def framed(header: bytes, tail: bytes = b"") -> bytes:
    """Put raw header bytes and a raw tail into the layout of a message."""
    front = len(header).to_bytes(LENGTH_BYTES, "little") + header
    return front + PADDING[-len(front) & 7] + tail
