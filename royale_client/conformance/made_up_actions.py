"""Actions of a server without a policy: legal, and another one in every row, request and group."""

from __future__ import annotations

import numpy as np

from royale_client.wire.dtypes import Array
from royale_client.wire.spaces import (
    BoxSpec,
    DiscreteSpec,
    Leaf,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    leaves,
)
from royale_client.wire.turns import BoolArray


def made_up_actions(
    space: SpaceSpec, rows: Array, salt: int, masks: BoolArray | None
) -> tuple[Array, ...]:
    """Make up an action for each row.

    Args:
        space: Space of the actions.
        rows: Numbers of the rows that ask. Shape ``(m,)``.
        salt: A number of the request and its group.
        masks: Legal actions of these rows. Shape ``(m, k)``; None if all are.

    Returns:
        One array per leaf, in its exact type. Shape ``(m, *leaf)``.
    """
    if masks is not None:
        return (_masked(space, rows, salt, masks),)
    return tuple(_leaf(leaf, rows, salt) for leaf in leaves(space))


def _masked(space: SpaceSpec, rows: Array, salt: int, masks: BoolArray) -> Array:
    """Take one of the legal entries of each choice; only vectors of choices have several."""
    sizes = space.nvec if isinstance(space, MultiDiscreteSpec) else (masks.shape[1],)
    ends = np.cumsum(sizes)
    columns = [
        [
            _nth_legal(mask[end - size : end], 3 * row + salt)
            for end, size in zip(ends, sizes, strict=True)
        ]
        for row, mask in zip(rows.tolist(), masks, strict=True)
    ]
    chosen: Array = np.array(columns, np.int64).reshape(len(rows), len(sizes))
    return chosen[:, 0] + space.start if isinstance(space, DiscreteSpec) else chosen


def _nth_legal(mask: BoolArray, n: int) -> int:
    legal = np.flatnonzero(mask)
    return int(legal[n % len(legal)])


def _leaf(leaf: Leaf, rows: Array, salt: int) -> Array:
    size = int(np.prod(leaf.shape, dtype=np.int64))
    numbers: Array = (3 * rows[:, None] + salt + np.arange(size)).reshape(len(rows), *leaf.shape)
    values: Array = np.zeros((len(rows), *leaf.shape))
    match leaf.spec:
        case DiscreteSpec(n=n, start=start):
            values = numbers % n + start
        case MultiDiscreteSpec(nvec=nvec):
            values = numbers % np.array(nvec)
        case MultiBinarySpec():
            values = numbers % 2
        case BoxSpec(low=low, high=high):
            # Between -1 and 1 where the bounds allow it: some of them are infinite.
            bottom, top = np.maximum(low, -1.0), np.minimum(high, 1.0)
            inside = bottom + numbers % 4 / 4 * (top - bottom)
            values = np.where(bottom <= top, inside, np.where(high < -1.0, high, low))
    return values.astype(leaf.dtype)
