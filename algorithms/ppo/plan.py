"""What counters and schedules say about a learn step, before anything is computed.

A plan is a function of the settings and of what has been learnt so far: nothing here is saved but
how often the learning rate had to be lowered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from algorithms.ppo.config import PPOConfig
from algorithms.schedules import Geometric, Schedule, make_schedule

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePlan:
    """What counters and schedules say about one learn step."""

    seed: tuple[int, int]
    """Seed of the run and learn steps before this one: decide the order of the frames."""

    learning_rate: float
    """Step size of Adam; with separate optimizers that of the actor."""

    critic_learning_rate: float
    """Step size of the critic, where it has one of its own."""

    ent_coef: float
    """Weight of the entropy bonus."""

    noop_ent_coef: float
    """Weight of the bonus for being undecided whether to act."""

    gamma: float
    """Discount per frame."""

    is_actor_frozen: bool
    """Whether only the critic is trained."""


class Planner:
    """Reads the schedules.

    Args:
        config: Settings.
        seed: Of the run.
    """

    def __init__(self, config: PPOConfig, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        horizon = config.schedule_frames
        actor, end = config.learning_rate, config.learning_rate_end
        critic = config.critic_learning_rate or actor
        kind = config.learning_rate_schedule
        self._learning_rate = make_schedule(kind, actor, end, horizon)
        self._critic_learning_rate = make_schedule(kind, critic, critic * end / actor, horizon)
        self._ent_coef = make_schedule(
            config.ent_coef_schedule,
            config.ent_coef,
            config.ent_coef_end,
            config.ent_coef_horizon or horizon,
        )
        self._noop_ent_coef = make_schedule(
            config.noop_ent_coef_schedule,
            config.noop_ent_coef,
            config.noop_ent_coef_end,
            config.noop_ent_coef_horizon or horizon,
        )
        self._shortfall = _shortfall(config)

    def plan(self, *, learn_steps: int, frames: int, lr_scale: float) -> UpdatePlan:
        """Return the plan of the next learn step.

        Args:
            learn_steps: Learn steps before it.
            frames: Stored frames learnt from before it.
            lr_scale: What the learning rates are multiplied with.
        """
        config = self._config
        is_frozen = (
            learn_steps < config.freeze_actor_iterations or frames < config.freeze_actor_until
        )
        return UpdatePlan(
            seed=(self._seed, learn_steps),
            learning_rate=lr_scale * self._learning_rate.value(frames),
            critic_learning_rate=lr_scale * self._critic_learning_rate.value(frames),
            ent_coef=self._ent_coef.value(frames),
            noop_ent_coef=self._noop_ent_coef.value(frames),
            gamma=self.gamma(frames),
            is_actor_frozen=is_frozen,
        )

    def gamma(self, frames: int) -> float:
        """Return the discount of the next learn step.

        Args:
            frames: Stored frames learnt from before it.
        """
        if self._shortfall is None:
            return self._config.gamma
        return 1.0 - self._shortfall.value(frames)


def _shortfall(config: PPOConfig) -> Schedule | None:
    """Return how 1 - gamma goes, one over the frames looked ahead; None if it stays."""
    if config.gamma_end is None:
        return None
    horizon = config.gamma_horizon or config.schedule_frames
    return Geometric(1.0 - config.gamma, 1.0 - config.gamma_end, horizon)


class LearningRateBackoff:
    """Lowers the learning rate for good if the policy moves too far too often.

    Args:
        config: Settings.
    """

    scale: float
    """What the learning rates are multiplied with."""

    def __init__(self, config: PPOConfig) -> None:
        self.scale = 1.0
        self._config = config
        self._streak = 0
        self._events = 0

    def note(self, kl: float | None) -> dict[str, float]:
        """Take note of a learn step.

        Args:
            kl: How far the policy moved, in nats; None if it did not take a step.

        Returns:
            Metrics; nothing where the rate is never lowered.
        """
        config = self._config
        if config.lr_backoff_kl is None:
            return {}
        if kl is not None:
            self._streak = self._streak + 1 if kl > config.lr_backoff_kl else 0
        if self._streak >= config.lr_backoff_patience:
            lowered = max(self.scale * config.lr_backoff_factor, config.lr_backoff_min)
            self._events += int(lowered < self.scale)
            self.scale, self._streak = lowered, 0
            logger.info(
                "KL divergence above %g in %d learn steps running: learning rate is now %g of what "
                "its schedule says",
                config.lr_backoff_kl,
                config.lr_backoff_patience,
                lowered,
            )
        return {"ppo/lr_backoff_events": float(self._events)}

    def counters(self) -> dict[str, Any]:
        """Return everything that has to be saved; JSON-able."""
        return {
            "lr_scale": self.scale,
            "lr_backoff_streak": self._streak,
            "lr_backoff_events": self._events,
        }

    def load_counters(self, counters: Mapping[str, Any]) -> None:
        """Take over what ``counters`` returned; other entries are left alone."""
        self.scale = counters["lr_scale"]
        self._streak = counters["lr_backoff_streak"]
        self._events = counters["lr_backoff_events"]
