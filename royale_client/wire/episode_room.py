"""Makes episode records fit the header of the step that brings them.

Hundreds of environments may end in one step, and a header is small on purpose. What does not fit
is left out evenly: of every record the metrics declared first stay. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack


def record_room(max_header_bytes: int) -> int:
    """Return how many bytes of a header records may take; the rest is for everything else."""
    return max_header_bytes * 15 // 16


def fitted(records: Sequence[dict[str, Any]], room: int) -> tuple[tuple[dict[str, Any], ...], int]:
    """Leave out of records what is too much together.

    Args:
        records: Clean records, their metrics in the order of their declaration.
        room: Bytes that all may take.

    Returns:
        The records, and how many metrics were left out.
    """
    if not records or _size(records) <= room:
        return tuple(records), 0
    share = room // len(records)
    kept = tuple(_within(record, share) for record in records)
    left_out = sum(
        len(old["metrics"]) - len(new["metrics"]) for old, new in zip(records, kept, strict=True)
    )
    return kept, left_out


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
