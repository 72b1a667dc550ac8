"""Descriptions of observation and action spaces, and the flat list of leaves under each.

A spec is checked when it is made, so one that exists is well-formed: sizes bounded, keys sorted and
distinct, bounds of the declared type. It holds no values and samples nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from royale_client.wire.dtypes import CODES, DTYPES, Array
from royale_client.wire.errors import ConfigError, brief
from royale_client.wire.space_checks import (
    checked_bound,
    checked_choices,
    checked_dtype,
    checked_integer,
    checked_shape,
)

MAX_NESTING = 16
"""Dict and Tuple levels above a leaf."""
MAX_LEAVES = 256
"""Leaves of one space."""
MAX_CHOICE_PARTS = 4096
"""Entries of ``nvec``."""
MAX_KEY_LENGTH = 128
"""Characters of a Dict key."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxSpec:
    """Numbers between bounds, one bound pair per element."""

    low: Array
    """Smallest value of each element, in ``shape`` and ``dtype``; a read-only view."""
    high: Array
    """Largest value of each element, in ``shape`` and ``dtype``; a read-only view."""
    shape: tuple[int, ...]
    """Shape of one value."""
    dtype: str
    """NumPy name of the element type, such as ``float32``."""

    def __init__(
        self, low: ArrayLike, high: ArrayLike, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Take bounds that broadcast to ``shape`` and keep them without spending memory.

        Raises:
            ConfigError: A type that cannot travel, a shape too large, or senseless bounds.
        """
        kind = checked_dtype(dtype)
        dims = checked_shape("Box", shape, kind.itemsize)
        object.__setattr__(self, "shape", dims)
        object.__setattr__(self, "dtype", kind.name)
        object.__setattr__(self, "low", checked_bound("low", low, dims, kind))
        object.__setattr__(self, "high", checked_bound("high", high, dims, kind))
        if not np.all(scalar_or_all(self.low) <= scalar_or_all(self.high)):
            raise ConfigError(f"Box bounds: low {brief(low)} is not <= high {brief(high)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxSpec) and (
            self.shape == other.shape
            and self.dtype == other.dtype
            and np.array_equal(scalar_or_all(self.low), scalar_or_all(other.low))
            and np.array_equal(scalar_or_all(self.high), scalar_or_all(other.high))
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


@dataclass(frozen=True, slots=True)
class DiscreteSpec:
    """One integer out of ``start .. start + n - 1``; values travel with ``start`` included."""

    n: int
    """Number of values."""
    start: int = 0
    """Smallest value."""

    def __post_init__(self) -> None:
        """Refuse counts and starts that no int64 holds.

        Raises:
            ConfigError: ``n`` or ``start`` out of range.
        """
        object.__setattr__(self, "n", checked_choices("Discrete n", self.n))
        object.__setattr__(self, "start", checked_integer("Discrete start", self.start))
        if abs(self.start) > 2**62:
            raise ConfigError(f"Discrete start {self.start}: expected at most 2**62 in size")


@dataclass(frozen=True, slots=True)
class MultiDiscreteSpec:
    """A vector of independent choices, entry i out of ``0 .. nvec[i] - 1``."""

    nvec: tuple[int, ...]
    """Number of values of each entry."""

    def __post_init__(self) -> None:
        """Refuse an empty or oversized vector.

        Raises:
            ConfigError: Length or an entry out of range.
        """
        entries = tuple(checked_choices("MultiDiscrete nvec", n) for n in self.nvec)
        if not 1 <= len(entries) <= MAX_CHOICE_PARTS:
            raise ConfigError(
                f"MultiDiscrete nvec: got {len(entries)} entries, expected 1 to {MAX_CHOICE_PARTS}"
            )
        object.__setattr__(self, "nvec", entries)


@dataclass(frozen=True, slots=True)
class MultiBinarySpec:
    """An array of zeros and ones."""

    shape: tuple[int, ...]
    """Shape of one value."""

    def __post_init__(self) -> None:
        """Refuse shapes that fit no message.

        Raises:
            ConfigError: Too many dimensions or elements.
        """
        object.__setattr__(self, "shape", checked_shape("MultiBinary", self.shape, 1))


@dataclass(frozen=True, slots=True)
class TextSpec:
    """A text of bounded length; travels as code points padded with zeros."""

    max_length: int
    """Largest number of characters."""
    charset: str | None = None
    """The characters that may occur, sorted, each once; None for any."""

    def __post_init__(self) -> None:
        """Sort the charset and refuse a length that fits no message.

        Raises:
            ConfigError: Length out of range or a charset that is no text.
        """
        length = checked_integer("Text max_length", self.max_length)
        if not 1 <= length <= 2**20:
            raise ConfigError(f"Text max_length: got {length}, expected 1 to 2**20")
        object.__setattr__(self, "max_length", length)
        if self.charset is not None:
            if not isinstance(self.charset, str):
                raise ConfigError(f"Text charset: got {brief(self.charset)}, expected a text")
            object.__setattr__(self, "charset", "".join(sorted(set(self.charset))))


@dataclass(frozen=True, slots=True)
class DictSpec:
    """Named parts, ordered by key (by code point)."""

    items: tuple[tuple[str, SpaceSpec], ...]
    """Key and spec of each part, keys sorted."""

    def __post_init__(self) -> None:
        """Sort the keys and check the nest.

        Raises:
            ConfigError: No parts, a bad or repeated key, too deep or too many leaves.
        """
        keys = [key for key, _ in self.items]
        for key in keys:
            if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH:
                raise ConfigError(
                    f"Dict key {brief(key)}: expected a text of 1 to {MAX_KEY_LENGTH} characters"
                )
            if not key.isprintable():
                raise ConfigError(f"Dict key {brief(key)}: expected printable characters only")
        if len(set(keys)) != len(keys):
            raise ConfigError(f"Dict keys {brief(sorted(keys))}: a key occurs twice")
        object.__setattr__(self, "items", tuple(sorted(self.items, key=lambda item: item[0])))
        _check_nest("Dict", [spec for _, spec in self.items])


@dataclass(frozen=True, slots=True)
class TupleSpec:
    """Parts in order, without names."""

    items: tuple[SpaceSpec, ...]
    """Spec of each part."""

    def __post_init__(self) -> None:
        """Check the nest.

        Raises:
            ConfigError: No parts, too deep or too many leaves.
        """
        object.__setattr__(self, "items", tuple(self.items))
        _check_nest("Tuple", list(self.items))


LeafSpec: TypeAlias = BoxSpec | DiscreteSpec | MultiDiscreteSpec | MultiBinarySpec | TextSpec
SpaceSpec: TypeAlias = LeafSpec | DictSpec | TupleSpec


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a space, as it travels."""

    path: str
    """Keys and positions from the root joined by ``/``, as ``camera/left``; empty at the root.

    ``~`` and ``/`` inside a key are written ``~0`` and ``~1``, so that paths are distinct.
    """
    shape: tuple[int, ...]
    """Shape of one row."""
    dtype: np.dtype[Any]
    """Element type, little-endian."""
    spec: LeafSpec
    """What the values mean."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * self.dtype.itemsize


def leaves(spec: SpaceSpec) -> tuple[Leaf, ...]:
    """List the leaves of a space depth first, Dict keys sorted.

    Every batched value of the space is one array per leaf, in this order, rows first.
    """
    return tuple(_walk(spec, ""))


def mask_size(spec: SpaceSpec) -> int | None:
    """Count the entries of one row's action mask.

    Returns:
        ``n`` for Discrete, the sum of ``nvec`` for MultiDiscrete (entries of the first choice
        first), None for spaces that have no masks.
    """
    match spec:
        case DiscreteSpec(n=n):
            return n
        case MultiDiscreteSpec(nvec=nvec):
            return sum(nvec)
        case _:
            return None


def children(spec: SpaceSpec) -> tuple[tuple[str, SpaceSpec], ...]:
    """Return path segment and spec of each part of a Dict or Tuple; nothing for a leaf."""
    match spec:
        case DictSpec(items=parts):
            return tuple((key.replace("~", "~0").replace("/", "~1"), part) for key, part in parts)
        case TupleSpec(items=members):
            return tuple((str(index), part) for index, part in enumerate(members))
        case _:
            return ()


def scalar_or_all(bound: Array) -> Array:
    """Return one element if all are the same one in memory, else the bound itself."""
    if bound.size == 1 or (bound.size and not any(bound.strides)):
        return np.asarray(bound[(0,) * bound.ndim])
    return bound


def _walk(spec: SpaceSpec, path: str) -> list[Leaf]:
    parts = children(spec)
    if parts:
        prefix = f"{path}/" if path else ""
        return [leaf for name, part in parts for leaf in _walk(part, prefix + name)]
    return [_leaf(spec, path)]


def _leaf(spec: SpaceSpec, path: str) -> Leaf:
    match spec:
        case BoxSpec():
            return Leaf(path, spec.shape, DTYPES[CODES[np.dtype(spec.dtype)]], spec)
        case DiscreteSpec():
            return Leaf(path, (), DTYPES["i8"], spec)
        case MultiDiscreteSpec():
            return Leaf(path, (len(spec.nvec),), DTYPES["i8"], spec)
        case MultiBinarySpec():
            return Leaf(path, spec.shape, DTYPES["i1"], spec)
        case TextSpec():
            return Leaf(path, (spec.max_length,), DTYPES["u4"], spec)
    raise ConfigError(f"space {path or 'root'}: {type(spec).__name__} is no space description")


def _depth(spec: SpaceSpec) -> int:
    parts = children(spec)
    return 1 + max(_depth(part) for _, part in parts) if parts else 0


def _check_nest(kind: str, parts: list[SpaceSpec]) -> None:
    if not parts:
        raise ConfigError(f"{kind} space: it has no parts; leave it out of the space around it")
    depth = 1 + max(_depth(part) for part in parts)
    if depth > MAX_NESTING:
        raise ConfigError(f"{kind} space: nested {depth} deep, expected at most {MAX_NESTING}")
    count = sum(len(_walk(part, "")) for part in parts)
    if count > MAX_LEAVES:
        raise ConfigError(f"{kind} space: {count} leaves, expected at most {MAX_LEAVES}")
