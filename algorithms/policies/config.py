"""Settings of the policies that come with Royale. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from algorithms.config import at_least_one, not_negative, positive, refuse

Activation: TypeAlias = Literal["tanh", "relu", "elu", "silu"]
BoxActions: TypeAlias = Literal["clip", "rescale"]
Precision: TypeAlias = Literal["float32", "bfloat16"]

RATIO_TOLERANCE: Mapping[str, float] = {"float32": 1e-4, "bfloat16": 2e-2}
"""How far the probability ratio may be from 1 where nothing but rounding differs, by precision."""


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
class ArenaPolicyConfig:
    """Settings of the arena policy: two residual trunks over tiles, and what reads them."""

    channels: int = 16
    """Features of a cell in the actor's trunk."""

    blocks: int = 1
    """Residual blocks of the actor's trunk, two convolutions each."""

    critic_channels: int | None = None
    """Features of a cell in the critic's trunk. None: as the actor's."""

    critic_blocks: int | None = None
    """Residual blocks of the critic's trunk. None: as the actor's."""

    stride: Literal[1, 2] = 2
    """Tiles along either side of a cell of the trunks. 2: there are a quarter as many cells, which
    costs a third to a half; what is said of tiles still has all of them."""

    hidden_size: int = 64
    """Width of the layer behind each trunk that sums up tiles and vector."""

    keys: int = 16
    """Numbers that a tile offers by being where it is; a card asks for them."""

    card_planes: tuple[int, ...] = (12, 13)
    """Planes whose numbers are names of cards and not amounts. Each is embedded."""

    card_embedding: int = 4
    """Numbers that a card's name becomes."""

    hand_start: int = 2
    """Entry of the vector with which the names of the cards in hand begin."""

    hand_names: int = 17
    """Entries of the vector for each slot of the hand; one of them is 1 and says which card it
    is."""

    act_probability: float = 0.1
    """How likely the untrained policy acts where it can, in (0, 1); it waits otherwise. One that
    always acts never learns what saving is good for."""

    def __post_init__(self) -> None:
        refuse("arena-policy", self.problems())

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        found = at_least_one("--policy.channels", self.channels)
        found += not_negative("--policy.blocks", self.blocks)
        found += at_least_one("--policy.critic-channels", self.critic_channels)
        found += not_negative("--policy.critic-blocks", self.critic_blocks)
        if self.stride not in (1, 2):
            found.append(f"--policy.stride: got {self.stride}, expected 1 or 2")
        found += at_least_one("--policy.hidden-size", self.hidden_size)
        found += at_least_one("--policy.keys", self.keys)
        planes = self.card_planes
        if len(set(planes)) != len(planes) or min(planes, default=0) < 0:
            found.append(f"--policy.card-planes: got {planes}, expected different numbers from 0")
        found += at_least_one("--policy.card-embedding", self.card_embedding)
        found += not_negative("--policy.hand-start", self.hand_start)
        found += at_least_one("--policy.hand-names", self.hand_names)
        if not 0.0 < self.act_probability < 1.0:
            found.append(f"--policy.act-probability: got {self.act_probability}, expected (0, 1)")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyPolicyConfig:
    """The random policy has no settings."""


MLP_VARIANTS: Mapping[str, MLPPolicyConfig] = {
    "default": MLPPolicyConfig(),
    "mujoco": MLPPolicyConfig(normalize_observations=True),
}
"""Settings by variant name."""

ARENA_VARIANTS: Mapping[str, ArenaPolicyConfig] = {
    "default": ArenaPolicyConfig(),
    "large": ArenaPolicyConfig(channels=24, blocks=2, hidden_size=128),
}
"""Settings by variant name."""

DUMMY_VARIANTS: Mapping[str, DummyPolicyConfig] = {"default": DummyPolicyConfig()}
"""Settings by variant name."""
