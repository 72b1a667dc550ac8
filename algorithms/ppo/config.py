"""Settings of PPO, and the named sets of them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from algorithms.config import (
    EXCEPT,
    MAY_CHANGE,
    OF_THE_START,
    RESTORE_ALL,
    LearnerConfig,
    at_least_one,
    in_unit_interval,
    not_negative,
    positive,
)
from algorithms.schedules import ScheduleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig(LearnerConfig):
    """Settings of clipped proximal policy optimisation."""

    uid: ClassVar[str] = "ppo"

    horizon_frames: int | None = field(default=None, metadata=MAY_CHANGE)
    """Stored frames over which the schedules run; they keep their end value after it. None: equal
    to --algo.total-timesteps."""

    num_epochs: int = 10
    """Passes over the frames of an iteration."""

    minibatch_size: int | None = 64
    """Frames per gradient step. The last minibatch of a pass takes the remainder."""

    num_minibatches: int | None = None
    """Gradient steps per pass, in place of --algo.minibatch-size: give exactly one of the two and
    set the other to None."""

    learning_rate: float = 3e-4
    """Step size of Adam at frame 0, for actor and critic."""

    learning_rate_end: float = 0.0
    """Step size at the horizon."""

    learning_rate_schedule: ScheduleKind = "linear"
    """How the step size goes from start to end. constant: it does not."""

    adam_eps: float = 1e-5
    """Adam's epsilon."""

    max_grad_norm: float = 0.5
    """Bound of the norm of the whole gradient, before Adam."""

    gamma: float = 0.99
    """Discount per frame, in [0, 1]."""

    gae_lambda: float = 0.95
    """Weight of long estimates against short ones in the advantage, in [0, 1]."""

    clip_coef: float = 0.2
    """How far the probability ratio may leave 1 before a frame stops pushing."""

    dual_clip: float | None = None
    """Bound, in units of a negative advantage, on how much one frame can cost; above 1. None: no
    bound."""

    value_clip: float | None = None
    """How far a value may leave the value seen while collecting, in units of the return. None: no
    clipping."""

    vf_coef: float = 0.5
    """Weight of the value loss, which is half the mean squared error."""

    ent_coef: float = 0.0
    """Weight of the entropy bonus at frame 0, per nat."""

    ent_coef_end: float = 0.0
    """Weight of the entropy bonus at the horizon."""

    ent_coef_schedule: ScheduleKind = "constant"
    """How the weight goes from start to end. constant: it does not."""

    normalize_advantages: bool = True
    """Scale the advantages of each minibatch to mean 0 and sample deviation 1. A minibatch of one
    frame is left unscaled; equal advantages become 0."""

    scale_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return. The statistics move at the
    end of each learn step and are saved with the weights."""

    scaled_reward_clip: float | None = 10.0
    """Bound of scaled rewards, in deviations. Without --algo.scale-rewards nothing is clipped."""

    target_kl: float | None = None
    """End the learn step before the first gradient step whose minibatch shows a larger
    KL divergence from the collecting policy, in nats. None: no limit."""

    lr_backoff_kl: float | None = None
    """Lower the learning rate for good when the KL divergence of a learn step exceeds this in
    --algo.lr-backoff-patience steps running. None: never."""

    lr_backoff_patience: int = 3
    """Learn steps above --algo.lr-backoff-kl before the learning rate is lowered."""

    lr_backoff_factor: float = 0.5
    """What the learning rate is multiplied with each time, in (0, 1)."""

    lr_backoff_min: float = 0.1
    """Smallest share of the scheduled learning rate that the lowering may leave, in (0, 1]."""

    freeze_actor_iterations: int = 0
    """First learn steps in which only the critic is trained."""

    max_nonfinite_steps: int = 10
    """Gradient steps running that may be skipped for a gradient that is not finite; the next one
    ends the run. A skipped step changes neither weights nor optimizer."""

    policy_checkpoint_path: Path | None = field(default=None, metadata=OF_THE_START)
    """Checkpoint of another run to start from: the directory that holds model.safetensors."""

    restore: str = field(default=RESTORE_ALL, metadata=OF_THE_START)
    """How much of that checkpoint to take. all: everything, counters included. model: weights
    only. except-critic: all weights but the critic's; except-NAME for any other part. Or a pattern
    of tensor names to take, such as actor.* . Normaliser statistics always come along."""

    @property
    def schedule_frames(self) -> int:
        """Stored frames over which the schedules run."""
        return self.total_timesteps if self.horizon_frames is None else self.horizon_frames

    def frames_per_minibatch(self, num_frames: int) -> int:
        """Return how many frames a gradient step uses, out of this many in a pass."""
        if self.minibatch_size is not None:
            return self.minibatch_size
        return max(1, num_frames // (self.num_minibatches or 1))

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        return (
            LearnerConfig.problems(self)
            + self._collection_problems()
            + self._optimizer_problems()
            + self._loss_problems()
        )

    def _collection_problems(self) -> list[str]:
        found = at_least_one("--algo.horizon-frames", self.horizon_frames)
        found += at_least_one("--algo.num-epochs", self.num_epochs)
        found += at_least_one("--algo.minibatch-size", self.minibatch_size)
        found += at_least_one("--algo.num-minibatches", self.num_minibatches)
        if (self.minibatch_size is None) == (self.num_minibatches is None):
            found.append(
                f"--algo.minibatch-size, --algo.num-minibatches: got {self.minibatch_size} and "
                f"{self.num_minibatches}, expected exactly one of them and None for the other"
            )
        if self.restore != RESTORE_ALL and self.policy_checkpoint_path is None:
            found.append(
                f"--algo.restore: got {self.restore}, which needs --algo.policy-checkpoint-path"
            )
        if self.restore in {"", EXCEPT}:
            found.append(
                "--algo.restore: got no name, expected all, model, except-NAME or a pattern"
            )
        return found

    def _optimizer_problems(self) -> list[str]:
        found = positive("--algo.learning-rate", self.learning_rate)
        found += not_negative("--algo.learning-rate-end", self.learning_rate_end)
        found += positive("--algo.adam-eps", self.adam_eps)
        found += positive("--algo.max-grad-norm", self.max_grad_norm)
        found += positive("--algo.target-kl", self.target_kl)
        found += positive("--algo.lr-backoff-kl", self.lr_backoff_kl)
        found += at_least_one("--algo.lr-backoff-patience", self.lr_backoff_patience)
        if not 0.0 < self.lr_backoff_factor < 1.0:
            found.append(f"--algo.lr-backoff-factor: got {self.lr_backoff_factor}, expected (0, 1)")
        if not 0.0 < self.lr_backoff_min <= 1.0:
            found.append(f"--algo.lr-backoff-min: got {self.lr_backoff_min}, expected (0, 1]")
        found += not_negative("--algo.freeze-actor-iterations", self.freeze_actor_iterations)
        found += at_least_one("--algo.max-nonfinite-steps", self.max_nonfinite_steps)
        return found

    def _loss_problems(self) -> list[str]:
        found = in_unit_interval("--algo.gamma", self.gamma)
        found += in_unit_interval("--algo.gae-lambda", self.gae_lambda)
        found += positive("--algo.clip-coef", self.clip_coef)
        found += positive("--algo.value-clip", self.value_clip)
        if self.dual_clip is not None and not self.dual_clip > 1.0:
            found.append(f"--algo.dual-clip: got {self.dual_clip}, expected a number above 1")
        found += not_negative("--algo.vf-coef", self.vf_coef)
        found += not_negative("--algo.ent-coef", self.ent_coef)
        found += not_negative("--algo.ent-coef-end", self.ent_coef_end)
        found += positive("--algo.scaled-reward-clip", self.scaled_reward_clip)
        return found


VARIANTS: Mapping[str, PPOConfig] = {
    "default": PPOConfig(),
    # Small, fast tasks with discrete actions.
    "classic": PPOConfig(total_timesteps=200_000, minibatch_size=256, learning_rate=1e-3),
    # Continuous control. Huang et al. 2022, «The 37 implementation details of PPO».
    "mujoco": PPOConfig(scale_rewards=True),
}
"""Settings by variant name."""
