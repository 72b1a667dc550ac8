"""What an algorithm is told about the environments: their spaces and the layout of its arrays.

Imports no torch, so configurations and help texts may use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from royale_client.wire.spaces import SpaceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Spaces:
    """The spaces of one run, equal for all its training clients."""

    observation: SpaceSpec
    """Space of one observation of one slot."""

    action: SpaceSpec
    """Space of one action of one slot."""

    masks: bool
    """Whether every observation comes with a mask of its legal actions."""


class ArrayLayout(Protocol):
    """Anything that says how one row of an array looks: an ``ArraySpec`` or a leaf of a space."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row, without the leading batch dimension."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Exact dtype of the array."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one row of an array that is stored per frame."""

    shape: tuple[int, ...]
    """Shape of one row, without the leading batch dimension."""

    dtype: np.dtype[Any]
    """Exact dtype of the array."""
