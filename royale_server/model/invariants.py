"""What must hold of a batch before it is learnt from. Broken means: somewhere is a defect.

Array operations over all frames at once, a fixed number of them. Nothing here is repaired or left
out: a batch that breaks an invariant is not learnt from at all. Reads storage, writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.storage import IntArray, RolloutStorage, contiguous
from royale_client.wire.errors import RoyaleError
from royale_client.wire.spaces import DiscreteSpec, MultiDiscreteSpec, SpaceSpec

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

ACTION, LOG_PROB, VALUE = "action", "log_prob", "value"
"""Entries of the step state that are looked at, where a policy stores them."""


class BrokenBatchError(RoyaleError):
    """A batch breaks an invariant; its text names which, where, what was found and expected.

    Args:
        invariant: Its name.
        sentence: What, where, got, expected.
    """

    def __init__(self, invariant: str, sentence: str) -> None:
        super().__init__(
            f"the batch is not learnt from: {sentence} ({invariant}). No setting does this: it is "
            "a defect of the server, of a policy or of an algorithm; report it with the run "
            "directory, and resume from the newest checkpoint"
        )
        self.invariant = invariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the batch was to be."""

    version: int
    """Policy version that collected it."""
    at_least: int | None
    """Frames that the learner wanted; None where it takes what there is (off-policy)."""
    num_slots: int
    """Slots there have been in this attempt."""
    may_have_gaps: bool
    """Whether frames were given up, or clients came or went: only then a slot's frame numbers may
    leave one out."""
    may_be_nonfinite: bool = False
    """Whether what clients send is passed on as it is (``--on-nonfinite pass``)."""


def check_batch(
    storage: RolloutStorage,
    cells: IntArray,
    action: SpaceSpec,
    version: int,
    expected: Expected,
) -> None:
    """Refuse a batch that breaks an invariant.

    Args:
        storage: Where the frames lie.
        cells: Cells of the batch. Shape ``(M,)``.
        action: The action space.
        version: Policy version that is about to learn.
        expected: What the batch was to be.

    Raises:
        BrokenBatchError: At the first invariant that is broken.
    """
    if version != expected.version:
        raise BrokenBatchError(
            "version_current",
            f"policy version {expected.version} collected it, expected {version}, which learns",
        )
    _check_cells(storage, cells, expected)
    index = contiguous(cells)
    _check_frames(cells, storage.slots[index], storage.ordinals[index], expected)
    if not expected.may_be_nonfinite:
        _check_finite(cells, "reward", storage.rewards[index])
        for name in (LOG_PROB, VALUE):
            if name in storage.step_state:
                _check_finite(cells, name, storage.step_state[name][index])
    if ACTION in storage.step_state:
        _check_actions(storage, cells, storage.step_state[ACTION][index], action)


def _check_cells(storage: RolloutStorage, cells: IntArray, expected: Expected) -> None:
    """As many as were wanted, each a cell of storage, none twice."""
    if expected.at_least is not None and len(cells) < expected.at_least:
        raise BrokenBatchError(
            "frames_short", f"it has {len(cells)} frames, expected at least {expected.at_least}"
        )
    if not len(cells):
        raise BrokenBatchError("frames_short", "it has no frame, expected at least 1")
    rises = cells[1:] > cells[:-1]
    if not rises.all():
        at = int(rises.argmin())
        raise BrokenBatchError(
            "cells_ascend",
            f"cell {cells[at + 1]} follows cell {cells[at]}, expected ascending cells, each once",
        )
    if cells[0] < 0 or cells[-1] >= storage.capacity:
        raise BrokenBatchError(
            "cells_exist",
            f"it has cells {cells[0]} to {cells[-1]}, expected 0 to {storage.capacity - 1}",
        )


