"""Environments that are slow, or that no policy takes; ``--env-id tests.system.envs:Slow-v0``."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Text

EPISODE_LENGTH = 50


class Slow(gymnasium.Env[Any, Any]):
    """Counts its steps, and takes its time for them."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)

    def __init__(self, step_s: float = 0.0, slow_from: int = 0) -> None:
        self._step_s = step_s
        self._slow_from = slow_from
        self._steps = 0
        self._steps_ever = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._steps_ever += 1
        if self._steps_ever > self._slow_from:
            time.sleep(self._step_s)
        return self._observation(), 1.0, self._steps >= EPISODE_LENGTH, False, {}

    def _observation(self) -> Any:
        return np.full(4, self._steps / EPISODE_LENGTH, np.float32)


class Sulky(Slow):
    """Counts its steps, and says where it stands when it likes to."""

    def __init__(self, sulks_s: float = 0.0) -> None:
        super().__init__()
        self._sulks_s = sulks_s

    def snapshot_state(self) -> dict[str, Any]:
        time.sleep(self._sulks_s)
        return {"steps": self._steps}

    def restore_state(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]


class Spoken(gymnasium.Env[Any, Any]):
    """Says something. No policy of ours reads."""

    observation_space = Text(8)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return "hello", {}

    def step(self, action: Any) -> Any:
        return "again", 0.0, False, False, {}


gymnasium.register("Slow-v0", Slow)
gymnasium.register("Sulky-v0", Sulky)
gymnasium.register("Spoken-v0", Spoken)
