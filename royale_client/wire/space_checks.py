"""Checks of the parts that specs are made of: numbers, shapes, dtypes and bounds.

What is wrong is refused as a ``ConfigError``; what is right is returned in its one form.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from royale_client.wire.dtypes import CODES, Array
from royale_client.wire.errors import ConfigError, brief

MAX_DIMS = 6
"""Dimensions of one leaf value; a batch and a chunk dimension still fit the codec's eight."""
MAX_ROW_BYTES = 64 * 1024 * 1024
"""Bytes of one leaf value."""
MAX_CHOICES = 2**31
"""Values of one discrete choice."""


def checked_integer(what: str, value: object) -> int:
    """Return an integer of any kind as ``int``; a boolean is none.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{what}: got {brief(value)}, expected an integer")
    return int(value)


def checked_dtype(value: DTypeLike) -> np.dtype[Any]:
    """Return a dtype that can travel, little-endian.

    Raises:
        ConfigError: It is none.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(value).newbyteorder("<")
    except TypeError as error:
        raise ConfigError(f"Box dtype {brief(value)}: no such type") from error
    if dtype not in CODES:
        raise ConfigError(f"Box dtype {dtype}: only {', '.join(CODES.values())} can travel")
    return dtype


def checked_choices(what: str, value: object) -> int:
    """Return a number of choices that fits its limit.

    Raises:
        ConfigError: It is none.
    """
    number = checked_integer(what, value)
    if not 1 <= number <= MAX_CHOICES:
        raise ConfigError(f"{what}: got {number}, expected 1 to 2**31")
    return number


def checked_shape(kind: str, shape: object, item_bytes: int) -> tuple[int, ...]:
    """Return a shape whose values fit a message.

    Raises:
        ConfigError: It is none.
    """
    dims = tuple(
        checked_integer(f"{kind} shape", dim) for dim in np.atleast_1d(np.asarray(shape, object))
    )
    if len(dims) > MAX_DIMS or any(not 0 <= dim <= MAX_ROW_BYTES for dim in dims):
        raise ConfigError(
            f"{kind} shape {brief(dims)}: expected at most {MAX_DIMS} dimensions, none negative, "
            f"at most {MAX_ROW_BYTES} bytes"
        )
    if math.prod(max(dim, 1) for dim in dims) * item_bytes > MAX_ROW_BYTES:
        raise ConfigError(f"{kind} shape {brief(dims)}: expected at most {MAX_ROW_BYTES} bytes")
    return dims


def checked_bound(
    name: str, value: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Cast a bound to the space's type and view it in its shape; uniform ones take one element.

    Raises:
        ConfigError: Not numbers of that type, NaN, or another shape.
    """
    given = np.asarray(value)
    if given.dtype.kind not in "biuf":
        raise ConfigError(f"Box {name}: got {brief(value)}, expected numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.array(given, dtype=dtype)
    exact = np.isinf(cast) == np.isinf(given) if dtype.kind == "f" else cast == given
    if not np.all(exact) or np.any(np.isnan(cast)):
        raise ConfigError(f"Box {name} {brief(value)}: not a value of {dtype.name}, or NaN")
    try:
        full = np.broadcast_to(cast, shape)
    except ValueError as error:
        raise ConfigError(
            f"Box {name}: got shape {given.shape}, expected one that broadcasts to {shape}"
        ) from error
    if cast.size > 1 and np.all(cast == cast.flat[0]):
        return np.broadcast_to(np.array(cast.flat[0]), shape)
    return full
