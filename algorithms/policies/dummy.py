"""The random policy: legal actions for any action space, from keyed noise, without a network."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.base import Inference, Policy
from algorithms.noise import Noise, Purpose
from algorithms.policies.config import DummyPolicyConfig
from algorithms.spaces import Spaces
from algorithms.storage import Array, BoolArray, FloatArray
from royale_client.wire.spaces import (
    BoxSpec,
    DiscreteSpec,
    Leaf,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    leaves,
)

Sampler: TypeAlias = Callable[[FloatArray], Array]
"""From numbers in (0, 1) of shape (n, lanes) to actions of a leaf, (n, ...)."""

_ANY_CHARSET = string.ascii_letters + string.digits


class DummyPolicy(Policy):
    """Chooses uniformly among the legal actions; a row's choice depends on its noise only.

    Args:
        config: There is nothing to set.
        spaces: Any spaces.
        device: Not used: there are no weights.
    """

    uid = "dummy-policy"

    def __init__(
        self,
        config: DummyPolicyConfig,
        spaces: Spaces,
        *,
        device: object = "cpu",
    ) -> None:
        super().__init__()
        self.spaces = spaces
        self.step_state = {}
        action_leaves = leaves(spaces.action)
        self._lanes = [_num_lanes(leaf) for leaf in action_leaves]
        self._samplers = [_sampler(leaf) for leaf in action_leaves]

    def act(
        self,
        observations: tuple[Array, ...],
        masks: BoolArray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Choose an action for each row; see the base class. There is no likeliest one."""
        if masks is not None:
            return Inference(actions=(self._choose_legal(masks, noise),), step_state={})
        numbers = noise.uniform(Purpose.ACTION, sum(self._lanes))
        parts = np.split(numbers, np.cumsum(self._lanes)[:-1], axis=1)
        actions = tuple(sampler(part) for sampler, part in zip(self._samplers, parts, strict=True))
        return Inference(actions=actions, step_state={})

    def _choose_legal(self, masks: BoolArray, noise: Noise) -> Array:
        """Return for each choice the legal value with the largest random number."""
        numbers = np.where(masks, noise.uniform(Purpose.ACTION, masks.shape[1]), -1.0)
        match self.spaces.action:
            case DiscreteSpec(start=start):
                choices: npt.NDArray[np.int64] = numbers.argmax(1) + start
                return choices
            case MultiDiscreteSpec(nvec=nvec):
                parts = np.split(numbers, np.cumsum(nvec)[:-1], axis=1)
                return np.stack([part.argmax(1) for part in parts], axis=1)
            case other:
                raise TypeError(f"DummyPolicy: a {type(other).__name__} has no action masks")

    def values(self, observations: tuple[Array, ...]) -> npt.NDArray[np.float32]:
        """Return zeros: there is no critic. Shape ``(n,)``."""
        return np.zeros(len(observations[0]), np.float32)


def _num_lanes(leaf: Leaf) -> int:
    """Return how many random numbers one action takes."""
    extra = 1 if isinstance(leaf.spec, TextSpec) else 0  # the length
    return math.prod(leaf.shape) + extra


def _sampler(leaf: Leaf) -> Sampler:
    match leaf.spec:
        case BoxSpec() as box:
            return lambda u: _box(u, box, leaf)
        case DiscreteSpec(n=n, start=start):
            return lambda u: _below(u[:, 0], np.int64(n)) + start
        case MultiDiscreteSpec(nvec=nvec):
            return lambda u: _below(u, np.array(nvec))
        case MultiBinarySpec(shape=shape):
            return lambda u: (u < 0.5).astype(np.int8).reshape(len(u), *shape)
        case TextSpec() as text:
            return lambda u: _text(u, text)


def _below(u: FloatArray, n: npt.NDArray[np.int64] | np.int64) -> npt.NDArray[np.int64]:
    """Return integers in [0, n), uniform."""
    return (u * n).astype(np.int64)


def _box(u: FloatArray, spec: BoxSpec, leaf: Leaf) -> Array:
    """Return numbers inside the bounds: uniform between two, exponential beyond one, else normal.

    Args:
        u: Shape ``(n, size)``.
        spec: The bounds.
        leaf: Shape and dtype.
    """
    if leaf.dtype.kind != "f":
        return _integer_box(u, spec, leaf)
    low, high = (bound.reshape(-1).astype(np.float64) for bound in (spec.low, spec.high))
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    bottom, top = np.where(has_low, low, 0.0), np.where(has_high, high, 0.0)
    exponential = -np.log(u)
    numbers = np.select(
        [has_low & has_high, has_low, has_high],
        [(1.0 - u) * bottom + u * top, bottom + exponential, top - exponential],
        np.log(u / (1.0 - u)),
    )
    bounded: Array = np.clip(numbers, low, high).astype(leaf.dtype)
    return bounded.reshape(len(u), *leaf.shape)


def _integer_box(u: FloatArray, spec: BoxSpec, leaf: Leaf) -> Array:
    """Return integers between two bounds, both included, uniform.

    Distances from the lower bound are computed modulo 2**64, so that no width overflows.
    """
    wide = np.uint64 if leaf.dtype == np.uint64 else np.int64
    low, high = (b.reshape(-1).astype(wide).view(np.uint64) for b in (spec.low, spec.high))
    span = high - low
    offsets = np.minimum((u * (span.astype(np.float64) + 1.0)).astype(np.uint64), span)
    numbers: Array = (low + offsets).view(wide).astype(leaf.dtype)
    return numbers.reshape(len(u), *leaf.shape)


def _text(u: FloatArray, spec: TextSpec) -> npt.NDArray[np.uint32]:
    """Return texts of random length as code points, padded with zeros. Shape (n, max_length)."""
    charset = np.array([ord(c) for c in spec.charset or _ANY_CHARSET], np.uint32)
    lengths = 1 + _below(u[:, 0], np.int64(spec.max_length))
    letters = charset[_below(u[:, 1:], np.int64(len(charset)))]
    return np.where(np.arange(spec.max_length) < lengths[:, None], letters, 0).astype(np.uint32)
