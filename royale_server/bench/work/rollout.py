"""An in-process rollout: environments, towers, and arrays made once and written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from royale_server.bench.work.networks import NUM_OBSERVATIONS, Towers
from royale_server.model.threads import limit_threads

if TYPE_CHECKING:
    import gymnasium


class Rollout:
    """One iteration's frames, ``(T, N)`` each, and the environments they come from.

    An environment that ended is reset by its next step (Gymnasium's default); that step is no
    frame, and ``is_frame`` says so.

    Args:
        num_envs: Environments N.
        steps: Steps T of an iteration.
        vectorization: Gymnasium's ``sync``, or ``vector_entry_point``.
        net: What acts.
    """

    def __init__(self, num_envs: int, steps: int, vectorization: str, net: Towers) -> None:
        self.net = net
        self.envs = make_envs(num_envs, vectorization)
        shape = (steps, num_envs)
        self.observations = np.zeros((*shape, NUM_OBSERVATIONS), np.float32)
        self.actions = np.zeros(shape, np.int64)
        self.log_probs = np.zeros(shape, np.float32)
        self.values = np.zeros(shape, np.float32)
        self.rewards = np.zeros(shape, np.float32)
        self.ended = np.zeros(shape, np.bool_)
        self.terminated = np.zeros(shape, np.bool_)
        self.is_frame = np.zeros(shape, np.bool_)
        self.now = np.asarray(self.envs.reset(seed=1)[0], np.float32)
        self._is_reset = np.zeros(num_envs, np.bool_)

    def collect(self) -> None:
        """Fill the arrays with one iteration."""
        for t in range(len(self.rewards)):
            self.step(t)

    def step(self, t: int) -> int:
        """Carry out one step of all environments; return their number.

        Steps that only reset count too, as everybody counts them.
        """
        sample = self.net.sample(self.now)
        self.observations[t] = self.now
        self.actions[t] = sample.actions
        self.log_probs[t] = sample.log_probs
        self.values[t] = sample.values
        after, rewards, terminated, truncated, _ = self.envs.step(sample.actions)
        self.rewards[t] = rewards
        self.terminated[t] = terminated
        np.logical_or(terminated, truncated, out=self.ended[t])
        np.logical_not(self._is_reset, out=self.is_frame[t])
        self._is_reset = self.ended[t].copy()
        self.now = np.asarray(after, np.float32)
        return len(rewards)


def make_envs(num_envs: int, vectorization: str) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Build the environments."""
    import gymnasium

    if vectorization == "sync":
        return gymnasium.vector.SyncVectorEnv([_make_env] * num_envs)
    return gymnasium.make_vec(
        "CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point"
    )


def _make_env() -> gymnasium.Env[Any, Any]:
    import gymnasium

    return gymnasium.make("CartPole-v1")


def one_thread(seed: int = 1) -> None:
    """Let torch and NumPy use one thread, and seed torch."""
    limit_threads(1)
    torch.manual_seed(seed)
