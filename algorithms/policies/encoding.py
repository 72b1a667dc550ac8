"""Observations of any supported space as one float32 matrix, a row per observation.

Float and integer boxes are cast, uint8 boxes are scaled to [0, 1], choices become one-hot
columns, nests are laid side by side in the order of their leaves. NumPy only: the matrix is built
where the observations lie and travels to a device once. Letters: n rows, D columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from algorithms.storage import Array
from royale_client.wire.spaces import (
    BoxSpec,
    DiscreteSpec,
    Leaf,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    leaves,
)

Matrix = npt.NDArray[np.float32]

MAX_COLUMNS = 65_536
"""Widest matrix; beyond it a one-hot code or a flattened image is the wrong tool."""

_FITTING = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple nests of these"
_UINT8_SCALE = np.float32(1.0 / 255.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """How one leaf fills its columns."""

    columns: slice
    """Where in the matrix."""
    is_uint8: bool
    """Scaled to [0, 1]."""
    entry_of_column: npt.NDArray[np.int64] | None
    """For choices: which entry of the row a column looks at; ``None`` for plain numbers."""
    choice_of_column: npt.NDArray[np.int64]
    """For choices: the value at which a column is 1."""


def observation_problems(spec: SpaceSpec) -> list[str]:
    """List why observations of a space cannot be encoded; empty if they can.

    Args:
        spec: The observation space.

    Returns:
        One sentence per leaf that does not fit, or one about the whole.
    """
    problems = [
        f"observation {leaf.path or 'space'}: got {type(leaf.spec).__name__.removesuffix('Spec')}, "
        f"this policy takes {_FITTING}"
        for leaf in leaves(spec)
        if not isinstance(leaf.spec, BoxSpec | DiscreteSpec | MultiDiscreteSpec | MultiBinarySpec)
    ]
    width = 0 if problems else sum(_width(leaf) for leaf in leaves(spec))
    if not problems and not 1 <= width <= MAX_COLUMNS:
        problems.append(
            f"observation space: it makes a vector of {width} numbers (one-hot choices included), "
            f"this policy takes 1 to {MAX_COLUMNS}; wrap the environment to make it smaller"
        )
    return problems


class ObservationEncoder:
    """Turns observations of one space into matrices.

    Args:
        spec: A space without ``observation_problems``.
    """

    width: int
    """Number of columns D."""

    def __init__(self, spec: SpaceSpec) -> None:
        space_leaves = leaves(spec)
        ends = np.cumsum([_width(leaf) for leaf in space_leaves])
        self.width = int(ends[-1])
        self._parts = tuple(
            _part(leaf, slice(int(end) - _width(leaf), int(end)))
            for leaf, end in zip(space_leaves, ends, strict=True)
        )
        self._is_plain = len(self._parts) == 1 and not self._parts[0].is_uint8
        self._is_plain &= self._parts[0].entry_of_column is None

    def encode(self, observations: tuple[Array, ...]) -> Matrix:
        """Return the observations as rows of numbers.

        Args:
            observations: One array ``(n, …)`` per leaf.

        Returns:
            C-contiguous and writable, of shape ``(n, D)``. Where a single float32 leaf comes in
            as such an array, it is that array's own memory: not to be written to.
        """
        rows = len(observations[0])
        if self._is_plain:
            return _as_matrix(observations[0].reshape(rows, self.width))
        matrix = np.empty((rows, self.width), np.float32)
        for part, leaf in zip(self._parts, observations, strict=True):
            _fill(matrix[:, part.columns], part, leaf.reshape(rows, -1))
        return matrix


def _as_matrix(rows: Array) -> Matrix:
    flags = rows.flags
    if rows.dtype == np.float32 and flags.c_contiguous and flags.writeable:
        return rows
    return rows.astype(np.float32, order="C")


def _fill(columns: Matrix, part: _Part, leaf: Array) -> None:
    if part.entry_of_column is not None:
        columns[...] = leaf[:, part.entry_of_column] == part.choice_of_column
    elif part.is_uint8:
        np.multiply(leaf, _UINT8_SCALE, out=columns)
    else:
        columns[...] = leaf


def _width(leaf: Leaf) -> int:
    match leaf.spec:
        case DiscreteSpec(n=n):
            return n
        case MultiDiscreteSpec(nvec=nvec):
            return sum(nvec)
        case _:
            return math.prod(leaf.shape)


def _part(leaf: Leaf, columns: slice) -> _Part:
    entries: npt.NDArray[np.int64] | None = None
    choices = np.zeros(0, np.int64)
    match leaf.spec:
        case DiscreteSpec(n=n, start=start):
            entries, choices = np.zeros(n, np.int64), np.arange(start, start + n)
        case MultiDiscreteSpec(nvec=nvec):
            entries = np.repeat(np.arange(len(nvec)), nvec)
            choices = np.concatenate([np.arange(size) for size in nvec])
    return _Part(
        columns=columns,
        is_uint8=leaf.dtype == np.uint8,
        entry_of_column=entries,
        choice_of_column=choices,
    )
