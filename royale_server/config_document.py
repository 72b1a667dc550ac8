"""The resolved configuration as plain JSON data, and its digest.

Holds every default spelled out, so that a run can be read without the version that made it. Never
holds a secret: tokens are read from the environment or a file and are no part of the settings.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from royale_server.config import ServerConfig

JSON: TypeAlias = Any
"""What ``json.dumps`` takes."""

_NOT_RECORDED = frozenset({"dry_run"})


def to_document(config: ServerConfig) -> dict[str, Any]:
    """Return ``config`` as JSON-able data, fields in the order of their declaration."""
    document = _plain(config, "config")
    return {name: value for name, value in document.items() if name not in _NOT_RECORDED}


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document, independent of key order, as 64 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any, where: str) -> JSON:  # noqa: ANN401 - anything a setting can be
    """Convert a settings value; refuse what has no JSON form."""
    match value:
        case float() if not math.isfinite(value):
            return repr(value)
        case None | bool() | int() | float() | str():
            return value
        case enum.Enum():
            return _plain(value.value, where)
        case Path():
            return value.as_posix()
        case tuple() | list():
            return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case _ if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: _plain(getattr(value, name), f"{where}.{name}") for name in names}
    raise TypeError(f"{where}: a setting of type {type(value).__name__} has no JSON form")
