"""Values of an environment as arrays and back, and a watch for values that are no numbers.

Casting and checking is the wire's (`royale_client.wire.spaces`); here its errors are turned into
ours, silent rows get something to pass to the environment, and NaN and infinity are named. No value
is ever repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import BoolArray, EnvContractError, EnvValue, Leaves
from royale_client.wire.errors import ContractError
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    Leaf,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    flatten_batch,
    flatten_one,
    leaves,
    unflatten_batch,
)

logger = logging.getLogger(__name__)


class BatchReader:
    """Turns batched observations into one array per leaf.

    Args:
        spec: Space of one row's observation.
        rows: Number of rows of every batch.
    """

    def __init__(self, spec: SpaceSpec, rows: int) -> None:
        self._spec = spec
        self._rows = rows
        # By far the most frequent case, a bare array that fits, needs no walk through the space.
        (first, *_) = leaves(spec)
        is_bare = first.spec is spec and not isinstance(spec, TextSpec)
        self._bare = ((rows, *first.shape), first.dtype) if is_bare else None

    def read(self, value: EnvValue) -> Leaves:
        """Return one array per leaf, in the declared dtype, shape ``[rows, ...]``.

        Args:
            value: Batched value in the dicts and tuples of the space.

        Raises:
            EnvContractError: If structure, shape or dtype is not the declared one.
        """
        if isinstance(value, np.ndarray) and (value.shape, value.dtype) == self._bare:
            return (value,)
        try:
            arrays = flatten_batch(self._spec, value)
        except ContractError as error:
            raise EnvContractError(f"observation: {error}") from error
        if any(len(array) != self._rows for array in arrays):
            raise EnvContractError(
                f"observation: got {len(arrays[0])} rows, expected {self._rows}, one each"
            )
        return arrays

    def read_rows(self, values: Sequence[EnvValue]) -> Leaves:
        """Return one array per leaf from single values, one per row, however many.

        Raises:
            EnvContractError: If structure, shape or dtype is not the declared one.
        """
        try:
            flat = [flatten_one(self._spec, value) for value in values]
        except ContractError as error:
            raise EnvContractError(f"observation: {error}") from error
        return tuple(np.stack(rows) for rows in zip(*flat, strict=True))


class ActionBuffer:
    """The actions of all rows of a group, those of silent rows kept from before.

    Rows that do not ask still need something to be passed to a vector environment: they get their
    last action again, which was legal once, and the environment ignores it.

    Args:
        spec: Space of one row's action.
        rows: Number of rows.
        dtypes: Dtype the environment expects per leaf.
        hands_out_rows: Whether the environments are given one row each, never the whole batch.
    """

    def __init__(
        self,
        spec: SpaceSpec,
        rows: int,
        dtypes: Sequence[np.dtype[Any]],
        *,
        hands_out_rows: bool = False,
    ) -> None:
        self._spec = spec
        # A row of a discrete action is a scalar, in which nothing of the batch can be changed.
        self._may_share = hands_out_rows and isinstance(spec, DiscreteSpec)
        self._is_bare = not isinstance(spec, DictSpec | TupleSpec | TextSpec)
        self.leaves = [
            np.broadcast_to(_legal_filler(leaf), (rows, *leaf.shape)).astype(dtype)
            for leaf, dtype in zip(leaves(spec), dtypes, strict=True)
        ]

    def put(self, asking: BoolArray | None, actions: Leaves) -> None:
        """Take the actions of the asking rows; None means that all rows asked.

        Every call makes new arrays, since an environment may keep and change what it was given;
        only where it is given scalars, the actions themselves are taken.
        """
        if asking is None and self._may_share and actions[0].dtype == self.leaves[0].dtype:
            self.leaves = list(actions)
            return
        pairs = zip(self.leaves, actions, strict=True)
        if asking is None:
            self.leaves = [new.astype(held.dtype) for held, new in pairs]
            return
        for index, (held, new) in enumerate(pairs):
            self.leaves[index] = held.copy()
            self.leaves[index][asking] = new

    def value(self) -> EnvValue:
        """Return the batched action in the dicts and tuples of the space."""
        return self.leaves[0] if self._is_bare else unflatten_batch(self._spec, self.leaves)


def _legal_filler(leaf: Leaf) -> npt.NDArray[Any]:
    """Return some legal value of one leaf."""
    if isinstance(leaf.spec, BoxSpec):
        zeros = np.zeros(leaf.shape, leaf.dtype)
        return np.asarray(np.minimum(np.maximum(zeros, leaf.spec.low), leaf.spec.high))
    start = leaf.spec.start if isinstance(leaf.spec, DiscreteSpec) else 0
    return np.full(leaf.shape, start, leaf.dtype)


class NonFiniteWatch:
    """Reports NaN and infinity in what an environment returns, once per slot.

    The values travel as they are: the server decides about the frame, this only names the place
    for the person in front of the client.

    Args:
        spec: The observation space.
        rows: Number of slots.
    """

    def __init__(self, spec: SpaceSpec, rows: int) -> None:
        self._floats = [
            (index, f"observation {leaf.path!r}" if leaf.path else "the observation")
            for index, leaf in enumerate(leaves(spec))
            if leaf.dtype.kind == "f"
        ]
        self._reported = np.zeros(rows, np.bool_)

    def is_finite(self, observations: Leaves, rewards: npt.NDArray[np.float64]) -> bool:
        """Say whether there is nothing to report of what one step returned; see `report`."""
        return _all_finite(rewards) and all(
            [_all_finite(observations[index]) for index, _ in self._floats]
        )

    def report(
        self, observations: Leaves, rewards: npt.NDArray[np.float64], steps: npt.NDArray[np.int64]
    ) -> None:
        """Report what is wrong with what one step returned.

        Args:
            observations: One array per leaf, shape ``[n, ...]``.
            rewards: Shape ``[n]``.
            steps: Steps since the episode of each row began, shape ``[n]``.
        """
        self._say("the reward", np.asarray(~np.isfinite(rewards)), steps)
        for index, name in self._floats:
            flat = observations[index].reshape(len(steps), -1)
            self._say(name, np.asarray(~np.isfinite(flat).all(axis=1)), steps)

    def _say(self, what: str, bad: BoolArray, steps: npt.NDArray[np.int64]) -> None:
        for slot in np.flatnonzero(bad & ~self._reported).tolist():
            logger.warning(
                "%s of slot %d is NaN or infinite at step %d of its episode; it is sent as it is, "
                "and the server does not train on it (said once per slot)",
                what,
                slot,
                steps[slot],
            )
        self._reported |= bad


def _all_finite(values: npt.NDArray[Any]) -> bool:
    """Say whether no value is NaN or infinite."""
    # Several times cheaper than ``all()`` of an array as small as most are.
    return 0 not in np.isfinite(values).tobytes("A")
