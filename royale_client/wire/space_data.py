"""Spaces as plain maps: what a ``hello`` carries and what a checkpoint keeps as JSON.

Without an array table the result is plain JSON, infinities written as text. With one, bounds that
are not uniform leave the map and travel as arrays. Nothing here trusts the map it reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from royale_client.wire.dtypes import CODES, DTYPES, Array
from royale_client.wire.errors import ConfigError, MessageDecodeError, ProtocolError, brief
from royale_client.wire.space_specs import (
    MAX_LEAVES,
    MAX_NESTING,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    scalar_or_all,
)

Bound: TypeAlias = float | str | list[float | str] | dict[str, str]
"""A bound as data: one number, one per element, or the name of an array."""


def to_data(spec: SpaceSpec, arrays: dict[str, Array] | None = None) -> dict[str, Any]:
    """Describe a space as a map of texts, numbers, lists and maps.

    Args:
        spec: The space.
        arrays: Table that receives bounds that are not uniform, under new names ``b0``, ``b1``, …;
            None to keep them in the map as lists in C order.
    """
    match spec:
        case DictSpec():
            return {"kind": "dict", "items": {key: to_data(s, arrays) for key, s in spec.items}}
        case TupleSpec():
            return {"kind": "tuple", "items": [to_data(s, arrays) for s in spec.items]}
        case _:
            return _leaf_to_data(spec, arrays)


def from_data(data: object, arrays: Mapping[str, Array] | None = None) -> SpaceSpec:
    """Read a space description.

    Args:
        data: What ``to_data`` made, or what a peer claims it made.
        arrays: The arrays that came with it.

    Raises:
        MessageDecodeError: It describes no space; names the path and the field.
    """
    _check_leaf_count(data)
    return _read(data, arrays or {}, "", MAX_NESTING)


def _leaf_to_data(spec: LeafSpec, arrays: dict[str, Array] | None) -> dict[str, Any]:
    match spec:
        case BoxSpec():
            return {
                "kind": "box",
                "dtype": CODES[np.dtype(spec.dtype).newbyteorder("<")],
                "shape": list(spec.shape),
                "low": _bound_to_data(spec.low, arrays),
                "high": _bound_to_data(spec.high, arrays),
            }
        case DiscreteSpec():
            return {"kind": "discrete", "n": spec.n, "start": spec.start}
        case MultiDiscreteSpec():
            return {"kind": "multi_discrete", "nvec": list(spec.nvec)}
        case MultiBinarySpec():
            return {"kind": "multi_binary", "shape": list(spec.shape)}
        case TextSpec():
            return {"kind": "text", "max_length": spec.max_length, "charset": spec.charset}


def _check_leaf_count(data: object) -> None:
    """Refuse a flood of leaves before any of them is looked at."""
    count = 0
    waiting = [data]
    while waiting:
        node = waiting.pop()
        items = node.get("items") if type(node) is dict else None
        if type(items) is dict or type(items) is list:
            waiting.extend(items.values() if type(items) is dict else items)
        else:
            count += 1
        if count > MAX_LEAVES:
            raise _nonsense("", "it has too many leaves", f"at most {MAX_LEAVES}")


def _read(data: object, arrays: Mapping[str, Array], path: str, levels: int) -> SpaceSpec:
    if type(data) is not dict:
        raise _nonsense(path, f"it is {brief(data)}", "a map with a kind")
    kind = data.get("kind")
    if kind in ("dict", "tuple"):
        if levels == 0:
            raise _nonsense(path, "it is nested too deep", f"at most {MAX_NESTING} levels")
        return _read_nest(kind, data.get("items"), arrays, path, levels - 1)
    try:
        return _read_leaf(kind, data, arrays, path)
    except ConfigError as error:
        raise _nonsense(path, str(error), "a space that can exist") from error


def _read_nest(
    kind: str, items: object, arrays: Mapping[str, Array], path: str, levels: int
) -> SpaceSpec:
    prefix = f"{path}/" if path else ""
    try:
        if kind == "dict" and type(items) is dict:
            parts = [(k, _read(v, arrays, f"{prefix}{k}", levels)) for k, v in items.items()]
            return DictSpec(tuple(parts))
        if kind == "tuple" and type(items) is list:
            members = [_read(v, arrays, f"{prefix}{i}", levels) for i, v in enumerate(items)]
            return TupleSpec(tuple(members))
    except ConfigError as error:
        raise _nonsense(path, str(error), "a space that can exist") from error
    raise _nonsense(path, f"items of a {kind} is {brief(items)}", "a map (dict) or a list (tuple)")


def _read_leaf(
    kind: object, data: dict[str, Any], arrays: Mapping[str, Array], path: str
) -> SpaceSpec:
    match kind:
        case "box":
            return _read_box(data, arrays, path)
        case "discrete":
            return DiscreteSpec(data.get("n", 0), data.get("start", 0))
        case "multi_discrete":
            return MultiDiscreteSpec(tuple(_integers(data, "nvec", path)))
        case "multi_binary":
            return MultiBinarySpec(tuple(_integers(data, "shape", path)))
        case "text":
            return TextSpec(data.get("max_length", 0), data.get("charset"))
        case _:
            raise _nonsense(
                path,
                f"its kind is {brief(kind)}",
                "box, discrete, multi_discrete, multi_binary, text, dict or tuple",
            )


def _read_box(data: dict[str, Any], arrays: Mapping[str, Array], path: str) -> BoxSpec:
    code = data.get("dtype")
    if type(code) is not str or code not in DTYPES:
        raise _nonsense(path, f"its dtype is {brief(code)}", f"one of {', '.join(DTYPES)}")
    shape = tuple(_integers(data, "shape", path))
    low, high = (_bound_from_data(data.get(side), shape, arrays, path) for side in ("low", "high"))
    return BoxSpec(low, high, shape, DTYPES[code])


def _integers(data: dict[str, Any], key: str, path: str) -> list[int]:
    values = data.get(key)
    if type(values) is not list or any(type(value) is not int for value in values):
        raise _nonsense(path, f"its {key} is {brief(values)}", "a list of integers")
    return values


def _bound_to_data(bound: Array, arrays: dict[str, Array] | None) -> Bound:
    one = scalar_or_all(bound)
    if one.ndim == 0:
        return _number_to_data(one.item())
    if arrays is None:
        return [_number_to_data(value) for value in bound.ravel().tolist()]
    name = f"b{len(arrays)}"
    arrays[name] = bound
    return {"array": name}


def _number_to_data(value: float) -> float | str:
    """Write a number as JSON can: infinities as text."""
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else value


def _bound_from_data(
    data: object, shape: tuple[int, ...], arrays: Mapping[str, Array], path: str
) -> ArrayLike:
    if type(data) is dict:
        name = data.get("array")
        if type(name) is not str or name not in arrays:
            raise _nonsense(path, f"a bound is {brief(data)}", "the name of an array that came")
        return arrays[name]
    if type(data) is not list:
        return _number_from_data(data, path)
    if len(data) != math.prod(shape):
        raise _nonsense(path, f"a bound has {len(data)} numbers", f"as many as shape {shape} holds")
    try:
        return np.array([_number_from_data(item, path) for item in data]).reshape(shape)
    except OverflowError as error:
        raise _nonsense(path, "a bound holds an integer beyond 64 bits", "numbers") from error


def _number_from_data(data: object, path: str) -> float:
    if data in ("inf", "-inf"):
        return math.copysign(math.inf, -1 if data == "-inf" else 1)
    if isinstance(data, int | float):
        return data
    raise _nonsense(path, f"a bound is {brief(data)}", "a number, 'inf' or '-inf'")


def _nonsense(path: str, what: str, expected: str) -> ProtocolError:
    return MessageDecodeError(
        f"this is no space description: {what}",
        where=f"space {path or '(root)'}",
        expected=expected,
        remedy="describe the space as the protocol document says",
    )
