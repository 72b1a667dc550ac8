"""Stable-Baselines3's PPO with the yardstick's hyperparameters, in one process."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from royale_server.bench import memory, yardstick
from royale_server.bench.work.windows import Window


def measure(*, num_envs: int, seconds: float) -> dict[str, float]:
    """Return frames per second, learning included, and the memory of the process."""
    torch.set_num_threads(1)
    # By name: the library is no dependency, and may live in another environment.
    sb3: Any = importlib.import_module("stable_baselines3")
    callbacks: Any = importlib.import_module("stable_baselines3.common.callbacks")
    environments: Any = importlib.import_module("stable_baselines3.common.env_util")
    window = Window(seconds)

    class Watch(callbacks.BaseCallback):  # type: ignore[misc]
        """Asks the window after each iteration, and ends training when it is closed."""

        is_closed = False

        def _on_step(self) -> bool:
            return not self.is_closed

        def _on_rollout_start(self) -> None:
            self.is_closed = window.is_closed(self.num_timesteps)

    model = sb3.PPO(
        "MlpPolicy",
        environments.make_vec_env(yardstick.ENV_ID, num_envs, seed=1),
        n_steps=yardstick.STEPS,
        batch_size=num_envs * yardstick.STEPS // yardstick.MINIBATCHES,
        n_epochs=yardstick.EPOCHS,
        learning_rate=yardstick.LEARNING_RATE,
        gamma=yardstick.GAMMA,
        gae_lambda=yardstick.GAE_LAMBDA,
        clip_range=yardstick.CLIP,
        ent_coef=yardstick.ENTROPY,
        vf_coef=yardstick.VALUE,
        max_grad_norm=yardstick.MAX_GRAD_NORM,
        device="cpu",
        seed=1,
    )
    model.learn(10**9, callback=Watch())
    return {"frames_per_s": window.rate, "pss_mib": memory.pss_mib(os.getpid())}
