"""The probe: an environment whose observations, rewards and endings tell all that was done to it.

A slot counts episodes and steps, and remembers its seed and its last action:

- An observation is ``[seed mod 65536, episode, step, last action]``; episode and step count from 0,
  and there is no action, 0, before the first step of an episode.
- A step with action ``a`` counts up the step to ``t`` and rewards ``a + 10 t + 1000 episode``.
- With ``k = (seed mod 65536 + episode) mod 3`` an episode has ``3 + k`` steps. Its last one says
  terminated for 0, truncated for 1, both for 2.
- The next episode has the next number and the same seed.

So an action that went to another row, a step that was lost or done twice, a row that shifted and a
final observation that is none can all be seen in what comes back. This module is plain arithmetic
and knows no message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from royale_client.wire.spaces import BoxSpec, DiscreteSpec

PROBE_ENV_ID = "RoyaleProbe-v0"
"""``env_id`` by which a client says that it runs the probe; a prefix up to a colon is ignored."""

SEED_MODULUS = 65536
OBSERVATION_SPACE = BoxSpec(0.0, float(2**24), (4,), "float32")
"""Whole numbers of that size are exact in float32."""
ACTION_SPACE = DiscreteSpec(7, start=2)

Observation: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeState:
    """Where one slot stands."""

    seed: int
    """Seed modulo `SEED_MODULUS`."""
    episode: int = 0
    """Ordinal of the episode."""
    step: int = 0
    """Steps of the episode so far."""
    action: int = 0
    """The last action of the episode; 0 before the first."""

    @classmethod
    def seeded(cls, seed: int) -> ProbeState:
        """Begin the first episode of a slot with this seed."""
        return cls(seed=seed % SEED_MODULUS)

    @property
    def kind(self) -> int:
        """Length and ending of the episode: 3 steps and terminated, and so on."""
        return (self.seed + self.episode) % 3

    @property
    def observation(self) -> Observation:
        """What the slot shows."""
        return (float(self.seed), float(self.episode), float(self.step), float(self.action))

    @property
    def reward(self) -> float:
        """Reward of the last step."""
        return float(self.action + 10 * self.step + 1000 * self.episode)

    @property
    def terminated(self) -> bool:
        """Whether the last step ended the episode by itself."""
        return self._is_over and self.kind != 1

    @property
    def truncated(self) -> bool:
        """Whether the last step cut the episode off."""
        return self._is_over and self.kind != 0

    @property
    def _is_over(self) -> bool:
        return self.step >= 3 + self.kind

    def after(self, action: int) -> ProbeState:
        """Carry out one action."""
        return replace(self, step=self.step + 1, action=action)

    def next_episode(self) -> ProbeState:
        """Begin the next episode."""
        return ProbeState(seed=self.seed, episode=self.episode + 1)
