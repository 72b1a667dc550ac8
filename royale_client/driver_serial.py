"""Single environments stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, iterate

from royale_client.driver import BoolArray, EnvValue, FloatArray


class SerialVectorEnv(SyncVectorEnv[Any, Any]):
    """Gymnasium's `SyncVectorEnv` of autoreset DISABLED without copies, only faster.

    A step returns the same values. What is left out is work for each environment that decides
    nothing here: asking for the autoreset rule, writing single numbers into arrays, merging infos
    that are empty, and stacking observations that need only be laid end to end.

    Args:
        env_fns: Make the environments, all of the same spaces.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        super().__init__(env_fns, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        space = self.single_observation_space
        self._row_shape = space.shape if type(space) is Box and space.shape else None

    def step(
        self, actions: EnvValue
    ) -> tuple[EnvValue, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step every environment; see `gymnasium.vector.SyncVectorEnv.step`."""
        assert 1 not in self._autoreset_envs.tobytes(), "an ended environment was not reset"
        observations = self._env_obs
        rewards, terminations, truncations = [], [], []
        infos: dict[str, Any] = {}
        rows = zip(self.envs, iterate(self.action_space, actions), strict=True)
        for row, (env, action) in enumerate(rows):
            observations[row], reward, terminated, truncated, info = env.step(action)
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
            if info:
                infos = self._add_info(infos, info, row)
        self._observations = self._batch(observations)
        self._rewards = np.array(rewards, np.float64)
        self._terminations = np.array(terminations, np.bool_)
        self._truncations = np.array(truncations, np.bool_)
        self._autoreset_envs = self._terminations | self._truncations
        # A reset of some rows writes into its own arrays.
        ended = self._terminations.copy(), self._truncations.copy()
        return self._observations, self._rewards, *ended, infos

    def _batch(self, observations: list[Any]) -> EnvValue:
        """Return single observations as a batch, in the buffer that is there for it."""
        batch, shape = self._observations, self._row_shape
        if shape is not None and all([_is_row(value, shape) for value in observations]):
            np.concatenate(observations, out=batch.reshape(-1, *shape[1:]))
            return batch
        return concatenate(self.single_observation_space, observations, batch)


def _is_row(value: EnvValue, shape: tuple[int, ...]) -> bool:
    return type(value) is np.ndarray and value.shape == shape


def hands_out_rows(env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> bool:
    """Say whether environments get one row of the actions each, and nobody sees the whole batch.

    A subclass of somebody else might look at it.
    """
    return type(env) in (SyncVectorEnv, SerialVectorEnv)
