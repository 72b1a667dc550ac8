"""RLlib's PPO with the yardstick's hyperparameters, everything in one process."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

import torch

from royale_server.bench import yardstick
from royale_server.bench.work.windows import Window


def measure(*, num_envs: int, seconds: float) -> dict[str, float]:
    """Return frames per second, learning included."""
    torch.set_num_threads(1)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # By name: the library is no dependency, and lives in another environment.
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    algorithm = _config(num_envs).build_algo()
    window, total = Window(seconds), 0
    while not window.is_closed(total):
        total = int(algorithm.train()["num_env_steps_sampled_lifetime"])
    ray.shutdown()
    return {"frames_per_s": window.rate}


def _config(num_envs: int) -> Any:  # noqa: ANN401 - a class of the peer
    ppo: Any = importlib.import_module("ray.rllib.algorithms.ppo")
    models: Any = importlib.import_module("ray.rllib.core.rl_module.default_model_config")
    frames = num_envs * yardstick.STEPS
    config = ppo.PPOConfig().environment(yardstick.ENV_ID)
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=num_envs,
        rollout_fragment_length=yardstick.STEPS,
    )
    config.learners(num_learners=0)
    config.debugging(seed=1, log_level="ERROR")
    config.training(
        train_batch_size_per_learner=frames,
        minibatch_size=frames // yardstick.MINIBATCHES,
        num_epochs=yardstick.EPOCHS,
        lr=yardstick.LEARNING_RATE,
        gamma=yardstick.GAMMA,
        lambda_=yardstick.GAE_LAMBDA,
        clip_param=yardstick.CLIP,
        entropy_coeff=yardstick.ENTROPY,
        vf_loss_coeff=yardstick.VALUE,
        grad_clip=yardstick.MAX_GRAD_NORM,
        use_kl_loss=False,
        vf_clip_param=1e9,
    )
    return config.rl_module(
        model_config=models.DefaultModelConfig(
            fcnet_hiddens=[yardstick.WIDTH, yardstick.WIDTH],
            fcnet_activation="tanh",
            vf_share_layers=False,
        )
    )
