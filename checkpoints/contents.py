"""What one checkpoint holds, in memory. Plain data: reads no file and imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # a command that is refused does not wait for these
    import numpy as np
    import torch

Array: TypeAlias = "torch.Tensor | np.ndarray[Any, Any]"
"""One array; the libraries are named in text only, since this module does not import them."""

Tensors: TypeAlias = "Mapping[str, Array]"
"""Named arrays of one file. Saved from torch or NumPy, loaded as torch tensors on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContents:
    """Everything that one checkpoint holds.

    The contents must not change while they are saved: hand over copies (``copy_contents``), not the
    tensors an optimizer writes into.
    """

    step: int
    """What the checkpoint is called and ordered by: stored frames of the run, 0 or more."""
    tensors: Mapping[str, Tensors] = field(default_factory=dict)
    """By file stem (``model``, ``optimizer``, ``rollout`` ...): arrays by name."""
    documents: Mapping[str, Any] = field(default_factory=dict)
    """By file stem (``state``, ``rng`` ...): plain data. ``None``, bool, int, float, text, list,
    tuple and dict come back with the same types and values, NaN and infinities too."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Small plain data kept in the manifest, readable without loading anything: digests, the number
    of the metrics row it belongs to."""
