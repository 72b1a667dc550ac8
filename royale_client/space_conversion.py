"""Gymnasium spaces as the wire's descriptions of spaces, and the dtypes Gymnasium wants back.

The only module that knows both. It never looks at values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
)


def to_spec(space: spaces.Space[Any], path: str = "") -> SpaceSpec:
    """Describe a Gymnasium space for the wire.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of these.
        path: Where in the whole space this one stands; for error messages.

    Raises:
        ConfigError: If a space, or its dtype, cannot travel; names it and its place.
    """
    if isinstance(space, spaces.Dict):
        items = tuple((key, to_spec(item, f"{path}/{key}")) for key, item in space.items())
        return DictSpec(items)
    if isinstance(space, spaces.Tuple):
        return TupleSpec(tuple(to_spec(item, f"{path}/{i}") for i, item in enumerate(space)))
    try:
        return _leaf_spec(space)
    except ConfigError as error:
        raise ConfigError(f"space {path or 'root'}: {error}") from error


def leaf_dtypes(space: spaces.Space[Any]) -> list[np.dtype[Any]]:
    """Return the dtype the environment expects per leaf, in the order of the wire's leaves."""
    if isinstance(space, spaces.Dict):
        # The wire sorts the keys; Gymnasium keeps the order of an ordered mapping.
        return [dtype for key in sorted(space) for dtype in leaf_dtypes(space[key])]
    if isinstance(space, spaces.Tuple):
        return [dtype for item in space for dtype in leaf_dtypes(item)]
    if isinstance(space, spaces.Text):
        return [np.dtype(np.uint32)]
    return [np.dtype(space.dtype)]


def _leaf_spec(space: spaces.Space[Any]) -> SpaceSpec:
    match space:
        case spaces.Box():
            return BoxSpec(space.low, space.high, space.shape, space.dtype)
        case spaces.Discrete():
            return DiscreteSpec(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            return _multi_discrete(space)
        case spaces.MultiBinary():
            return MultiBinarySpec(space.shape)
        case spaces.Text():
            return TextSpec(space.max_length, "".join(sorted(space.character_set)))
    raise ConfigError(
        f"{type(space).__name__} cannot travel; the wire knows Box, Discrete, MultiDiscrete, "
        "MultiBinary, Text, Dict and Tuple: wrap the environment to use one of these"
    )


def _multi_discrete(space: spaces.MultiDiscrete) -> SpaceSpec:
    if space.nvec.ndim != 1:
        raise ConfigError(
            f"MultiDiscrete with nvec of shape {space.nvec.shape}: expected a flat vector; wrap "
            "the environment to flatten it"
        )
    if np.any(space.start):
        raise ConfigError(
            f"MultiDiscrete with start {space.start.tolist()}: expected all zeros; wrap the "
            "environment to shift the values"
        )
    return MultiDiscreteSpec(tuple(space.nvec.tolist()))
