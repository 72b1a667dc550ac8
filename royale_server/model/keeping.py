"""What is kept of a batch once its answers are on their way.

Nobody waits for it: the outcomes of earlier frames, which cells the batch has, the policy's step
state and the values of observations that no action follows. The step state of several short batches
is completed together, since judging thirty rows costs as much as judging three hundred, and the
values wait for the learn step. Knows storage and policy; never infers an action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.base import Inference, Policy
from algorithms.errors import RestoreError
from algorithms.storage import Cells, RolloutStorage
from royale_client.wire.messages import Step
from royale_server.scheduler import Bootstrap, Bridge, Effect, Infer, Record

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]
IntArray: TypeAlias = npt.NDArray[np.int64]

VALUE = "value"
"""The step-state entry that holds V(s); policies without one get no bootstraps."""

UNVALUED = "unvalued."
UNVALUED_CELLS = UNVALUED + "cells"
"""Names of observations among the frames of a checkpoint that the learn step will value."""

VALUES_BATCH = 512
"""Observations valued in one forward pass."""

COMPLETED_ROWS = 256
"""Rows whose step state is completed at a time, or more; from here on the cost is that of a row."""

COMPLETED_BATCHES = 32
"""Batches for which it is put off at most."""


@dataclass(slots=True)
class Aside:
    """Rows of a batch that were gathered beside their cells."""

    has_cell: Array
    """Which rows have a cell. Shape ``(n,)``, over the rows that the learner inferred."""
    observations: Arrays


@dataclass(slots=True)
class Unwritten:
    """What is still to be written of a batch that was inferred."""

    batch: Infer
    cells: Cells
    inference: Inference | None
    """Of the learner's rows; None if there are none, and so no cells."""
    masks: Array | None
    """Of the same rows."""
    aside: Aside | None
    """None if all rows were gathered into their cells."""


@dataclass(slots=True)
class _Incomplete:
    """Frames whose step state is still to be completed and written."""

    cells: IntArray
    inference: Inference
    has_cell: Array | None
    """Which rows of the inference have a cell; None if all do."""


