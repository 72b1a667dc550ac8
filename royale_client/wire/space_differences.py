"""Say in words how one space differs from another. Compares descriptions, never values."""

from __future__ import annotations

from typing import Any

import numpy as np

from royale_client.wire.dtypes import Array
from royale_client.wire.errors import brief
from royale_client.wire.space_specs import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    children,
    scalar_or_all,
)

FLOAT32_ROUNDING = 2.0**-23
"""Largest relative distance between neighbouring float32 numbers."""


def differences(expected: SpaceSpec, got: SpaceSpec) -> list[str]:
    """List how ``got`` differs from ``expected``, one readable line per field.

    Float bounds are equal when they differ by no more than float32 rounding.

    Returns:
        Lines such as ``camera/left: shape is (84, 84), expected (96, 96)``; empty if equal.
    """
    return _compare(expected, got, "")


def _compare(expected: SpaceSpec, got: SpaceSpec, path: str) -> list[str]:
    if type(expected) is not type(got):
        return [_line(path, "kind", _kind(expected), _kind(got))]
    if isinstance(expected, BoxSpec) and isinstance(got, BoxSpec):
        return _compare_boxes(expected, got, path)
    if isinstance(expected, DictSpec | TupleSpec):
        return _compare_parts(dict(children(expected)), dict(children(got)), path)
    return [
        _line(path, field, wanted, given)
        for field, wanted in _fields(expected).items()
        if (given := _fields(got)[field]) != wanted
    ]


def _compare_parts(
    expected: dict[str, SpaceSpec], got: dict[str, SpaceSpec], path: str
) -> list[str]:
    prefix = f"{path}/" if path else ""
    found = [
        f"{prefix}{name}: missing, expected {_kind(expected[name])}"
        for name in expected
        if name not in got
    ]
    found += [
        f"{prefix}{name}: not expected, is {_kind(got[name])}"
        for name in got
        if name not in expected
    ]
    for name, wanted in expected.items():
        if name in got:
            found += _compare(wanted, got[name], prefix + name)
    return found


def _compare_boxes(expected: BoxSpec, got: BoxSpec, path: str) -> list[str]:
    found = [
        _line(path, field, wanted, given)
        for field, wanted, given in (
            ("shape", expected.shape, got.shape),
            ("dtype", expected.dtype, got.dtype),
        )
        if wanted != given
    ]
    if expected.shape == got.shape:
        for side in ("low", "high"):
            found += _compare_bounds(path, side, getattr(expected, side), getattr(got, side))
    return found


def _compare_bounds(path: str, side: str, expected: Array, got: Array) -> list[str]:
    wanted, given = np.broadcast_arrays(scalar_or_all(expected), scalar_or_all(got))
    differs = ~_nearly_equal(wanted, given)
    if not differs.any():
        return []
    if differs.ndim == 0:
        return [_line(path, side, wanted.item(), given.item())]
    first = tuple(int(index) for index in np.argwhere(differs)[0])
    line = _line(path, f"{side}{list(first)}", wanted[first].item(), given[first].item())
    more = int(differs.sum()) - 1
    return [f"{line} (and {more} more)" if more else line]


def _nearly_equal(wanted: Array, given: Array) -> Array:
    equal = np.asarray(wanted == given)
    if wanted.dtype.kind == "f" and given.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.maximum(np.abs(wanted, dtype="f8"), np.abs(given, dtype="f8"))
            near = np.abs(np.subtract(wanted, given, dtype="f8")) <= FLOAT32_ROUNDING * size
        equal = equal | (near & np.isfinite(size))
    return equal


def _fields(spec: SpaceSpec) -> dict[str, Any]:
    match spec:
        case DiscreteSpec():
            return {"n": spec.n, "start": spec.start}
        case MultiDiscreteSpec():
            return {"nvec": spec.nvec}
        case MultiBinarySpec():
            return {"shape": spec.shape}
        case TextSpec():
            return {"max_length": spec.max_length, "charset": spec.charset}
        case _:
            return {}


def _kind(spec: SpaceSpec) -> str:
    return type(spec).__name__.removesuffix("Spec")


def _line(path: str, field: str, expected: object, got: object) -> str:
    return f"{path or '(root)'}: {field} is {brief(got)}, expected {brief(expected)}"
