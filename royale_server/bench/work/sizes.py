"""Real messages of given sizes: what the product would send for so many rows of such leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.wire.messages import Action, Step, encode_message

LeafData = tuple[str, Sequence[int]]
"""Dtype and shape of one leaf of an observation."""


def make_step(rows: int, leaves: Sequence[LeafData], mask_size: int | None = None) -> Step:
    """Return a step in the middle of an episode, with random contents.

    Args:
        rows: Slots, all of which ask.
        leaves: Leaves of the observation.
        mask_size: Entries of each mask of legal actions; None without masks.
    """
    generator = np.random.default_rng(1)
    return Step(
        group=0,
        request=1000,
        observations=tuple(_random(generator, rows, leaf) for leaf in leaves),
        masks=None if mask_size is None else generator.random((rows, mask_size)) < 0.5,
        rewards=np.ones(rows, np.float64),
        terminated=np.zeros(rows, np.bool_),
        truncated=np.zeros(rows, np.bool_),
        env_time_s=0.001,
    )


def make_answer(rows: int) -> bytes:
    """Return the encoded answer to such a step, one discrete action a row."""
    actions = (np.ones(rows, np.int64),)
    return encode_message(Action(group=0, request=1000, policy_version=1, actions=actions))


def tensor_bytes(step: Step) -> int:
    """Bytes of the tensors of a step that has no spare ones: masks packed, feedback left out."""
    masks = 0 if step.masks is None else np.packbits(step.masks, axis=1).nbytes
    return sum(leaf.nbytes for leaf in step.observations) + masks


def _random(generator: np.random.Generator, rows: int, leaf: LeafData) -> npt.NDArray[Any]:
    dtype, shape = leaf
    size = (rows, *shape)
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(size).astype(dtype)
    return generator.integers(0, 100, size).astype(dtype)
