"""An environment of one's own: walk to the right end of a corridor.

It is an ordinary Gymnasium environment and knows nothing of a server. Importing the module
registers it, so ``royale-env-client gym --env-id corridor:Corridor-v0`` finds it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Ten steps long; every step costs, the end pays."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.position = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin at the left end."""
        super().reset(seed=seed)
        self.position = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go right for action 1, left for action 0."""
        self.position = max(0, self.position + (1 if action else -1))
        at_end = self.position >= self.length
        return self._observation(), 1.0 if at_end else -0.01, at_end, False, {}

    def snapshot_state(self) -> dict[str, Any]:
        """Return what decides the future, for runs that are resumed."""
        return {"position": self.position}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self.position = state["position"]

    def _observation(self) -> np.ndarray:
        return np.array([self.position / self.length], np.float32)


gym.register("Corridor-v0", entry_point=Corridor, max_episode_steps=200)
