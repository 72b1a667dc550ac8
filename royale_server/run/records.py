"""Rows of data as strict JSON lines in files that are only ever appended to.

A line is whole or isolated on a line of its own; what was written is never changed. Numbers that
JSON lacks become null and are named; absent data is an absent key. Never imports torch or NumPy:
arrays and tensors are recognised by what they can do.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

NONFINITE_KEY = "nonfinite"
"""Key that maps the place of each null that was a number to ``nan``, ``inf`` or ``-inf``."""

_MAX_DEPTH = 32
_MAX_REPR = 200
_MAX_INT_BITS = 1024
_PLAIN_INT = 1 << 64
_MAX_UNWRITTEN = 10_000
_TAIL_BYTES = 1 << 16
_PLAIN = frozenset({bool, int, float, str, type(None)})
_FLAT = _PLAIN | {list}
_NAMES, _NUMBERS = frozenset({str}), frozenset({float})
_TO_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False)
_FLAT_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)
"""Writes ASCII as the other one does, only faster."""

Json: TypeAlias = Any
"""What the ``json`` module writes without help."""


def plain_record(record: Mapping[Any, object]) -> dict[str, Json]:
    """Convert a record to what JSON can express.

    Args:
        record: Any mapping. Keys become text. Arrays, tensors and NumPy scalars become numbers and
            lists; what has no JSON form becomes the text of its ``repr``. No value makes it fail.

    Returns:
        The record with nulls for non-finite numbers; its ``nonfinite``, if any, maps where each of
        them was (``"loss"``, ``"metrics.values[2]"``) to what it was.

    Raises:
        ValueError: If the record has a key ``nonfinite`` of its own.
    """
    if NONFINITE_KEY in record:
        raise ValueError(
            f"a record cannot have a key {NONFINITE_KEY!r}: it names non-finite numbers"
        )
    nonfinite: dict[str, str] = {}
    plain = _plain_mapping(record, "", nonfinite, 0)
    if nonfinite:
        plain[NONFINITE_KEY] = nonfinite
    return plain


def to_line(record: Mapping[Any, object]) -> bytes:
    """Write a record as one line of strict JSON: ASCII, with one newline, at the end."""
    line = _line_of_plain(record)
    return render(plain_record(record)) if line is None else line


def _line_of_plain(record: Mapping[Any, object]) -> bytes | None:
    """Write a record that JSON can express as it is; None if it may not be one.

    Nearly every record is: names, finite numbers, lists of those. Looked at as a whole, it costs
    half of what a look at each entry does.
    """
    values = record.values()
    kinds = set(map(type, values))
    is_flat = type(record) is dict and kinds <= _FLAT and set(map(type, record)) <= _NAMES
    if not is_flat or NONFINITE_KEY in record:
        return None
    if list in kinds:
        lists = [value for value in values if type(value) is list]
        if not set(map(type, chain.from_iterable(lists))) <= _NUMBERS:
            return None
    if int in kinds:
        numbers = [value for value in values if type(value) is int]
        if not -_PLAIN_INT <= min(numbers) <= max(numbers) <= _PLAIN_INT:
            return None
    try:
        text = _FLAT_TO_JSON.encode(record)
    except ValueError:  # a number that is not finite
        return None
    # What is not ASCII may be a lone surrogate.
    return text.encode("ascii") + b"\n" if text.isascii() else None


def render(plain: Mapping[str, Json]) -> bytes:
    """Write what ``plain_record`` made as one line."""
    return _TO_JSON.encode(plain).encode("ascii") + b"\n"


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read all records of a file; lines that do not parse are skipped.

    Returns:
        The records in order, and how many lines were skipped.
    """
    records: list[dict[str, Any]] = []
    skipped = 0
    with path.open("rb") as file:
        for line in file:
            record = _parse(line)
            if record is None:
                skipped += 1
            else:
                records.append(record)
    return records, skipped


def last_record(path: Path) -> dict[str, Any] | None:
    """Return the last record of a file that parses, or ``None``. Reads from its end."""
    records = last_records(path, 1)
    return records[0] if records else None


def last_records(path: Path, count: int) -> list[dict[str, Any]]:
    """Return up to ``count`` of the last records of a file, oldest first. Reads from its end."""
    found: list[dict[str, Any]] = []
    if path.exists():
        for line in _lines_from_end(path):
            record = _parse(line)
            if record is not None:
                found.append(record)
            if len(found) == count:
                break
    return found[::-1]