class FrameKeeper:
    """Writes to rollout storage what inference and the scheduler leave to be written.

    Args:
        policy: Completes step state, and values observations.
        storage: Cells as the scheduler's ledger numbers them.
    """

    def __init__(self, policy: Policy, storage: RolloutStorage) -> None:
        self._policy = policy
        self._storage = storage
        self._has_values = VALUE in storage.step_state
        self._unwritten: Unwritten | None = None
        self._incomplete: list[_Incomplete] = []
        self._num_incomplete = 0
        self._unvalued: list[tuple[IntArray, Arrays]] = []

    # --- batches --------------------------------------------------------------------------

    def keep(self, unwritten: Unwritten) -> None:
        """Take what a batch leaves; that of the batch before must be settled."""
        self._unwritten = unwritten

    def settle_before(self, effects: Sequence[Effect]) -> None:
        """Settle the last batch, and all that the next one, with these effects, may overwrite."""
        self.settle()
        if any([type(effect) is Bridge for effect in effects]):
            self._complete()  # cells whose value is wanted may be used again by that batch

    def settle(self) -> None:
        """Write what the last batch left, but for step state that may wait for that of others."""
        unwritten, self._unwritten = self._unwritten, None
        if unwritten is None:
            return
        batch, cells, storage = unwritten.batch, unwritten.cells, self._storage
        self._write(batch.effects)  # first: they may be of frames that had these cells before
        if not len(batch.cells):
            return
        storage.assign(cells, batch.cell_slots, batch.ordinals)
        inference, masks, aside = unwritten.inference, unwritten.masks, unwritten.aside
        assert inference is not None, "rows with a cell are the learner's"
        has_cell = None
        if aside is not None:
            has_cell = aside.has_cell
            for target, rows in zip(storage.observations, aside.observations, strict=True):
                target[cells] = rows[has_cell]
            masks = None if masks is None else masks[has_cell]
        if masks is not None:
            storage.write_masks(batch.cells, masks)
        self._incomplete.append(_Incomplete(batch.cells, inference, has_cell))
        self._num_incomplete += len(batch.cells)
        if self._num_incomplete >= COMPLETED_ROWS or len(self._incomplete) >= COMPLETED_BATCHES:
            self._complete()

    def _complete(self) -> None:
        """Write the step state of all frames, by the weights and observations of their batches."""
        if not self._incomplete:
            return
        parts, self._incomplete, self._num_incomplete = self._incomplete, [], 0
        step_state = self._policy.complete([part.inference for part in parts])
        if any([part.has_cell is not None for part in parts]):
            chosen = np.concatenate(
                [
                    np.ones(len(part.cells), np.bool_) if part.has_cell is None else part.has_cell
                    for part in parts
                ]
            )
            step_state = {name: rows[chosen] for name, rows in step_state.items()}
        cells = np.concatenate([part.cells for part in parts])
        self._storage.write_step_state(cells, step_state)

    # --- learn steps and checkpoints --------------------------------------------------------

    def apply(self, effects: Sequence[Effect]) -> None:
        """Write to the frames what is known by now."""
        self.settle()
        self._write(effects)

    def finish(self, effects: Sequence[Effect]) -> None:
        """Write all there is: the frames are about to be learnt from."""
        self.apply(effects)
        self._complete()
        self._compute_values()

    def copy_frames(self, cells: IntArray, effects: Sequence[Effect]) -> dict[str, Array]:
        """Copy frames for a checkpoint.

        Args:
            cells: All complete cells, ascending. Shape ``(M,)``.
            effects: What is still to be written to them.
        """
        self.apply(effects)
        self._complete()
        return self._storage.copy_frames(cells) | self._unvalued_frames(cells)

    def _unvalued_frames(self, cells: IntArray) -> dict[str, Array]:
        """Observations whose values the learn step will compute, and the places of their cells."""
        if not self._unvalued:
            return {}
        places = np.searchsorted(cells, np.concatenate([cells for cells, _ in self._unvalued]))
        columns = zip(*(leaves for _, leaves in self._unvalued), strict=True)
        named = {f"{UNVALUED}{j}": np.concatenate(leaves) for j, leaves in enumerate(columns)}
        return {UNVALUED_CELLS: places, **named}

    def load_frames(self, frames: Mapping[str, Array]) -> None:
        """Put the frames of a checkpoint into the first cells.

        Args:
            frames: What `copy_frames` returned; empty leaves everything as it is.

        Raises:
            RestoreError: If they are not of these spaces and this policy, or too many.
        """
        if not frames:
            return
        count, room = len(frames["slots"]), self._storage.capacity
        if count > room:
            raise RestoreError(
                "the stored frames",
                other=[f"there are {count} of them, and room for {room}"],
                remedy="resume with the --max-slots of the attempt before",
            )
        self._storage.load_frames({n: a for n, a in frames.items() if not n.startswith(UNVALUED)})
        if UNVALUED_CELLS in frames:
            leaves = tuple(frames[f"{UNVALUED}{j}"] for j in range(len(self._storage.observations)))
            self._unvalued.append((frames[UNVALUED_CELLS], leaves))

    # --- effects ------------------------------------------------------------------------

    def _write(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Record():
                    self._record(effect)
                case Bridge(cells=cells, successors=successors):
                    if self._has_values:
                        self._complete()
                        values = self._storage.step_state[VALUE][successors]
                        self._storage.set_bootstrap(cells, values)
                case Bootstrap(request=request, rows=rows, cells=cells):
                    places = np.searchsorted(np.flatnonzero(request.asks), rows)
                    self._value_later(cells, request.payload.observations, places)

    def _record(self, effect: Record) -> None:
        step: Step = effect.request.payload
        assert step.rewards is not None
        assert step.terminated is not None
        assert step.truncated is not None
        if effect.block is None:
            self._storage.add_rewards(effect.cells, step.rewards[effect.rows])
        else:
            self._storage.add_rewards(effect.block, step.rewards)
        if not effect.request.any_ended:
            return
        rows = effect.rows[effect.finished]
        cells = effect.cells[effect.finished]
        terminated, truncated = step.terminated[rows], step.truncated[rows]
        self._storage.finish(cells, terminated, truncated)
        cut_off = truncated & ~terminated
        if cut_off.any():
            assert step.final_observations is not None
            places = np.searchsorted(np.flatnonzero(effect.request.ended), rows[cut_off])
            self._value_later(cells[cut_off], step.final_observations, places)

    def _value_later(self, cells: IntArray, observations: Arrays, places: IntArray) -> None:
        """Keep copies of these observations, in the storage's types, until the learn step."""
        if not self._has_values:
            return
        pairs = zip(observations, self._storage.observations, strict=True)
        kept = tuple([leaf[places].astype(held.dtype, copy=False) for leaf, held in pairs])
        self._unvalued.append((cells, kept))

    def _compute_values(self) -> None:
        """Value the waiting observations, by the version that collected (it has not changed).

        In order of their cells and in blocks of one size: matrix products round by the shape of
        the batch, and the same frames must get the same values however their messages came.
        """
        if not self._unvalued:
            return
        cells = np.concatenate([cells for cells, _ in self._unvalued])
        columns = zip(*(leaves for _, leaves in self._unvalued), strict=True)
        observations = [np.concatenate(leaves) for leaves in columns]
        self._unvalued.clear()
        order = np.argsort(cells, kind="stable")
        for start in range(0, len(order), VALUES_BATCH):
            block = order[start : start + VALUES_BATCH]
            values = self._policy.values(tuple(leaf[block] for leaf in observations))
            self._storage.set_bootstrap(cells[block], values)
