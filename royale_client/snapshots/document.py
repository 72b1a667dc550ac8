"""A snapshot with its identity: bytes that only environments of the same kind accept.

Also the part of it that every driver has, its last turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from royale_client.driver import Leaves, SnapshotError, Turn
from royale_client.snapshots.encoding import pack, unpack
from royale_client.wire.errors import brief
from royale_client.wire.spaces import SpaceSpec, leaves, to_data

FORMAT = 1
"""Changed whenever older snapshots can no longer be read."""

_TURN_FIELDS = (
    "asks",
    "observations",
    "masks",
    "rewards",
    "terminated",
    "truncated",
    "final_observations",
    "frames",
    "env_time_s",
)


def write_document(identity: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
    """Return a snapshot.

    Args:
        identity: What must be equal where it is restored; plain data, the names are shown.
        body: Everything else.

    Raises:
        SnapshotError: If something is not plain data.
    """
    return pack({"format": FORMAT, "identity": dict(identity), "body": dict(body)})


def read_document(data: bytes, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a snapshot of environments with the given identity.

    Raises:
        SnapshotError: If it is damaged, of another format, or of other environments; names what
            differs with both values.
    """
    document = unpack(data)
    if not isinstance(document, dict) or "format" not in document:
        raise SnapshotError("the bytes are no snapshot of environments")
    version = document["format"]
    if type(version) is not int or version != FORMAT:
        raise SnapshotError(f"snapshot of format {brief(version)}, expected {FORMAT}")
    saved, body = document.get("identity"), document.get("body")
    if not isinstance(saved, dict) or not isinstance(body, dict):
        raise SnapshotError("the snapshot has no identity or no body")
    differences = [
        f"{name} {brief(saved.get(name))}, expected {brief(identity.get(name))}"
        for name in sorted({*saved, *identity}, key=str)
        # Anything may stand in the snapshot, also what cannot be compared.
        if repr(saved.get(name)) != repr(identity.get(name))
    ]
    if differences:
        raise SnapshotError(f"snapshot of other environments: got {'; got '.join(differences)}")
    return body


def describe_space(space: SpaceSpec) -> str:
    """Return a short text that differs when the space does."""
    described = to_data(space)
    digest = hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=6)
    return f"{brief(described)} #{digest.hexdigest()}"


def turn_to_plain(turn: Turn) -> dict[str, Any]:
    """Return a turn as plain data, without its episode records: those were reported."""
    return {name: getattr(turn, name) for name in _TURN_FIELDS}


def turn_from_plain(state: Mapping[str, Any], num_slots: int, space: SpaceSpec) -> Turn:
    """Return the turn that `turn_to_plain` described.

    Args:
        state: What it returned.
        num_slots: Slots of the group.
        space: Space of one slot's observation.

    Raises:
        SnapshotError: If it is not a turn of such a group.
    """
    try:
        turn = Turn(**{name: state[name] for name in _TURN_FIELDS})
        asks = num_slots if turn.asks is None else int(np.count_nonzero(turn.asks))
        check_leaves(turn.observations, asks, space)
        columns = (turn.asks, turn.rewards, turn.terminated, turn.truncated)
        fits = all(column is None or column.shape == (num_slots,) for column in columns)
    except (KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"the snapshot holds no turn: {error!r}") from error
    if not fits:
        raise SnapshotError(f"the snapshot holds no turn of {num_slots} slots")
    return turn


def check_like(
    what: str, arrays: Sequence[np.ndarray[Any, Any]], mine: Sequence[np.ndarray[Any, Any]]
) -> None:
    """Refuse arrays that cannot stand in for others.

    Raises:
        SnapshotError: If number, shape or dtype differs.
    """
    expected = [(array.shape, array.dtype) for array in mine]
    got = [(array.shape, array.dtype) for array in arrays]
    if got != expected:
        raise SnapshotError(f"the snapshot holds {what} {got}, expected {expected}")


def check_leaves(arrays: Leaves, rows: int, space: SpaceSpec) -> None:
    """Refuse observations that are not ``rows`` values of a space.

    Raises:
        SnapshotError: If number, shape or dtype of the arrays differs.
    """
    expected = [((rows, *leaf.shape), leaf.dtype) for leaf in leaves(space)]
    got = [(array.shape, array.dtype) for array in arrays]
    if got != expected:
        raise SnapshotError(f"the snapshot holds observations {got}, expected {expected}")
