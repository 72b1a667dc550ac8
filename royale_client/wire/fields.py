"""Read single fields of a header map that a peer wrote. Every reader checks type and range.

A field that is missing or of another kind raises ``MessageDecodeError`` naming message and field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from royale_client.wire.dtypes import Array
from royale_client.wire.errors import ContractError, MessageDecodeError, brief, one_line

INT64_MAX = 2**63 - 1

Header = dict[str, Any]


def integer(header: Header, key: str, where: str, low: int = 0, high: int = INT64_MAX) -> int:
    """Read an integer between ``low`` and ``high``, both included."""
    value = header.get(key)
    if type(value) is not int or not low <= value <= high:
        _wrong(header, key, where, f"an integer from {low} to {high}")
    return value


def number(header: Header, key: str, where: str, low: float = -math.inf) -> float:
    """Read a finite number that is at least ``low``."""
    value = header.get(key)
    if type(value) not in (int, float) or not (math.isfinite(value) and value >= low):  # type: ignore[arg-type,operator]
        _wrong(header, key, where, "a finite number" + (f" >= {low}" if low > -math.inf else ""))
    return float(value)  # type: ignore[arg-type]


def flag(header: Header, key: str, where: str) -> bool:
    """Read a boolean."""
    value = header.get(key)
    if type(value) is not bool:
        _wrong(header, key, where, "true or false")
    return value


def optional_flag(header: Header, key: str, where: str) -> bool:
    """Read a boolean; absent means false."""
    return flag(header, key, where) if key in header else False


def text(header: Header, key: str, where: str, max_length: int) -> str:
    """Read a text of at most ``max_length`` characters."""
    value = header.get(key)
    if type(value) is not str or len(value) > max_length:
        _wrong(header, key, where, f"a text of at most {max_length} characters")
    return value


def optional_text(header: Header, key: str, where: str, max_length: int) -> str | None:
    """Read a text, or None if the field is absent or nil."""
    return None if header.get(key) is None else text(header, key, where, max_length)


def free_text(header: Header, key: str, where: str, max_length: int) -> str:
    """Read what a peer says to people: it may end in a log, so it stays in its line."""
    return one_line(text(header, key, where, max_length))


def optional_free_text(header: Header, key: str, where: str, max_length: int) -> str | None:
    """Read what a peer says to people, or None if the field is absent or nil."""
    return None if header.get(key) is None else free_text(header, key, where, max_length)


def free_texts(
    header: Header, key: str, where: str, max_count: int, max_length: int
) -> tuple[str, ...]:
    """Read a list of what a peer says to people; see `free_text`."""
    return tuple(map(one_line, texts(header, key, where, max_count, max_length)))


def integers(header: Header, key: str, where: str, max_count: int, low: int = 0) -> tuple[int, ...]:
    """Read a list of at most ``max_count`` integers, each at least ``low``."""
    values = _list(header, key, where, max_count, "integers")
    if any(type(value) is not int or not low <= value <= INT64_MAX for value in values):
        _wrong(header, key, where, f"a list of integers from {low}")
    return tuple(values)


def texts(header: Header, key: str, where: str, max_count: int, max_length: int) -> tuple[str, ...]:
    """Read a list of at most ``max_count`` texts of at most ``max_length`` characters."""
    values = _list(header, key, where, max_count, "texts")
    if any(type(value) is not str or len(value) > max_length for value in values):
        _wrong(header, key, where, f"a list of texts of at most {max_length} characters")
    return tuple(values)


def maps(header: Header, key: str, where: str, max_count: int) -> tuple[dict[str, Any], ...]:
    """Read a list of at most ``max_count`` maps."""
    values = _list(header, key, where, max_count, "maps")
    if any(type(value) is not dict for value in values):
        _wrong(header, key, where, "a list of maps")
    return tuple(values)


def optional_maps(
    header: Header, key: str, where: str, max_count: int
) -> tuple[dict[str, Any], ...]:
    """Read a list of at most ``max_count`` maps; absent means empty."""
    return maps(header, key, where, max_count) if key in header else ()


def table(header: Header, key: str, where: str, max_count: int) -> dict[str, Any]:
    """Read a map of at most ``max_count`` entries."""
    value = header.get(key)
    if type(value) is not dict or len(value) > max_count:
        _wrong(header, key, where, f"a map of at most {max_count} entries")
    return value


def array(
    arrays: Mapping[str, Array], name: str, where: str, dtype: np.dtype[Any], ndim: int
) -> Array:
    """Take an array that must be there, of one type and number of dimensions."""
    value = arrays.get(name)
    if value is None or value.dtype != dtype or value.ndim != ndim:
        got = "none" if value is None else f"{value.dtype.name} of shape {value.shape}"
        raise ContractError(
            "an array is missing or of another type",
            where=f"{where}.{name}",
            got=got,
            expected=f"{dtype.name} with {ndim} dimensions",
        )
    return value


def clean_text(value: str, max_length: int) -> str:
    """Cut a free text and replace what cannot be encoded, so that it can always be sent."""
    return value[:max_length].encode("utf-8", "replace").decode("utf-8")


def _list(header: Header, key: str, where: str, max_count: int, what: str) -> list[Any]:
    value = header.get(key)
    if type(value) is not list or len(value) > max_count:
        _wrong(header, key, where, f"a list of at most {max_count} {what}")
    return value


def _wrong(header: Header, key: str, where: str, expected: str) -> NoReturn:
    raise MessageDecodeError(
        "a header field is missing or of another kind",
        where=f"{where}.{key}",
        got=brief(header[key]) if key in header else "nothing",
        expected=expected,
    )
