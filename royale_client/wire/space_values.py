"""Values of a space: nested values to one array per leaf, and back.

Values are cast once, to the type their space declares, and refused where that would change them.
Rows of numbers are never touched one by one; only texts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from royale_client.wire.dtypes import Array
from royale_client.wire.errors import ContractError, brief
from royale_client.wire.space_specs import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    Leaf,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    leaves,
)

LAST_CODE_POINT = 0x10FFFF
"""Largest Unicode code point."""

Nested: TypeAlias = Any
"""A value shaped like a space: dicts and tuples, with what an environment uses at the leaves."""
Bound: TypeAlias = int | Array
"""The end of a range: one number, or one per element of a leaf."""
Convert: TypeAlias = Callable[[Leaf, Array], Nested]


def flatten_batch(spec: SpaceSpec, value: Nested) -> tuple[Array, ...]:
    """Turn a nested batch into one array per leaf.

    Args:
        spec: The space of one row.
        value: Dicts and tuples shaped like the space, arrays of shape ``(n, …)`` at its leaves;
            a Text leaf may also be a sequence of ``n`` texts.

    Returns:
        Arrays of shape ``(n, *leaf.shape)`` in the leaves' dtypes; the input's memory where its
        type already fits.

    Raises:
        ContractError: A part is missing, or a leaf has another shape or a value its type cannot
            hold; names the leaf.
    """
    found = tuple(_batch_leaf(leaf, part) for leaf, part in _pick(spec, value))
    if len({array.shape[0] for array in found}) > 1:
        raise ContractError(
            "the leaves have different numbers of rows",
            where="batch",
            got=brief([array.shape[0] for array in found]),
            expected="one number of rows",
        )
    return found


def unflatten_batch(spec: SpaceSpec, arrays: Sequence[Array]) -> Nested:
    """Turn one array per leaf back into a nested batch.

    Returns:
        Dicts and tuples shaped like the space, with the arrays themselves (read-only if they are
        views of a message; copy before writing) at the leaves and tuples of texts for Text.
    """
    return _nest(spec, iter(zip(leaves(spec), arrays, strict=True)), _text_rows)


def flatten_one(spec: SpaceSpec, value: Nested) -> tuple[Array, ...]:
    """Turn one nested value into one array of shape ``leaf.shape`` per leaf.

    Raises:
        ContractError: As ``flatten_batch``.
    """
    return tuple(_one_leaf(leaf, part) for leaf, part in _pick(spec, value))


def unflatten_one(spec: SpaceSpec, arrays: Sequence[Array]) -> Nested:
    """Turn one array per leaf into one nested value, as an environment expects it.

    Returns:
        Writable copies at array leaves, a NumPy scalar for Discrete, a ``str`` for Text.

    Raises:
        ContractError: A Text leaf holds what is no code point.
    """
    return _nest(spec, iter(zip(leaves(spec), arrays, strict=True)), _environment_value)


def value_ranges(leaf: Leaf) -> tuple[Bound, Bound] | None:
    """Return the smallest and largest legal value of a leaf that counts or chooses.

    Returns:
        Two numbers or arrays that broadcast over rows; None for Box, whose bounds describe an
        environment's usual values and are not enforced on observations.
    """
    match leaf.spec:
        case DiscreteSpec(n=n, start=start):
            return start, start + n - 1
        case MultiDiscreteSpec(nvec=nvec):
            return 0, np.array(nvec, dtype=np.int64) - 1
        case MultiBinarySpec():
            return 0, 1
        case TextSpec():
            return 0, LAST_CODE_POINT
        case BoxSpec():
            return None


def _pick(spec: SpaceSpec, value: Nested) -> list[tuple[Leaf, Nested]]:
    found: list[Nested] = []
    _collect(spec, value, "", found)
    return list(zip(leaves(spec), found, strict=True))


def _collect(spec: SpaceSpec, value: Nested, path: str, found: list[Nested]) -> None:
    prefix = f"{path}/" if path else ""
    match spec:
        case DictSpec(items=parts):
            if not isinstance(value, Mapping) or any(key not in value for key, _ in parts):
                raise _mismatch(path, brief(value), f"a map with keys {[k for k, _ in parts]}")
            for key, part in parts:
                _collect(part, value[key], prefix + key, found)
        case TupleSpec(items=members):
            if not isinstance(value, Sequence) or len(value) != len(members):
                raise _mismatch(path, brief(value), f"a sequence of {len(members)} parts")
            for index, part in enumerate(members):
                _collect(part, value[index], f"{prefix}{index}", found)
        case _:
            found.append(value)


def _nest(spec: SpaceSpec, pairs: Iterator[tuple[Leaf, Array]], convert: Convert) -> Nested:
    match spec:
        case DictSpec(items=parts):
            return {key: _nest(part, pairs, convert) for key, part in parts}
        case TupleSpec(items=members):
            return tuple(_nest(part, pairs, convert) for part in members)
        case _:
            return convert(*next(pairs))


def _batch_leaf(leaf: Leaf, value: Nested) -> Array:
    if isinstance(leaf.spec, TextSpec) and not isinstance(value, np.ndarray):
        rows = [_code_points(leaf, text) for text in value]
        return np.array(rows, dtype=leaf.dtype).reshape(len(rows), *leaf.shape)
    array = _cast(leaf, value)
    if array.ndim == 0 or array.shape[1:] != leaf.shape:
        raise _mismatch(leaf.path, f"shape {array.shape}", f"shape (rows, *{leaf.shape})")
    return array


def _one_leaf(leaf: Leaf, value: Nested) -> Array:
    if isinstance(leaf.spec, TextSpec) and isinstance(value, str):
        return _code_points(leaf, value)
    array = _cast(leaf, value)
    if array.shape != leaf.shape:
        raise _mismatch(leaf.path, f"shape {array.shape}", f"shape {leaf.shape}")
    return array


def _cast(leaf: Leaf, value: Nested) -> Array:
    """Cast to the leaf's type: floats may be rounded, integers must keep their values."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _mismatch(leaf.path, brief(value), f"an array of {leaf.dtype.name}") from error
    if array.dtype == leaf.dtype:
        return array
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and leaf.dtype.kind != "f"):
        raise _mismatch(leaf.path, f"dtype {array.dtype}", f"dtype {leaf.dtype.name}")
    with np.errstate(over="ignore"):
        cast = array.astype(leaf.dtype)
    if leaf.dtype.kind != "f" and not np.array_equal(cast, array):
        raise _mismatch(leaf.path, f"values of {array.dtype}", f"values that fit {leaf.dtype.name}")
    return cast


