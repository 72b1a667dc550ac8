"""Plain data and arrays to bytes and back, exactly: types, dtypes and bits are those that went in.

Plain are: None, bool, int of any size, float, str, bytes, list, tuple, dict, deque, NumPy arrays
and scalars of the types that may travel, and random generators (NumPy's and Python's). One array
in two places is one array again afterwards. Anything else is refused by its place and type.

The bytes are a digest (BLAKE2b, 16 bytes) and one message of `royale_client.wire.codec` behind it.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from royale_client.driver import SnapshotError
from royale_client.snapshots.generators import (
    generator_from,
    legacy_generator_from,
    python_generator_from,
    read_generator,
    read_legacy_generator,
    read_python_generator,
)
from royale_client.wire.array_table import MAX_DIMS
from royale_client.wire.codec import decode, encode
from royale_client.wire.dtypes import CODES
from royale_client.wire.errors import ProtocolError
from royale_client.wire.limits import Limits

DIGEST_BYTES = 16
MAX_DEPTH = 64
"""Levels of lists and dicts; more is taken for a value that contains itself."""

Tree: TypeAlias = Any
"""Plain data as msgpack writes it: a container is a list whose first entry says what it is."""

_INT64 = range(-(2**63), 2**63)
_PACKABLE = (type(None), bool, float, str)


class _NotPlainError(Exception):
    """A value that cannot be encoded; its place is completed on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place: list[str] = []


def pack(value: object) -> bytes:
    """Encode a value.

    Raises:
        SnapshotError: If something in it is not plain; names the place and the type.
    """
    writer = _Writer()
    try:
        header = {"value": writer.tree(value, 0)}
        arrays = {
            str(index): array if array.flags.c_contiguous else _in_memory_order(array)
            for index, array in enumerate(writer.arrays)
        }
        message = encode(header, arrays)
    except _NotPlainError as error:
        raise SnapshotError(_sentence(error)) from None
    except ProtocolError as error:
        raise SnapshotError(f"a snapshot cannot be written: {error}") from error
    return _digest(message) + message


def obstacle(value: object) -> str | None:
    """Say what keeps a value from being encoded, as `pack` would, or None."""
    try:
        _Writer().tree(value, 0)
    except _NotPlainError as error:
        return _sentence(error)
    return None


