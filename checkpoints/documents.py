"""Plain data as strict JSON text and back, with the same types and the same values.

JSON has no tuple, no NaN and no keys but text. Those are written as an object with one tagged key
(``$tuple``, ``$float``, ``$map``), so every other JSON reader still understands the file. Never
writes NaN or Infinity literals, never executes or constructs anything on reading.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeAlias

import numpy as np

_TUPLE, _FLOAT, _MAP = "$tuple", "$float", "$map"
_MAX_DEPTH = 64

Document: TypeAlias = Any
"""Plain data: whatever ``encode`` takes."""


class DocumentError(ValueError):
    """Text that is not a document, or data that has no JSON form; the message names the place."""


def encode(document: Document, *, readable: bool = False) -> bytes:
    """Write ``document`` as JSON text.

    Args:
        document: ``None``, bool, int, float, str, list, tuple, dict with any of these as keys,
            nested; NumPy scalars count as the Python number they hold, dict subclasses as dicts.
        readable: One value a line; several times slower.

    Returns:
        ASCII bytes, one trailing newline.

    Raises:
        DocumentError: If something else is inside; names its place and type.
    """
    tagged = _tagged(document, "document", 0)
    text = json.dumps(tagged, ensure_ascii=True, allow_nan=False, indent=1 if readable else None)
    return text.encode("ascii") + b"\n"


def decode(data: bytes) -> Document:
    """Read what ``encode`` wrote.

    Args:
        data: Bytes of the file.

    Returns:
        The document, with the types it had.

    Raises:
        DocumentError: If the bytes are not strict JSON or hold an unknown tag.
    """
    try:
        value = json.loads(
            data.decode("ascii"), parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"is not JSON text: {error}") from error
    return _untagged(value, 0)


def _tagged(value: Document, where: str, depth: int) -> Document:
    """Replace what JSON lacks by tagged objects."""
    if depth > _MAX_DEPTH:
        raise DocumentError(f"{where}: nested deeper than {_MAX_DEPTH}; flatten it")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if type(value) is list:
        return [_tagged(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {_TUPLE: [_tagged(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return _tagged_dict(value, where, depth)
    raise DocumentError(
        f"{where}: a {type(value).__name__} has no JSON form; expected plain numbers, text, lists, "
        "tuples and dicts (arrays belong into a tensor file)"
    )


def _tagged_dict(value: dict[Any, Any], where: str, depth: int) -> Document:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {k: _tagged(item, f"{where}.{k}", depth + 1) for k, item in value.items()}
    return {
        _MAP: [
            [
                _tagged(k, f"key {k!r} of {where}", depth + 1),
                _tagged(v, f"{where}[{k!r}]", depth + 1),
            ]
            for k, v in value.items()
        ]
    }


def _untagged(value: Document, depth: int) -> Document:
    """Undo ``_tagged``."""
    if depth > 3 * _MAX_DEPTH:
        raise DocumentError("is nested too deeply")
    if isinstance(value, list):
        return [_untagged(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: _untagged(item, depth + 1) for key, item in value.items()}
    try:
        return _from_tag(value, depth)
    except (TypeError, ValueError) as error:
        raise DocumentError(f"has a malformed tag {sorted(value)}: {error}") from error


def _from_tag(value: dict[str, Any], depth: int) -> Document:
    ((tag, body),) = value.items()
    if tag == _TUPLE and isinstance(body, list):
        return tuple(_untagged(item, depth + 1) for item in body)
    if tag == _FLOAT and body in ("nan", "inf", "-inf"):
        return float(body)
    if tag == _MAP and isinstance(body, list):
        return {_untagged(k, depth + 1): _untagged(v, depth + 1) for k, v in body}
    raise ValueError("unknown")


def _refuse_constant(name: str) -> NoReturn:
    raise DocumentError(f"holds the literal {name}, which is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise DocumentError("holds one key twice")
    return result
