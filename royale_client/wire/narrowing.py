"""Observations in half precision: which leaves travel as float16, and how they become so.

A client that declares the feature sends the floats of a box that are wider as float16 once the
server has named the feature in its welcome. The spaces stay as they are: what is rounded is what
travels. A number that would become infinite is refused; NaN and infinities of the environment's
own travel as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.errors import ContractError
from royale_client.wire.space_specs import Leaf, SpaceSpec, leaves

FLOAT16 = "float16"
"""Feature of a client that sends wider floats of its observations as float16."""

_F2 = DTYPES["f2"]


def has_wider_floats(observation_space: SpaceSpec) -> bool:
    """Tell whether any leaf is of floats wider than float16."""
    return any(map(_is_wider, leaves(observation_space)))


def leaves_as_sent(observation_space: SpaceSpec, *, float16: bool) -> tuple[Leaf, ...]:
    """List the leaves of the observations with the types in which they travel.

    Args:
        observation_space: Space of one observation.
        float16: Client and server have agreed on the feature.
    """
    return tuple(
        replace(leaf, dtype=_F2) if float16 and _is_wider(leaf) else leaf
        for leaf in leaves(observation_space)
    )


class Narrowing:
    """Turns the observations of one session into what travels.

    Args:
        observation_space: Space of one observation.
    """

    def __init__(self, observation_space: SpaceSpec) -> None:
        self._leaves = leaves(observation_space)
        self._wider = tuple(place for place, leaf in enumerate(self._leaves) if _is_wider(leaf))

    def narrow(self, arrays: Sequence[Array], name: str) -> tuple[Array, ...]:
        """Return the arrays with the wider floats as new contiguous ones of float16.

        Args:
            arrays: One per leaf, shape ``(m, *leaf)``; another number is left to who checks that.
            name: What they are, for the message.

        Raises:
            ContractError: An array is not of its leaf's type, or holds a finite number that
                float16 cannot; says which leaf, row and number.
        """
        narrowed = list(arrays)
        if len(narrowed) != len(self._leaves):
            return tuple(narrowed)
        with np.errstate(over="raise", invalid="ignore"):
            for place in self._wider:
                narrowed[place] = _half(arrays[place], self._leaves[place], name)
        return tuple(narrowed)


def _is_wider(leaf: Leaf) -> bool:
    return leaf.dtype.kind == "f" and leaf.dtype.itemsize > _F2.itemsize


def _half(array: Array, leaf: Leaf, name: str) -> Array:
    if array.dtype != leaf.dtype:
        raise ContractError(
            "an array does not fit its space",
            where=f"{name}, leaf {leaf.path or '(root)'}",
            got=array.dtype.name,
            expected=leaf.dtype.name,
            remedy="send what the hello declared",
        )
    try:
        return array.astype(_F2, order="C")
    except FloatingPointError:  # raised if, and only if, a finite number became infinite
        raise _too_large(np.atleast_1d(array), leaf, name) from None


def _too_large(array: Array, leaf: Leaf, name: str) -> ContractError:
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.isinf(array.astype(_F2)) & np.isfinite(array)
    row, *element = np.argwhere(lost)[0].tolist()
    return ContractError(
        "a number is too large for float16",
        where=f"{name}, leaf {leaf.path or '(root)'}, row {row}"
        + (f", element {element}" if element else ""),
        got=str(array[(row, *element)]),
        expected=f"at most {float(np.finfo(_F2).max):g} in size",
        remedy="let the environment scale its observations, or leave out --float16-observations",
    )
