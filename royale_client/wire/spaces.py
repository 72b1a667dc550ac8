"""Spaces as data: specs, their leaves, their wire form, their differences, and their values.

The one import for everybody else; the parts stand in ``space_specs``, ``space_data``,
``space_differences`` and ``space_values``.
"""

from __future__ import annotations

from royale_client.wire.space_data import from_data, to_data
from royale_client.wire.space_differences import differences
from royale_client.wire.space_specs import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    Leaf,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    leaves,
    mask_size,
)
from royale_client.wire.space_values import (
    flatten_batch,
    flatten_one,
    unflatten_batch,
    unflatten_one,
    value_ranges,
)

__all__ = [
    "BoxSpec",
    "DictSpec",
    "DiscreteSpec",
    "Leaf",
    "LeafSpec",
    "MultiBinarySpec",
    "MultiDiscreteSpec",
    "SpaceSpec",
    "TextSpec",
    "TupleSpec",
    "differences",
    "flatten_batch",
    "flatten_one",
    "from_data",
    "leaves",
    "mask_size",
    "to_data",
    "unflatten_batch",
    "unflatten_one",
    "value_ranges",
]
