"""What can be wrong with the settings of PPO, each by itself and beside the others.

Imports no torch. Whether a policy can do what they ask for is seen when the learner is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.config import (
    EXCEPT,
    RESTORE_ALL,
    at_least_one,
    in_unit_interval,
    not_negative,
    positive,
)

if TYPE_CHECKING:
    from algorithms.ppo.config import PPOConfig


def setting_problems(config: PPOConfig) -> list[str]:
    """List everything that is wrong with these settings, one sentence each."""
    return (
        _collection_problems(config)
        + _batch_problems(config)
        + _optimizer_problems(config)
        + _loss_problems(config)
        + _gamma_problems(config)
        + _bonus_problems(config)
        + _freeze_problems(config)
    )


def _collection_problems(config: PPOConfig) -> list[str]:
    found = at_least_one("--algo.horizon-frames", config.horizon_frames)
    found += at_least_one("--algo.num-epochs", config.num_epochs)
    found += at_least_one("--algo.minibatch-size", config.minibatch_size)
    found += at_least_one("--algo.num-minibatches", config.num_minibatches)
    if (config.minibatch_size is None) == (config.num_minibatches is None):
        found.append(
            f"--algo.minibatch-size, --algo.num-minibatches: got {config.minibatch_size} and "
            f"{config.num_minibatches}, expected exactly one of them and None for the other"
        )
    if config.restore != RESTORE_ALL and config.policy_checkpoint_path is None:
        found.append(
            f"--algo.restore: got {config.restore}, which needs --algo.policy-checkpoint-path"
        )
    if config.restore in {"", EXCEPT}:
        found.append("--algo.restore: got no name, expected all, model, except-NAME or a pattern")
    return found


def _batch_problems(config: PPOConfig) -> list[str]:
    batch, minibatch = config.batch_size, config.minibatch_size
    if batch is None:
        return []
    if minibatch is None:
        return [f"--algo.batch-size: got {batch}, which needs --algo.minibatch-size"]
    if batch < minibatch:
        return [
            f"--algo.batch-size: got {batch}, expected at least --algo.minibatch-size, {minibatch}"
        ]
    return []


def _optimizer_problems(config: PPOConfig) -> list[str]:
    found = positive("--algo.learning-rate", config.learning_rate)
    found += not_negative("--algo.learning-rate-end", config.learning_rate_end)
    found += positive("--algo.adam-eps", config.adam_eps)
    found += positive("--algo.max-grad-norm", config.max_grad_norm)
    found += positive("--algo.target-kl", config.target_kl)
    found += positive("--algo.lr-backoff-kl", config.lr_backoff_kl)
    found += at_least_one("--algo.lr-backoff-patience", config.lr_backoff_patience)
    if not 0.0 < config.lr_backoff_factor < 1.0:
        found.append(f"--algo.lr-backoff-factor: got {config.lr_backoff_factor}, expected (0, 1)")
    if not 0.0 < config.lr_backoff_min <= 1.0:
        found.append(f"--algo.lr-backoff-min: got {config.lr_backoff_min}, expected (0, 1]")
    if config.critic_learning_rate is not None and not config.separate_optimizers:
        found.append(
            f"--algo.critic-learning-rate: got {config.critic_learning_rate}, which needs "
            "--algo.separate-optimizers"
        )
    found += positive("--algo.critic-learning-rate", config.critic_learning_rate)
    found += at_least_one("--algo.max-nonfinite-steps", config.max_nonfinite_steps)
    return found


def _loss_problems(config: PPOConfig) -> list[str]:
    found = in_unit_interval("--algo.gamma", config.gamma)
    found += in_unit_interval("--algo.gae-lambda", config.gae_lambda)
    found += positive("--algo.clip-coef", config.clip_coef)
    found += positive("--algo.value-clip", config.value_clip)
    if config.dual_clip is not None and not config.dual_clip > 1.0:
        found.append(f"--algo.dual-clip: got {config.dual_clip}, expected a number above 1")
    found += not_negative("--algo.vf-coef", config.vf_coef)
    found += not_negative("--algo.ent-coef", config.ent_coef)
    found += not_negative("--algo.ent-coef-end", config.ent_coef_end)
    found += positive("--algo.scaled-reward-clip", config.scaled_reward_clip)
    return found


def _gamma_problems(config: PPOConfig) -> list[str]:
    end = config.gamma_end
    found = at_least_one("--algo.gamma-horizon", config.gamma_horizon)
    if end is None and config.gamma_horizon is not None:
        found.append(
            f"--algo.gamma-horizon: got {config.gamma_horizon}, which needs --algo.gamma-end"
        )
    if end is not None and not (0.0 <= end < 1.0 and config.gamma < 1.0):
        found.append(
            f"--algo.gamma, --algo.gamma-end: got {config.gamma} and {end}, expected numbers in "
            "[0, 1): without discount there is no horizon to change"
        )
    return found


def _bonus_problems(config: PPOConfig) -> list[str]:
    found = not_negative("--algo.noop-ent-coef", config.noop_ent_coef)
    found += not_negative("--algo.noop-ent-coef-end", config.noop_ent_coef_end)
    for flag, frames, kind in (
        ("--algo.ent-coef", config.ent_coef_horizon, config.ent_coef_schedule),
        ("--algo.noop-ent-coef", config.noop_ent_coef_horizon, config.noop_ent_coef_schedule),
    ):
        found += at_least_one(f"{flag}-horizon", frames)
        if frames is not None and kind == "constant":
            found.append(
                f"{flag}-horizon: got {frames}, which needs {flag}-schedule linear or cosine"
            )
    return found


def _freeze_problems(config: PPOConfig) -> list[str]:
    steps, frames = config.freeze_actor_iterations, config.freeze_actor_until
    found = not_negative("--algo.freeze-actor-iterations", steps)
    found += not_negative("--algo.freeze-actor-until", frames)
    if steps and frames:
        found.append(
            f"--algo.freeze-actor-iterations, --algo.freeze-actor-until: got {steps} and {frames}, "
            "expected at most one of them"
        )
    return found
