"""Action heads: from the actor's outputs to a distribution, and from samples to legal actions.

A head says how many outputs it needs, how a sample is stored, and what the environment gets for
it. Letters: n rows, P parts of a multi-discrete action, d dimensions of a continuous one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from algorithms import sampling
from algorithms.distributions import Categorical, DiagGaussian, Distribution, MultiCategorical
from algorithms.noise import Noise
from algorithms.policies.config import BoxActions
from algorithms.spaces import ArraySpec
from algorithms.storage import Array, BoolArray
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, MultiDiscreteSpec, SpaceSpec


def action_problems(spec: SpaceSpec, box_actions: BoxActions) -> list[str]:
    """List why no head produces actions of a space; empty if one does.

    Args:
        spec: The action space.
        box_actions: How samples become actions of a Box.

    Returns:
        Sentences.
    """
    match spec:
        case DiscreteSpec() | MultiDiscreteSpec():
            return []
        case BoxSpec() if np.dtype(spec.dtype).kind != "f" or math.prod(spec.shape) == 0:
            return [
                f"action space: got a Box of {spec.dtype} with shape {spec.shape}, this policy "
                "takes boxes of floats with at least one number"
            ]
        case BoxSpec() if box_actions == "rescale" and not _is_bounded(spec):
            return [
                "action space: got a Box without finite bounds, --policy.box-actions rescale needs "
                "them; use clip"
            ]
        case BoxSpec():
            return []
        case _:
            return [
                f"action space: got {type(spec).__name__.removesuffix('Spec')}, this policy takes "
                "Discrete, MultiDiscrete and Box"
            ]


def _is_bounded(spec: BoxSpec) -> bool:
    return bool(np.isfinite(spec.low).all() and np.isfinite(spec.high).all())


class ActionHead(nn.Module, ABC):
    """Between the actor's outputs and the actions of one space."""

    num_outputs: int
    """Width of the actor's last layer."""

    stored: ArraySpec
    """Layout of one stored sample."""

    @abstractmethod
    def distribution(self, outputs: Tensor, masks: Tensor | None) -> Distribution:
        """Return the distribution that the actor's outputs describe.

        Args:
            outputs: Shape ``(n, num_outputs)``.
            masks: Legal actions, bool ``(n, mask_size)``; or ``None``.
        """

    @abstractmethod
    def sample(
        self, outputs: Array, masks: BoolArray | None, noise: Noise, *, deterministic: bool
    ) -> Array:
        """Choose an action for each row, as it is stored.

        Args:
            outputs: Shape ``(n, num_outputs)``.
            masks: Legal actions, bool ``(n, mask_size)``; or ``None``.
            noise: Addresses of the rows.
            deterministic: Take the likeliest.
        """

    @abstractmethod
    def log_prob(self, outputs: Array, masks: BoolArray | None, samples: Array) -> Array:
        """Return the log-probability of stored samples, float32 of shape ``(n,)``."""

    @abstractmethod
    def to_environment(self, samples: Array) -> tuple[Array, ...]:
        """Return what the environments get for stored samples.

        Args:
            samples: Shape ``(n, *stored.shape)``.

        Returns:
            One array in the action leaf's exact shape and dtype, legal and inside the bounds.
        """


class DiscreteHead(ActionHead):
    """One choice; samples count from 0, actions from the space's start."""

    def __init__(self, spec: DiscreteSpec) -> None:
        super().__init__()
        self.num_outputs = spec.n
        self.stored = ArraySpec((), np.dtype(np.int64))
        self._start = spec.start

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> Distribution:
        """Return a categorical distribution with the outputs as logits."""
        return Categorical(outputs, masks)

    def sample(
        self, outputs: Array, masks: BoolArray | None, noise: Noise, *, deterministic: bool
    ) -> Array:
        """Return one choice a row."""
        return sampling.categorical(outputs, masks, noise, deterministic=deterministic)

    def log_prob(self, outputs: Array, masks: BoolArray | None, samples: Array) -> Array:
        """Return the log-probability of each choice."""
        return sampling.categorical_log_prob(outputs, masks, samples)

    def to_environment(self, samples: Array) -> tuple[Array, ...]:
        """Return the samples counted from the space's start."""
        return (samples + self._start if self._start else samples,)