class AppendFile:
    """A file that lines are appended to, those of one call by one write.

    If the file ends in a line that was cut (a crash, a full disk), that line is isolated by a
    newline before anything else is written. What a full disk refuses is kept and written with the
    next line. Not thread-safe.

    Args:
        path: File to open or create. Its folder must exist.
        is_lazy: Whether a file that does not exist is made no earlier than its first line.
    """

    def __init__(self, path: Path, *, is_lazy: bool = False) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._is_torn = False
        if not is_lazy or path.exists():
            self._opened()
        self._unwritten: deque[bytes] = deque()
        self._num_refused = 0
        self.had_torn_tail = self._is_torn
        """Whether the file was found with a cut last line."""
        self.num_dropped = 0
        """Lines given up because the disk refused too many of them for too long."""

    @property
    def num_unwritten(self) -> int:
        """Lines that the disk has refused so far; one that it has not answered yet is none."""
        return self._num_refused

    def append(self, *lines: bytes) -> None:
        """Append lines and whatever was refused before them.

        Args:
            lines: Each one line, newline included, from ``to_line``.

        Raises:
            OSError: If something is still unwritten. It is kept; ``write_pending`` tries again.
        """
        self._unwritten.extend(lines)
        while len(self._unwritten) > max(_MAX_UNWRITTEN, len(lines)):
            self._unwritten.popleft()
            self.num_dropped += 1
        self.write_pending()

    def write_pending(self) -> None:
        """Write the lines that were refused before, in order; raises as ``append`` does."""
        try:
            self._write_all()
        finally:
            self._num_refused = len(self._unwritten)

    def _write_all(self) -> None:
        if not self._unwritten:
            return
        descriptor = self._opened()
        isolating = b"\n" if self._is_torn else b""
        data = isolating + b"".join(self._unwritten)
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError:
            if written:
                self._is_torn = data[written - 1 : written] != b"\n"
            self._forget_written(written - len(isolating))
            if self._unwritten:
                raise
        else:
            self._is_torn = False
            self._unwritten.clear()

    def _forget_written(self, count: int) -> None:
        """Keep the lines that ``count`` bytes do not hold; one without its newline is held."""
        while self._unwritten and count >= len(self._unwritten[0]) - 1:
            count -= len(self._unwritten.popleft())

    def sync(self) -> None:
        """Make everything appended so far durable.

        Raises:
            OSError: If the disk refuses.
        """
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. Everything appended is with the operating system already."""
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _opened(self) -> int:
        """Return the descriptor of the file, opening it if nobody has."""
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self.path, flags, 0o644)
            self._is_torn = _ends_torn(self._descriptor)
        return self._descriptor


def _ends_torn(descriptor: int) -> bool:
    """Whether the last line of an open file was cut."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return False
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) != b"\n"


def _plain(value: object, where: str, nonfinite: dict[str, str], depth: int) -> Json:
    """Convert a value to what JSON can express; note non-finite numbers under their place."""
    to_list = None if type(value) in _PLAIN else getattr(value, "tolist", None)
    if callable(to_list):  # arrays, tensors and NumPy scalars; the latter become one number
        value = to_list()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INT_BITS else hex(value)
    if isinstance(value, float):
        return _finite_or_null(float(value), where, nonfinite)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return _plain_mapping(value, where, nonfinite, depth + 1)
    if depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        return [_plain(v, f"{where}[{i}]", nonfinite, depth + 1) for i, v in enumerate(value)]
    return _text(value if isinstance(value, str) else repr(value)[:_MAX_REPR])


def _plain_mapping(
    value: Mapping[Any, object], where: str, nonfinite: dict[str, str], depth: int
) -> dict[str, Json]:
    plain: dict[str, Json] = {}
    for key, item in value.items():
        name = _text(key) if isinstance(key, str) else str(key)
        if name in plain or (not isinstance(key, str) and name in value):
            name = f"{name} ({type(key).__name__})"  # 1 beside "1": both stay
        plain[name] = _plain(item, f"{where}.{name}" if where else name, nonfinite, depth)
    return plain


def _finite_or_null(value: float, where: str, nonfinite: dict[str, str]) -> float | None:
    if math.isfinite(value):
        return value
    nonfinite[where] = repr(value)
    return None


def _text(value: str) -> str:
    """Replace lone surrogates, which strict readers refuse even when escaped."""
    if value.isascii():
        return value
    return value.encode("utf-8", "replace").decode("utf-8")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _lines_from_end(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, last one first, reading it in blocks from its end."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            start = max(0, position - _TAIL_BYTES)
            file.seek(start)
            first, *lines = (file.read(position - start) + rest).split(b"\n")
            yield from reversed(lines)
            rest, position = first, start
        yield rest
