"""The probe as a Gymnasium environment, for clients that run such: ``RoyaleProbe-v0``.

Importing this module registers it. The rules stand in ``probe``.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from royale_client.conformance.probe import (
    ACTION_SPACE,
    OBSERVATION_SPACE,
    PROBE_ENV_ID,
    ProbeState,
)

Observation = npt.NDArray[np.float32]


class ProbeEnv(gymnasium.Env[Observation, np.int64]):
    """One slot of the probe."""

    observation_space = gymnasium.spaces.Box(
        OBSERVATION_SPACE.low, OBSERVATION_SPACE.high, OBSERVATION_SPACE.shape, np.float32
    )
    action_space = gymnasium.spaces.Discrete(ACTION_SPACE.n, start=ACTION_SPACE.start)

    def __init__(self) -> None:
        self._state: ProbeState | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the first episode of a seed, or the next episode of the last one."""
        super().reset(seed=seed)
        if seed is not None or self._state is None:
            self._state = ProbeState.seeded(seed or 0)
        else:
            self._state = self._state.next_episode()
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out one action."""
        self._state = state = self._standing().after(int(action))
        return self._observation(), state.reward, state.terminated, state.truncated, {}

    def snapshot_state(self) -> dict[str, Any]:
        """Return what decides the future."""
        state = self._standing()
        return {
            "seed": state.seed,
            "episode": state.episode,
            "step": state.step,
            "action": state.action,
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go back to where a snapshot was taken."""
        self._state = ProbeState(**{key: int(value) for key, value in state.items()})

    def _observation(self) -> Observation:
        return np.array(self._standing().observation, np.float32)

    def _standing(self) -> ProbeState:
        if self._state is None:
            raise RuntimeError("the probe is stepped before its first reset")
        return self._state


gymnasium.register(PROBE_ENV_ID, f"{__name__}:{ProbeEnv.__name__}")