class MultiDiscreteHead(ActionHead):
    """Several independent choices, their logits side by side."""

    def __init__(self, spec: MultiDiscreteSpec) -> None:
        super().__init__()
        self.num_outputs = sum(spec.nvec)
        self.stored = ArraySpec((len(spec.nvec),), np.dtype(np.int64))
        self._nvec = spec.nvec

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> Distribution:
        """Return independent categorical distributions."""
        return MultiCategorical(outputs, self._nvec, masks)

    def sample(
        self, outputs: Array, masks: BoolArray | None, noise: Noise, *, deterministic: bool
    ) -> Array:
        """Return one choice a part and row."""
        nvec = self._nvec
        return sampling.multi_categorical(outputs, nvec, masks, noise, deterministic=deterministic)

    def log_prob(self, outputs: Array, masks: BoolArray | None, samples: Array) -> Array:
        """Return the sum of the choices' log-probabilities."""
        return sampling.multi_categorical_log_prob(outputs, self._nvec, masks, samples)

    def to_environment(self, samples: Array) -> tuple[Array, ...]:
        """Return the samples as they are."""
        return (samples,)


class GaussianHead(ActionHead):
    """Real numbers around the outputs, with deviations that do not depend on the state.

    Training sees the sample and its log-probability; what the environment gets is derived from
    it here and never stored.

    Args:
        spec: The action space.
        box_actions: ``clip`` or ``rescale``, see the policy's settings.
        log_std_init: Log deviation of every dimension before training.
    """

    def __init__(self, spec: BoxSpec, box_actions: BoxActions, log_std_init: float) -> None:
        super().__init__()
        self.num_outputs = math.prod(spec.shape)
        self.stored = ArraySpec((self.num_outputs,), np.dtype(np.float32))
        self.log_std = nn.Parameter(torch.full((self.num_outputs,), log_std_init))
        self._is_rescaled = box_actions == "rescale"
        self._shape = spec.shape
        self._dtype = np.dtype(spec.dtype)
        self._low, self._high = spec.low.reshape(-1), spec.high.reshape(-1)

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> Distribution:
        """Return a normal distribution around the outputs."""
        return DiagGaussian(outputs, self.log_std)

    def sample(
        self, outputs: Array, masks: BoolArray | None, noise: Noise, *, deterministic: bool
    ) -> Array:
        """Return numbers around the outputs."""
        log_std = self.log_std.numpy(force=True)
        return sampling.diag_gaussian(outputs, log_std, noise, deterministic=deterministic)

    def log_prob(self, outputs: Array, masks: BoolArray | None, samples: Array) -> Array:
        """Return the sum of the dimensions' log-densities."""
        return sampling.diag_gaussian_log_prob(outputs, self.log_std.numpy(force=True), samples)

    def to_environment(self, samples: Array) -> tuple[Array, ...]:
        """Return the samples inside the bounds, in the space's shape and dtype."""
        if self._is_rescaled:
            samples = self._stretch(samples.astype(np.float64))
        bounded = np.clip(samples, self._low, self._high).astype(self._dtype, copy=False)
        return (bounded.reshape(len(samples), *self._shape),)

    def _stretch(self, samples: Array) -> Array:
        """Map [-1, 1] onto the bounds so that both ends are met exactly."""
        share = np.clip(0.5 * (samples + 1.0), 0.0, 1.0)
        return (1.0 - share) * self._low + share * self._high


def make_head(spec: SpaceSpec, box_actions: BoxActions, log_std_init: float) -> ActionHead:
    """Make the head for an action space.

    Args:
        spec: A space without ``action_problems``.
        box_actions: How samples become actions of a Box.
        log_std_init: Log deviation of Box actions before training.

    Returns:
        The head.
    """
    match spec:
        case DiscreteSpec():
            return DiscreteHead(spec)
        case MultiDiscreteSpec():
            return MultiDiscreteHead(spec)
        case BoxSpec():
            return GaussianHead(spec, box_actions, log_std_init)
        case _:
            raise TypeError(f"make_head: no head for {type(spec).__name__}")
