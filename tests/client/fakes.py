"""Environments and a server made for tests: every value in them can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from royale_client.driver import EnvDriver, Turn


class CountingEnv(gymnasium.Env):
    """Observation = steps taken in this episode; reward = 10 x observation + action.

    Episodes of ``length`` steps: even ones (counted from 0) terminate, odd ones are truncated.
    """

    observation_space = spaces.Box(0, 1000, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.episode = -1
        self.steps = 0
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.steps = 0
        return self._observation(), self._info()

    def step(self, action: Any):
        assert self.action_space.contains(action), f"{action!r}"
        self.actions.append(action)
        self.steps += 1
        ended = self.steps >= self.length
        is_even = self.episode % 2 == 0
        reward = 10.0 * self.steps + float(action)
        return self._observation(), reward, ended and is_even, ended and not is_even, self._info()

    def _observation(self) -> np.ndarray:
        return np.array([self.steps], np.float32)

    def _info(self) -> dict[Any, Any]:
        return {}


def counting_vector_env(lengths: Sequence[int], mode: AutoresetMode) -> SyncVectorEnv:
    """One CountingEnv per length under the given autoreset mode."""
    factories = [lambda length=length: CountingEnv(length) for length in lengths]
    return SyncVectorEnv(factories, autoreset_mode=mode)


class CountingVectorEnv(VectorEnv):
    """CountingEnv for many rows in a fixed number of Python calls; episodes never end."""

    def __init__(self, num_envs: int) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 1e6, (4,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, num_envs
        )
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._observations = np.zeros((num_envs, 4), np.float32)
        self._rewards = np.ones(num_envs)
        self._never = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        return self._observations, {}

    def step(self, actions: Any):
        return self._observations, self._rewards, self._never, self._never, {}


def replay(driver: EnvDriver, num_frames: int, action: int = 1) -> list[list[tuple[Any, ...]]]:
    """Play a driver as a server would and return each row's first frames.

    A frame is (observation, reward, terminated, truncated, successor): what the wire says about one
    action, whatever autoreset rule stands behind it. The successor of an ended episode is its final
    observation.
    """
    n = driver.num_slots
    frames: list[list[tuple[Any, ...]]] = [[] for _ in range(n)]
    turn = driver.reset(np.arange(n, dtype=np.uint64))
    pending: dict[int, float] = dict(enumerate(turn.observations[0][:, 0].tolist()))
    while min(map(len, frames)) < num_frames:
        asking = np.ones(n, np.bool_) if turn.asks is None else turn.asks
        turn = driver.step((np.full(int(asking.sum()), action),))
        pending = take_frames(turn, pending, frames)
    return [row[:num_frames] for row in frames]


def take_frames(
    turn: Turn, pending: dict[int, float], frames: list[list[tuple[Any, ...]]]
) -> dict[int, float]:
    """Close the pending frames with one turn; return what its asking rows observe."""
    n = len(frames)
    assert turn.rewards is not None
    assert turn.terminated is not None
    assert turn.truncated is not None
    asking = np.ones(n, np.bool_) if turn.asks is None else turn.asks
    observed = dict(zip(np.flatnonzero(asking).tolist(), turn.observations[0][:, 0], strict=True))
    ended = np.flatnonzero(turn.terminated | turn.truncated).tolist()
    finals = [] if turn.final_observations is None else turn.final_observations[0][:, 0].tolist()
    final_of = dict(zip(ended, finals, strict=True))
    for row, observation in pending.items():
        successor = final_of.get(row, observed.get(row))
        flags = bool(turn.terminated[row]), bool(turn.truncated[row])
        frames[row].append((observation, float(turn.rewards[row]), *flags, successor))
    return {row: float(value) for row, value in observed.items()}