def _code_points(leaf: Leaf, text: object) -> Array:
    room = leaf.shape[0]
    if not isinstance(text, str) or len(text) > room:
        raise _mismatch(leaf.path, brief(text), f"a text of at most {room} characters")
    row = np.zeros(room, dtype=leaf.dtype)
    row[: len(text)] = [ord(character) for character in text]
    return row


def _text_rows(leaf: Leaf, array: Array) -> Nested:
    return tuple(_text(leaf, row) for row in array) if isinstance(leaf.spec, TextSpec) else array


def _environment_value(leaf: Leaf, array: Array) -> Nested:
    if isinstance(leaf.spec, TextSpec):
        return _text(leaf, array)
    return array[()] if isinstance(leaf.spec, DiscreteSpec) else np.array(array)


def _text(leaf: Leaf, row: Array) -> str:
    if row.size and row.max() > LAST_CODE_POINT:
        raise _mismatch(leaf.path, f"code point {int(row.max())}", f"at most {LAST_CODE_POINT}")
    return "".join(map(chr, row.tolist())).rstrip("\0")


def _mismatch(path: str, got: str, expected: str) -> ContractError:
    return ContractError(
        "a value does not fit its space",
        where=f"leaf {path or '(root)'}",
        got=got,
        expected=expected,
        remedy="correct the space the environment declares, or what it returns",
    )