def _check_frames(cells: IntArray, slots: IntArray, ordinals: IntArray, expected: Expected) -> None:
    """Each cell holds a frame of a slot, each frame lies in one cell, their numbers are in step."""
    bad = (slots < 0) | (slots >= expected.num_slots)
    if bad.any():
        at = int(bad.argmax())
        raise BrokenBatchError(
            "slots_exist",
            f"cell {cells[at]} is of slot {slots[at]}, expected 0 to {expected.num_slots - 1}",
        )
    if int(ordinals.min()) < 0:
        at = int(ordinals.argmin())
        raise BrokenBatchError(
            "ordinals_exist",
            f"cell {cells[at]} holds frame number {ordinals[at]} of slot {slots[at]}, expected 0 "
            "or more",
        )
    _check_order(cells, slots, ordinals, may_have_gaps=expected.may_have_gaps)


def _check_order(
    cells: IntArray, slots: IntArray, ordinals: IntArray, *, may_have_gaps: bool
) -> None:
    """No frame twice, and none left out between two of a slot. One sort of one number a frame."""
    span = int(ordinals.max()) + 2  # so that a slot's last number and the next one's first differ
    numbers = slots * span + ordinals
    ordered = np.sort(numbers)
    steps = np.diff(ordered)
    odd = (steps != 1).nonzero()[0]
    odd = odd[ordered[odd] // span == ordered[odd + 1] // span]  # within a slot
    for at in odd.tolist():
        pair = (numbers == ordered[at]) | (numbers == ordered[at + 1])
        one, other = sorted(pair.nonzero()[0].tolist(), key=lambda place: int(numbers[place]))[:2]
        if ordinals[one] == ordinals[other]:
            raise BrokenBatchError(
                "one_cell_a_frame",
                f"frame {ordinals[one]} of slot {slots[one]} lies in cells {cells[one]} and "
                f"{cells[other]}, expected one",
            )
        if may_have_gaps:
            continue
        raise BrokenBatchError(
            "ordinals_in_step",
            f"frame {ordinals[one]} of slot {slots[one]} (cell {cells[one]}) is followed by frame "
            f"{ordinals[other]} (cell {cells[other]}), expected {ordinals[one] + 1}: no frame was "
            "given up and no client came or went",
        )


def _check_finite(cells: IntArray, name: str, numbers: Array) -> None:
    finite = np.isfinite(numbers)
    if finite.all():
        return
    bad = ~finite.reshape(len(cells), -1).all(1)
    at = int(bad.argmax())
    raise BrokenBatchError(
        f"{name}_finite",
        f"{int(bad.sum())} of {len(cells)} frames have a {name} that is not finite, the first in "
        f"cell {cells[at]}: {numbers[at]}, expected finite numbers",
    )


def _check_actions(
    storage: RolloutStorage, cells: IntArray, actions: Array, space: SpaceSpec
) -> None:
    """Each stored action is one of the space, and legal by its stored mask."""
    if isinstance(space, DiscreteSpec):
        sizes = np.array([space.n])
    elif isinstance(space, MultiDiscreteSpec):
        sizes = np.asarray(space.nvec).reshape(-1)
    else:
        return
    parts = actions.reshape(len(cells), -1).astype(np.int64, copy=False)
    outside = ((parts < 0) | (parts >= sizes)).any(1)
    if outside.any():
        at = int(outside.argmax())
        raise BrokenBatchError(
            "action_exists",
            f"cell {cells[at]} holds action {actions[at]}, expected 0 to {(sizes - 1).tolist()}",
        )
    if storage.masks is None:
        return
    bits = parts + (np.cumsum(sizes) - sizes)
    packed = storage.masks[cells[:, None], bits >> 3]
    illegal = ((packed >> (7 - (bits & 7)).astype(np.uint8)) & 1 == 0).any(1)
    if illegal.any():
        at = int(illegal.argmax())
        mask = storage.read_masks(cells[at : at + 1])
        legal = 0 if mask is None else int(mask.sum())
        raise BrokenBatchError(
            "action_legal",
            f"{int(illegal.sum())} of {len(cells)} frames hold an action that their mask forbids, "
            f"the first in cell {cells[at]}: action {actions[at]} with {legal} of "
            f"{storage.mask_size} actions legal, expected a legal one",
        )
