"""Makes episode records fit the header of the step that brings them.

Hundreds of environments may end in one step, and a header is small on purpose. What does not fit
is left out evenly: of every record the metrics declared first stay. Where thousands end, and not
even their returns fit, the records of the first rows stay. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

_LIST_BYTES = 5
"""That a list takes beside its entries, at most."""


def record_room(max_header_bytes: int) -> int:
    """Return how many bytes of a header records may take; the rest is for everything else."""
    return max_header_bytes * 15 // 16


def fitted(records: Sequence[dict[str, Any]], room: int) -> tuple[tuple[dict[str, Any], ...], int]:
    """Leave out of records what is too much together.

    Args:
        records: Clean records, their metrics in the order of their declaration.
        room: Bytes that all may take.

    Returns:
        The records, of which the last may be missing, and how many metrics of them were left out.
    """
    if not records or _size(records) <= room:
        return tuple(records), 0
    share = room // len(records)
    kept = _first([_within(record, share) for record in records], room)
    left_out = sum(
        len(old["metrics"]) - len(new["metrics"]) for old, new in zip(records, kept, strict=False)
    )
    return kept, left_out


def _first(records: Sequence[dict[str, Any]], room: int) -> tuple[dict[str, Any], ...]:
    """Return as many of the records as fit, from the first on."""
    left = room - _LIST_BYTES
    for count, record in enumerate(records):
        left -= _size(record)
        if left < 0:
            return tuple(records[:count])
    return tuple(records)


def _within(record: dict[str, Any], room: int) -> dict[str, Any]:
    """Return a record with as many of its first metrics as fit."""
    bare = {**record, "metrics": {}}
    left = room - _size(bare)
    for name, value in record["metrics"].items():
        left -= _size(name) + _size(value)
        if left < 0:
            break
        bare["metrics"][name] = value
    return bare


def _size(value: object) -> int:
    return len(msgpack.packb(value))
