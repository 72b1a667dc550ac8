"""Sequences assembled at learn time: which stored frame follows which, and what it leads to.

Frames are addressed by (slot, ordinal), never by position, so ragged slots, holes and reused
cells are ordinary. Nothing here knows how the frames were collected, and nothing is per frame in
Python. Letters: M frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.storage import BoolArray, FloatArray, IntArray, RolloutStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Complete frames in the order of (slot, ordinal), with what is read of them at learn time."""

    cells: IntArray
    """Cell of each frame. Shape ``(M,)``."""

    slots: IntArray
    """Slot of each frame, ascending. Shape ``(M,)``."""

    ordinals: IntArray
    """Number of each frame within its slot, ascending within a slot. Shape ``(M,)``."""

    rewards: FloatArray
    """Reward of each frame, environment units. Shape ``(M,)``."""

    terminated: BoolArray
    """The episode ended for good at this frame. Shape ``(M,)``."""

    truncated: BoolArray
    """The episode was cut off at this frame. Shape ``(M,)``."""

    has_successor: BoolArray
    """The next row is the frame that followed, in the same episode. Shape ``(M,)``."""

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Successors:
    """What each frame of some sequences leads to."""

    values: FloatArray
    """``V(s_{t+1})``; 0 after a termination and in rows that are not usable. Shape ``(M,)``."""

    usable: BoolArray
    """Rows that may be trained on: reward, value and next value are known. Shape ``(M,)``."""

    continues: BoolArray
    """The next row is the successor and its advantage may flow into this one. Shape ``(M,)``."""


def order_frames(storage: RolloutStorage, cells: IntArray) -> Sequences:
    """Put complete frames into the order in which each slot lived through them.

    Args:
        storage: Where the frames lie.
        cells: Cells of complete frames in any order. Shape ``(M,)``.

    Returns:
        The same frames, slot by slot.

    Raises:
        ValueError: If a cell holds no frame or a frame appears twice.
    """
    slots, ordinals = storage.slots[cells], storage.ordinals[cells]
    order = np.lexsort((ordinals, slots))
    cells, slots, ordinals = cells[order], slots[order], ordinals[order]
    if len(cells) and slots[0] < 0:
        raise ValueError(f"order_frames: cell {cells[0]} holds no frame (its slot is {slots[0]})")
    terminated, truncated = storage.terminated[cells], storage.truncated[cells]

    same_slot = slots[1:] == slots[:-1]
    distance = ordinals[1:] - ordinals[:-1]
    _refuse_twins(cells, slots, ordinals, same_slot & (distance == 0))
    has_successor = np.zeros(len(cells), np.bool_)
    has_successor[:-1] = same_slot & (distance == 1) & ~(terminated | truncated)[:-1]
    return Sequences(
        cells=cells,
        slots=slots,
        ordinals=ordinals,
        rewards=storage.rewards[cells],
        terminated=terminated,
        truncated=truncated,
        has_successor=has_successor,
    )


def _refuse_twins(cells: IntArray, slots: IntArray, ordinals: IntArray, twins: BoolArray) -> None:
    if twins.any():
        i = int(twins.argmax())
        raise ValueError(
            f"order_frames: frame {ordinals[i]} of slot {slots[i]} lies in two cells, "
            f"{cells[i]} and {cells[i + 1]}; a frame may be stored once"
        )


def next_values(
    storage: RolloutStorage, sequences: Sequences, values: npt.NDArray[np.floating[Any]]
) -> Successors:
    """Find the value of what follows each frame.

    After a termination nothing follows, also where the episode was cut off at the same frame.
    After a truncation the true final observation follows. Otherwise the frame's successor does,
    where it is among the sequences, and else the observation whose value was recorded as the
    frame's bootstrap. A frame for which none of these is known is not usable; neither is one with
    a reward or value that is not finite. No advantage flows out of a frame that is not usable,
    while its value still serves the frame before it.

    Args:
        storage: Where the bootstrap values lie.
        sequences: Frames in order.
        values: ``V(s_t)`` of each frame in that order. Shape ``(M,)``.

    Returns:
        Next values and where they may be used.

    Raises:
        ValueError: If ``values`` is not of shape ``(M,)``.

    Source:
        Pardo et al. 2018, arXiv:1712.00378, for time limits.
    """
    if values.shape != sequences.cells.shape:
        raise ValueError(f"next_values: values must be {sequences.cells.shape}, got {values.shape}")
    following = storage.bootstrap[sequences.cells].astype(np.float64)
    before = np.flatnonzero(sequences.has_successor)
    following[before] = values[before + 1]
    following[sequences.terminated] = 0.0

    usable = np.isfinite(following) & np.isfinite(values) & np.isfinite(sequences.rewards)
    following[~usable] = 0.0
    continues = sequences.has_successor.copy()
    continues[:-1] &= usable[:-1] & usable[1:]
    return Successors(values=following, usable=usable, continues=continues)


def discounted_sums(terms: FloatArray, carry: FloatArray) -> FloatArray:
    """Solve ``y[i] = terms[i] + carry[i] * y[i + 1]`` for all rows at once.

    The recursion is evaluated by doubling: after pass p, row i holds the sum over the first 2**p
    rows from i on, and ``carry[i]`` the factor with which the rows behind those enter. One slot
    with thousands of frames costs a dozen passes, and rows separated by a carry of 0 leave each
    other alone to the last bit.

    Args:
        terms: Finite. Shape ``(M,)``.
        carry: Share of the next row that flows into this one; 0 in the last row. Shape ``(M,)``.

    Returns:
        y, float64. Shape ``(M,)``.

    Raises:
        ValueError: If the last row carries something in from beyond the end.

    Source:
        The scan of Hillis and Steele 1986, doi:10.1145/7902.7903.
    """
    if len(carry) and carry[-1] != 0.0:
        raise ValueError(f"discounted_sums: nothing follows the last row, it carries {carry[-1]}")
    sums, factors = terms.astype(np.float64), carry.astype(np.float64)
    reach = 1
    while factors.any():
        sums[:-reach] += factors[:-reach] * sums[reach:]
        factors[:-reach] *= factors[reach:]
        reach *= 2
    return sums
