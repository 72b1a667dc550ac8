"""Settings of the policies that come with Royale. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from algorithms.config import positive, refuse

Activation: TypeAlias = Literal["tanh", "relu", "elu", "silu"]
BoxActions: TypeAlias = Literal["clip", "rescale"]
Precision: TypeAlias = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPPolicyConfig:
    """Settings of the fully connected policy: an actor and a critic that share nothing."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Width of each hidden layer of the actor."""

    critic_hidden_sizes: tuple[int, ...] | None = None
    """Width of each hidden layer of the critic. None: as the actor's."""

    activation: Activation = "tanh"
    """What follows each hidden layer."""

    precision: Precision = "float32"
    """Number format of the layers' products, in acting and in learning. bfloat16 halves what a GPU
    moves for wide layers, with three digits instead of seven; weights, log-probabilities and losses
    stay float32. On a processor it is slower."""

    normalize_observations: bool = False
    """Scale float observations by their running mean and deviation. The statistics are frozen
    while frames are collected, move at the end of each learn step, and are saved with the
    weights."""

    observation_clip: float = 10.0
    """Bound of scaled observations, in deviations. Without --policy.normalize-observations nothing
    is clipped."""

    box_actions: BoxActions = "clip"
    """How an unbounded sample becomes an action of a bounded Box. clip: the sample is in the
    environment's units and is clipped into the bounds. rescale: the sample is clipped to [-1, 1]
    and stretched onto the bounds, which must be finite. Training always sees the sample."""

    log_std_init: float = 0.0
    """Natural logarithm of the standard deviation of Box actions before training, in the
    sample's unit."""

    def __post_init__(self) -> None:
        refuse("mlp-policy", self.problems())

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        found = _widths("--policy.hidden-sizes", self.hidden_sizes)
        found += _widths("--policy.critic-hidden-sizes", self.critic_hidden_sizes or ())
        found += positive("--policy.observation-clip", self.observation_clip)
        if not math.isfinite(self.log_std_init):
            found.append(f"--policy.log-std-init: got {self.log_std_init}, expected finite")
        return found


def _widths(flag: str, sizes: tuple[int, ...]) -> list[str]:
    if all(size >= 1 for size in sizes):
        return []
    return [f"{flag}: got {sizes}, expected widths of at least 1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyPolicyConfig:
    """The random policy has no settings."""


MLP_VARIANTS: Mapping[str, MLPPolicyConfig] = {
    "default": MLPPolicyConfig(),
    "mujoco": MLPPolicyConfig(normalize_observations=True),
}
"""Settings by variant name."""

DUMMY_VARIANTS: Mapping[str, DummyPolicyConfig] = {"default": DummyPolicyConfig()}
"""Settings by variant name."""