def unpack(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - whatever was packed
    """Decode a value; its arrays are copies that may be written to.

    Raises:
        SnapshotError: If the bytes are not exactly what `pack` returned.
    """
    message = bytes(data[DIGEST_BYTES:])
    if _digest(message) != bytes(data[:DIGEST_BYTES]):
        raise SnapshotError(
            f"the snapshot is damaged: the digest of its {len(data)} bytes is not the one it "
            "begins with"
        )
    size = len(message) + 1
    limits = Limits(
        max_message_bytes=size,
        max_header_bytes=size,
        max_header_nesting=4 * MAX_DEPTH,
        max_arrays=size,
    )
    try:
        header, views = decode(message, limits)
        arrays = [np.array(views[str(index)]) for index in range(len(views))]
        return _Reader(arrays).value(header["value"])
    # The digest fits, so these bytes were made by another program: anything may be in them.
    except Exception as error:
        raise SnapshotError(f"the snapshot cannot be read: {error!r}") from error


def _in_memory_order(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.T if array.flags.f_contiguous else np.ascontiguousarray(array)


def _digest(message: bytes) -> bytes:
    return hashlib.blake2b(message, digest_size=DIGEST_BYTES).digest()


def _sentence(error: _NotPlainError) -> str:
    place = " / ".join(reversed(error.place)) or "the value"
    return f"{place} is {error.what}"


class _Writer:
    """Turns values into trees and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._indices: dict[int, int] = {}

    def tree(self, value: Any, depth: int) -> Tree:  # noqa: ANN401 - this is where types are told apart
        kind = type(value)
        if kind in _PACKABLE:
            return value
        if kind is int:
            return value if value in _INT64 else ["int", hex(value)]
        if kind is np.ndarray:
            # The order in memory decides in which order sums are taken.
            is_transposed = value.flags.f_contiguous and not value.flags.c_contiguous
            return ["transposed" if is_transposed else "array", self._index(value)]
        if isinstance(value, np.generic):
            return ["scalar", self._index(np.asarray(value))]
        if depth == MAX_DEPTH:
            raise _NotPlainError(f"nested more than {MAX_DEPTH} levels deep, or contains itself")
        write = _CONTAINERS.get(kind)
        if write is None:
            raise _NotPlainError(
                f"{_article(kind)}, which is neither plain data nor an array of numbers"
            )
        return write(self, value, depth + 1)

    def mapping(self, value: dict[Any, Any], depth: int) -> Tree:
        entries: list[Tree] = ["dict"]
        key: Any = None
        try:
            for key, item in value.items():
                entries.append(key if type(key) is str else self.tree(key, depth))
                entries.append(self.tree(item, depth))
        except _NotPlainError as error:
            error.place.append(str(key))
            raise
        return entries

    def items(self, value: Any, depth: int) -> list[Tree]:  # noqa: ANN401 - list, tuple or deque
        entries: list[Tree] = []
        try:
            for item in value:
                entries.append(self.tree(item, depth))  # noqa: PERF401 - its length names the place
        except _NotPlainError as error:
            error.place.append(f"entry {len(entries)}")
            raise
        return entries

    def _index(self, array: np.ndarray[Any, Any]) -> int:
        """Return the number of an array, the same for the same one."""
        index = self._indices.get(id(array))
        if index is None:
            if array.dtype not in CODES or array.ndim > MAX_DIMS:
                raise _NotPlainError(
                    f"an array of {array.ndim} dimensions and dtype {array.dtype}; numbers and "
                    f"bools of at most 64 bits in at most {MAX_DIMS} dimensions can be kept"
                )
            index = self._indices[id(array)] = len(self.arrays)
            # Kept alive in the list, so that no other array gets its id meanwhile.
            self.arrays.append(array)
        return index


_CONTAINERS: dict[type, Callable[[_Writer, Any, int], Tree]] = {
    dict: _Writer.mapping,
    list: lambda writer, value, depth: ["list", *writer.items(value, depth)],
    tuple: lambda writer, value, depth: ["tuple", *writer.items(value, depth)],
    deque: lambda writer, value, depth: ["deque", value.maxlen, *writer.items(value, depth)],
    bytes: lambda writer, value, depth: ["bytes", value.hex()],
    np.random.Generator: lambda writer, value, depth: [
        "generator",
        writer.tree(_described(read_generator, value), depth),
    ],
    np.random.RandomState: lambda writer, value, depth: [
        "legacy",
        writer.tree(read_legacy_generator(value), depth),
    ],
    random.Random: lambda writer, value, depth: [
        "random",
        writer.tree(read_python_generator(value), depth),
    ],
}


def _described(read: Callable[[Any], dict[str, Any]], value: object) -> dict[str, Any]:
    try:
        return read(value)
    except TypeError as error:
        raise _NotPlainError(str(error)) from error


def _article(kind: type) -> str:
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


class _Reader:
    """Turns trees back into values."""

    def __init__(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        self._arrays = arrays

    def value(self, tree: Tree) -> Any:  # noqa: ANN401 - whatever was written
        if type(tree) is not list:
            return tree
        kind, *rest = tree
        return _READERS[kind](self, rest)

    def array(self, rest: list[Tree]) -> np.ndarray[Any, Any]:
        return self._arrays[rest[0]]

    def items(self, rest: list[Tree]) -> list[Any]:
        return [self.value(item) for item in rest]

    def mapping(self, rest: list[Tree]) -> dict[Any, Any]:
        values = self.items(rest)
        return dict(zip(values[::2], values[1::2], strict=True))


_READERS: dict[str, Callable[[_Reader, list[Tree]], Any]] = {
    "int": lambda reader, rest: int(rest[0], 16),
    "array": _Reader.array,
    "transposed": lambda reader, rest: reader.array(rest).T,
    "scalar": lambda reader, rest: reader.array(rest)[()],
    "list": _Reader.items,
    "tuple": lambda reader, rest: tuple(reader.items(rest)),
    "deque": lambda reader, rest: deque(reader.items(rest[1:]), maxlen=rest[0]),
    "dict": _Reader.mapping,
    "bytes": lambda reader, rest: bytes.fromhex(rest[0]),
    "generator": lambda reader, rest: generator_from(reader.value(rest[0])),
    "legacy": lambda reader, rest: legacy_generator_from(reader.value(rest[0])),
    "random": lambda reader, rest: python_generator_from(reader.value(rest[0])),
}
