"""The one place where the frames of an iteration lie: arrays over cells, allocated once.

A cell is an index into every array here. Which cells are free, reserved or complete, and which
frames may be trained on, is decided by the caller: this module stores and adds up, and schedules
nothing. All work is on index arrays, a fixed number of array operations for any number of rows.
NumPy arrays are the truth; nothing here knows of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.errors import RestoreError
from algorithms.spaces import ArrayLayout

Array: TypeAlias = npt.NDArray[Any]
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

UNUSED = -1
"""Slot and ordinal of a cell that holds no frame."""


Cells: TypeAlias = "slice | IntArray"
"""Which cells: their indices, or the slice that `contiguous` makes of them."""


def contiguous(cells: Cells) -> Cells:
    """Return the cheapest index for these cells.

    Args:
        cells: Cell indices. Shape ``(n,)``. A slice is returned as it is.

    Returns:
        A slice where the cells are c, c+1, …, so that indexing gives a view; else ``cells``.
    """
    if isinstance(cells, slice):
        return cells
    n = len(cells)
    if n == 0 or cells[-1] - cells[0] != n - 1 or not (cells[1:] > cells[:-1]).all():
        return cells
    return slice(int(cells[0]), int(cells[-1]) + 1)


class RolloutStorage:
    """Frames of one iteration in cells ``0 … capacity - 1``.

    Args:
        capacity: Number of cells C.
        observations: Layout of each observation leaf of one frame.
        step_state: Layout of what the policy keeps with each frame (raw action, log-prob, …).
        mask_size: Action-mask entries of a row, or ``None`` where the environments send none.

    Raises:
        ValueError: If the capacity is not positive.
    """

    capacity: int
    """Number of cells C."""

    mask_size: int | None
    """Entries of an action mask, ``None`` for no masks."""

    observations: tuple[Array, ...]
    """One array ``(C, …)`` per observation leaf. The gathering caller writes into them."""

    masks: npt.NDArray[np.uint8] | None
    """Legal actions, packed eight to a byte. Shape ``(C, ceil(mask_size / 8))``."""

    step_state: dict[str, Array]
    """What the policy keeps with each frame. Each of shape ``(C, …)``."""

    rewards: FloatArray
    """Sum of the rewards since the action, float64 so that no digit is lost. Shape ``(C,)``."""

    terminated: BoolArray
    """The episode ended at this frame's action for good. Shape ``(C,)``."""

    truncated: BoolArray
    """The episode was cut off after this frame's action. Shape ``(C,)``."""

    bootstrap: npt.NDArray[np.float32]
    """Value of what follows where no cell does; NaN where none is known. Shape ``(C,)``."""

    slots: IntArray
    """Slot of the frame, ``UNUSED`` in an empty cell. Shape ``(C,)``."""

    ordinals: IntArray
    """Number of the frame within its slot; consecutive where nothing is lost. Shape ``(C,)``."""

    def __init__(
        self,
        capacity: int,
        observations: Sequence[ArrayLayout],
        step_state: Mapping[str, ArrayLayout],
        mask_size: int | None,
    ) -> None:
        if capacity <= 0:
            raise ValueError(f"RolloutStorage: capacity must be positive, got {capacity}")
        self.capacity = capacity
        self.mask_size = mask_size
        self.observations = tuple(_allocate(capacity, layout) for layout in observations)
        self.masks = None if mask_size is None else np.zeros((capacity, -(-mask_size // 8)), "u1")
        self.step_state = {name: _allocate(capacity, spec) for name, spec in step_state.items()}
        self.rewards = np.zeros(capacity, np.float64)
        self.terminated = np.zeros(capacity, np.bool_)
        self.truncated = np.zeros(capacity, np.bool_)
        self.bootstrap = np.full(capacity, np.nan, np.float32)
        self.slots = np.full(capacity, UNUSED, np.int64)
        self.ordinals = np.full(capacity, UNUSED, np.int64)

    def arrays(self) -> dict[str, Array]:
        """Return every array ``(C, …)`` by a name that is stable from version to version."""
        observations = {f"observations.{j}": leaf for j, leaf in enumerate(self.observations)}
        step_state = {f"step_state.{name}": array for name, array in self.step_state.items()}
        masks = {} if self.masks is None else {"masks": self.masks}
        outcome = {
            "rewards": self.rewards,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "bootstrap": self.bootstrap,
            "slots": self.slots,
            "ordinals": self.ordinals,
        }
        return observations | step_state | masks | outcome

    def copy_frames(self, cells: IntArray) -> dict[str, Array]:
        """Copy everything that is known of some frames.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.

        Returns:
            The rows of every array under its name in ``arrays``. Each of shape ``(n, …)``.
        """
        index = contiguous(cells)
        return {name: array[index].copy() for name, array in self.arrays().items()}

    def load_frames(self, frames: Mapping[str, Array]) -> None:
        """Put frames into the cells from 0 on.

        Args:
            frames: What ``copy_frames`` of a storage of the same layout returned.

        Raises:
            RestoreError: If they are of another layout, naming every array that does not fit.
        """
        own = self.arrays()
        reshaped = [
            f"{name}: got {_described(frames[name])}, expected {_described(own[name])}"
            for name in own.keys() & frames.keys()
            if _described(frames[name]) != _described(own[name])
        ]
        missing, unexpected = sorted(own.keys() - frames.keys()), sorted(frames.keys() - own.keys())
        if missing or unexpected or reshaped:
            raise RestoreError(
                "the stored frames", missing=missing, unexpected=unexpected, reshaped=reshaped
            )
        for name, rows in frames.items():
            own[name][: len(rows)] = rows

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        return sum(array.nbytes for array in self.arrays().values())

    def assign(self, cells: Cells, slots: IntArray, ordinals: IntArray) -> None:
        """Reserve cells for frames whose action is being inferred; their outcome starts empty.

        Args:
            cells: Cells to reserve. Shape ``(n,)``.
            slots: Slot of each frame. Shape ``(n,)``.
            ordinals: Number of each frame within its slot. Shape ``(n,)``.
        """
        index = contiguous(cells)
        self.slots[index] = slots
        self.ordinals[index] = ordinals
        self.rewards[index] = 0.0
        self.terminated[index] = False
        self.truncated[index] = False
        self.bootstrap[index] = np.nan

    def write_masks(self, cells: IntArray, masks: BoolArray) -> None:
        """Keep which actions were legal.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.
            masks: True where legal. Shape ``(n, mask_size)``.

        Raises:
            ValueError: If this storage has no masks or the shape is another.
        """
        if self.masks is None:
            raise ValueError("write_masks: this storage was made without a mask_size")
        if masks.shape != (len(cells), self.mask_size):
            expected = (len(cells), self.mask_size)
            raise ValueError(f"write_masks: masks must be {expected}, got {masks.shape}")
        self.masks[contiguous(cells)] = np.packbits(masks, axis=1)

    def read_masks(self, cells: IntArray) -> BoolArray | None:
        """Return which actions were legal, or ``None`` where the environments send no masks.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.

        Returns:
            True where legal. Shape ``(n, mask_size)``, a new array.
        """
        if self.masks is None:
            return None
        bits = np.unpackbits(self.masks[contiguous(cells)], axis=1, count=self.mask_size)
        return bits.view(np.bool_)

    def write_step_state(self, cells: Cells, step_state: Mapping[str, Array]) -> None:
        """Keep what the policy wants to see again with each frame.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.
            step_state: Every declared name. Each of shape ``(n, …)``.

        Raises:
            ValueError: If the names are not the declared ones.
        """
        if step_state.keys() != self.step_state.keys():
            raise ValueError(
                f"write_step_state: the policy declared {sorted(self.step_state)} "
                f"and delivered {sorted(step_state)}"
            )
        index = contiguous(cells)
        for name, rows in step_state.items():
            self.step_state[name][index] = rows

    def add_rewards(self, cells: Cells, rewards: FloatArray) -> None:
        """Add what the environment paid since the last message to each frame's reward.

        Args:
            cells: Cells of the frames, each at most once. Shape ``(n,)``.
            rewards: Rewards in the environment's unit. Shape ``(n,)``.
        """
        self.rewards[contiguous(cells)] += rewards

    def finish(self, cells: Cells, terminated: BoolArray, truncated: BoolArray) -> None:
        """Record that the episode ended at these frames, or, with both flags false, did not.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.
            terminated: The episode ended for good. Shape ``(n,)``.
            truncated: The episode was cut off. Shape ``(n,)``.
        """
        index = contiguous(cells)
        self.terminated[index] = terminated
        self.truncated[index] = truncated

    def set_bootstrap(self, cells: Cells, values: npt.NDArray[np.floating[Any]]) -> None:
        """Record the value of the observation after frames that no stored frame follows.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.
            values: Value of the true final observation, of a parked observation, or of the
                observation of a cell that was given up. Shape ``(n,)``.
        """
        self.bootstrap[contiguous(cells)] = values

    def observations_of(self, cells: IntArray) -> tuple[Array, ...]:
        """Return the observations of some cells, one array per leaf.

        Args:
            cells: Cells of the frames. Shape ``(n,)``.

        Returns:
            Views of the storage where the cells are contiguous, copies otherwise.
        """
        index = contiguous(cells)
        return tuple(array[index] for array in self.observations)


def _allocate(capacity: int, layout: ArrayLayout) -> Array:
    return np.zeros((capacity, *layout.shape), layout.dtype)


def _described(array: Array) -> str:
    return f"rows of {array.dtype} {array.shape[1:]}"
