"""Settings of PPO, and the named sets of them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from algorithms.config import MAY_CHANGE, OF_THE_START, RESTORE_ALL, LearnerConfig
from algorithms.ppo.setting_problems import setting_problems
from algorithms.schedules import ScheduleKind

ForcedRows: TypeAlias = Literal["all", "critic_only"]


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
    """Frames per gradient step, or with --algo.batch-size per piece of one. The last gradient step
    of a pass takes the remainder."""

    num_minibatches: int | None = None
    """Gradient steps per pass, in place of --algo.minibatch-size: give exactly one of the two and
    set the other to None."""

    batch_size: int | None = None
    """Frames per gradient step where --algo.minibatch-size shall only say how many of them fit into
    memory at once: the gradients of minibatches are then added up until this many frames are in.
    None: a minibatch is a gradient step."""

    learning_rate: float = 3e-4
    """Step size of Adam at frame 0, for actor and critic."""

    learning_rate_end: float = 0.0
    """Step size at the horizon."""

    learning_rate_schedule: ScheduleKind = "linear"
    """How the step size goes from start to end. constant: it does not."""

    separate_optimizers: bool = False
    """Bound the gradients of actor and critic apart, and step the two at rates of their own. Needs
    a policy whose halves share no weight."""

    critic_learning_rate: float | None = None
    """The critic's step size at frame 0, with --algo.separate-optimizers. It goes to its end as the
    actor's does, in proportion. None: as the actor's."""

    adam_eps: float = 1e-5
    """Adam's epsilon."""

    max_grad_norm: float = 0.5
    """Bound of the norm of the whole gradient, before Adam. With --algo.separate-optimizers it
    bounds actor and critic apart."""

    gamma: float = 0.99
    """Discount per frame, in [0, 1]."""

    gamma_end: float | None = None
    """Discount at --algo.gamma-horizon; the number of frames that a frame looks ahead,
    1 / (1 - gamma), grows or shrinks by equal factors until then. Environments that shape rewards
    by a potential are told the discount of each iteration. None: it stays."""

    gamma_horizon: int | None = None
    """Stored frames until --algo.gamma-end holds. None: --algo.horizon-frames."""

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

    ent_coef_horizon: int | None = None
    """Stored frames until --algo.ent-coef-end holds. None: --algo.horizon-frames."""

    noop_ent_coef: float = 0.0
    """Weight of a bonus for being undecided between action 0, the no-op, and all others, per nat,
    at frame 0. Needs one discrete action with masks; frames with one legal action have no part."""

    noop_ent_coef_end: float = 0.0
    """Weight of that bonus at its horizon."""

    noop_ent_coef_schedule: ScheduleKind = "constant"
    """How that weight goes from start to end. constant: it does not."""

    noop_ent_coef_horizon: int | None = None
    """Stored frames until --algo.noop-ent-coef-end holds. None: --algo.horizon-frames."""

    forced_rows: ForcedRows = "all"
    """Who learns from frames with a single legal action. critic_only: the actor never sees them,
    and they count in no number about it. all: both; they move no actor, but they cost a pass and
    count as frames without surprise."""

    normalize_advantages: bool = True
    """Scale the advantages of each gradient step to mean 0 and sample deviation 1, over the frames
    that the actor learns from. One frame alone is left unscaled; equal advantages become 0."""

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

    freeze_actor_until: int = 0
    """Stored frames learnt from before the actor takes its first step, for a warm start whose
    critic is new. It is the same as --algo.freeze-actor-iterations, counted in frames."""

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

    @property
    def has_noop_bonus(self) -> bool:
        """Whether the bonus for being undecided whether to act is ever given."""
        return self.noop_ent_coef > 0.0 or self.noop_ent_coef_end > 0.0

    def frames_per_step(self, num_frames: int) -> int:
        """Return how many frames move the weights once, out of this many in a pass."""
        return self.batch_size or self.frames_per_minibatch(num_frames)

    def frames_per_minibatch(self, num_frames: int) -> int:
        """Return how many frames go through the policy at once, out of this many in a pass."""
        if self.minibatch_size is not None:
            return self.minibatch_size
        return max(1, num_frames // (self.num_minibatches or 1))

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        return LearnerConfig.problems(self) + setting_problems(self)


VARIANTS: Mapping[str, PPOConfig] = {
    "default": PPOConfig(),
    # Small, fast tasks with discrete actions.
    "classic": PPOConfig(total_timesteps=200_000, minibatch_size=256, learning_rate=1e-3),
    # Continuous control. Huang et al. 2022, «The 37 implementation details of PPO».
    "mujoco": PPOConfig(scale_rewards=True),
    # Masked battles of hundreds of decisions that end in one reward, often with nothing to decide.
    "arena": PPOConfig(
        total_timesteps=4_000_000,
        frames_per_iteration=4096,
        num_epochs=2,
        batch_size=512,
        minibatch_size=512,
        # At a constant 2e-3 what was won by 100,000 frames was lost again by 200,000.
        learning_rate=1.5e-3,
        learning_rate_end=3e-4,
        horizon_frames=1_000_000,
        separate_optimizers=True,
        gamma=0.997,
        gae_lambda=0.95,
        dual_clip=3.0,
        vf_coef=1.0,
        # Of hundreds of tiles: with 0.01 the entropy only grew in the first 300,000 frames.
        ent_coef=0.001,
        ent_coef_end=0.0003,
        ent_coef_schedule="linear",
        ent_coef_horizon=10_000_000,
        noop_ent_coef=0.002,
        noop_ent_coef_schedule="linear",
        noop_ent_coef_horizon=10_000_000,
        forced_rows="critic_only",
        scale_rewards=True,
        lr_backoff_kl=0.05,
    ),
}
"""Settings by variant name."""
