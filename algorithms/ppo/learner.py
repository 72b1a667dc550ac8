"""PPO: the learn step told in order, and everything that has to survive between two of them.

Knows storage by its columns and checkpoints by named tensors. A learn step is all or nothing: if
it is aborted or fails, everything is as it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from algorithms.base import (
    RETURN_STATISTICS,
    Learner,
    LearnerState,
    Policy,
    Rehearsal,
    TrainablePolicy,
    as_tensors,
)
from algorithms.config import RESTORE_ALL, refuse
from algorithms.normalization import ReturnNormalizer
from algorithms.ppo.batch import Targets, make_batch, make_targets, worst_frames
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.losses import explained_variance
from algorithms.ppo.metrics import METRICS
from algorithms.ppo.plan import LearningRateBackoff, Planner, UpdatePlan
from algorithms.ppo.requirements import misfits
from algorithms.ppo.update import Updater
from algorithms.restore import (
    RestorePlan,
    as_arrays,
    below,
    copies,
    optimizer_structure,
    optimizer_tensors,
    plan_optimizer,
    plan_policy,
    set_optimizer_state,
)
from algorithms.storage import IntArray, RolloutStorage
from royale_client.wire.errors import ConfigError

logger = logging.getLogger(__name__)

_OF_ANY_RUN = ("mean", "var", "count")  # the other reward statistics belong to slots of one run


class PPO(Learner):
    """Clipped proximal policy optimisation.

    Args:
        config: Settings.
        policy: A ``TrainablePolicy``.
        seed: Seed of the order of minibatches.

    Raises:
        ConfigError: If the policy cannot judge stored actions.

    Source:
        Schulman et al. 2017, arXiv:1707.06347.
    """

    uid = "ppo"
    metrics = METRICS
    config: PPOConfig
    policy: TrainablePolicy

    def __init__(self, config: PPOConfig, policy: Policy, *, seed: int) -> None:
        if not isinstance(policy, TrainablePolicy):
            raise ConfigError(
                f"ppo: policy {policy.uid} cannot judge stored actions; use a trainable one, such "
                "as mlp-policy"
            )
        refuse("ppo", misfits(config, policy))
        super().__init__(config, policy, seed=seed)
        self._names: dict[Tensor, str] = {p: name for name, p in policy.named_parameters()}
        self._updater = Updater(config, policy)
        self._return_normalizer = self._fresh_return_normalizer()
        self._planner = Planner(config, seed=seed)
        self._backoff = LearningRateBackoff(config)
        self._frames_learnt = 0
        self._has_freeze = config.freeze_actor_iterations > 0 or config.freeze_actor_until > 0
        self._steps_unfrozen = 0

    def frames_wanted(self) -> int:
        """Return the frames of an iteration; the last one is cut so that it ends at the budget.

        It is not cut below one batch: gradient steps on a handful of frames do harm. A run that
        was told to go on beyond its budget has whole iterations again.
        """
        wanted = self.config.frames_per_iteration
        left = self.config.total_timesteps - self.global_step
        if left <= 0:
            return wanted
        return min(wanted, max(left, self.config.frames_per_step(wanted)))

    def frames_at_once(self) -> int:
        """Return the frames of the largest piece of a gradient step."""
        frames = self.config.frames_per_iteration
        size = min(self.config.frames_per_minibatch(frames), frames)
        if self.config.batch_size is not None:
            return size
        return frames - (frames // size - 1) * size  # the last one takes the remainder

    def rehearse(self, storage: RolloutStorage, cells: IntArray) -> Rehearsal:
        """Go forward and backward once and change nothing; see the base class."""
        plan = self._plan()
        targets = make_targets(
            storage,
            cells,
            normalizer=self._return_normalizer,
            gamma=plan.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        batch = make_batch(storage, targets, self.policy)
        return Rehearsal(
            ratio_deviation=self._updater.rehearse(batch, plan),
            frame_bytes=batch.nbytes // len(batch),
            optimizer_bytes=self._updater.optimizer.missing_bytes,
        )

    def discount(self) -> float:
        """Return the discount of the frames of the open iteration."""
        return self._planner.gamma(self._frames_learnt)

    def learn(
        self,
        storage: RolloutStorage,
        cells: IntArray,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        """Do one learn step, all or nothing; see the base class."""
        before = self.state()
        try:
            metrics = self._learn(storage, cells, should_abort, progress)
        except BaseException:
            self.load_state(before)
            raise
        self.policy_version += 1
        return metrics

    def _learn(
        self,
        storage: RolloutStorage,
        cells: IntArray,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        plan = self._plan()
        targets = make_targets(
            storage,
            cells,
            normalizer=self._return_normalizer,
            gamma=plan.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        batch = make_batch(storage, targets, self.policy)
        log = self._updater.run(batch, plan, should_abort=should_abort, progress=progress)
        self.suspects = worst_frames(log.worst_ratios, targets, storage)
        metrics = self._describe(targets) | log.metrics() | self._describe_plan(plan)
        if self.config.forced_rows == "critic_only" and batch.is_choice is not None:
            metrics["ppo/choice_frac"] = float(batch.is_choice.float().mean())
        metrics |= self._backoff.note(metrics.get("ppo/kl"))
        metrics |= self._note_unfreeze(plan, metrics.get("ppo/explained_variance"))

        self._frames_learnt += len(cells)
        self._update_normalizers(storage, targets, plan.gamma)
        return metrics

    def _plan(self) -> UpdatePlan:
        return self._planner.plan(
            learn_steps=self.policy_version,
            frames=self._frames_learnt,
            lr_scale=self._backoff.scale,
        )

    def _describe_plan(self, plan: UpdatePlan) -> dict[str, float]:
        """Return what the schedules said."""
        config = self.config
        metrics = {
            "ppo/learning_rate": plan.learning_rate,
            "ppo/ent_coef": plan.ent_coef,
            "ppo/actor_frozen": float(plan.is_actor_frozen),
        }
        if config.separate_optimizers:
            metrics["ppo/critic_learning_rate"] = plan.critic_learning_rate
        if config.has_noop_bonus:
            metrics["ppo/noop_ent_coef"] = plan.noop_ent_coef
        if config.gamma_end is not None:
            metrics["ppo/gamma"] = plan.gamma
        return metrics

    def _note_unfreeze(self, plan: UpdatePlan, explained: float | None) -> dict[str, float]:
        """Count the learn steps since the actor was let go, and say how good the critic was."""
        if not self._has_freeze or plan.is_actor_frozen:
            return {}
        self._steps_unfrozen += 1
        metrics = {"ppo/iterations_since_unfreeze": float(self._steps_unfrozen)}
        if self._steps_unfrozen == 1 and explained is not None:
            metrics["ppo/ev_at_unfreeze"] = explained
        return metrics

    @np.errstate(over="ignore", invalid="ignore")  # absurd rewards are reported, not warned about
    def _describe(self, targets: Targets) -> dict[str, float]:
        """Return the numbers of a batch that do not depend on the update."""
        returns = targets.returns
        metrics = {
            "ppo/advantage_mean": float(targets.advantages.mean()),
            "ppo/advantage_std": float(targets.advantages.std()),
            "ppo/target_mean": float(returns.mean()),
            "ppo/target_std": float(returns.std()),
            "ppo/value_mean": float(targets.values.mean()),
            "ppo/trained_frames": float(len(targets.cells)),
            "ppo/unused_frames": float(len(targets.sequences) - len(targets.cells)),
            "ppo/samples_unused_frac": 1.0 - len(targets.cells) / len(targets.sequences),
        }
        explained = explained_variance(targets.values, returns)
        if explained is not None:
            metrics["ppo/explained_variance"] = explained
        normalizer = self._return_normalizer
        if normalizer is not None and normalizer.clip is not None:
            is_cut = normalizer.is_cut(targets.scaled_rewards)
            metrics["ppo/reward_clip_frac"] = float(is_cut.mean())
        return metrics

    def _update_normalizers(self, storage: RolloutStorage, targets: Targets, gamma: float) -> None:
        """Let the statistics see the frames; the next policy version uses them."""
        frames = targets.sequences
        self.policy.update_normalizers(storage.observations_of(frames.cells))
        if self._return_normalizer is not None:
            self._return_normalizer.gamma = gamma
            ended = frames.terminated | frames.truncated
            self._return_normalizer.update(frames.slots, frames.ordinals, frames.rewards, ended)

    def _fresh_return_normalizer(self) -> ReturnNormalizer | None:
        if not self.config.scale_rewards:
            return None
        return ReturnNormalizer(self.config.gamma, self.config.scaled_reward_clip)

    def state(self) -> LearnerState:
        """Return a copy of everything needed to continue exactly."""
        returns = {} if self._return_normalizer is None else self._return_normalizer.state()
        model = self.policy.tensors() | as_tensors(RETURN_STATISTICS, returns)
        return LearnerState(
            model=copies(model),
            optimizer=copies(optimizer_tensors(self._updater.optimizer.adam, self._names)),
            counters=self._counters(),
        )

    def load_state(self, state: LearnerState, restore: str = RESTORE_ALL) -> None:
        """Take over a state, or a part of it; see the base class."""
        plan = RestorePlan(restore)
        policy = plan_policy(plan, self.policy, state.model)
        is_continued = restore == RESTORE_ALL
        plan.problems += self._check_counters(state.counters) if is_continued else []
        rewards = self._planned_return_normalizer(plan, below(RETURN_STATISTICS, state.model))
        optimizer = (
            plan_optimizer(
                plan,
                self._updater.optimizer.adam,
                self._names,
                state.optimizer,
                state.counters.get("optimizer", {}),
            )
            if is_continued
            else {}
        )
        plan.raise_problems()
        policy.apply()
        self._return_normalizer = rewards
        if is_continued:
            self._updater.optimizer.clear()
            set_optimizer_state(self._updater.optimizer.adam, optimizer)
            self._load_counters(state.counters)

    def _planned_return_normalizer(
        self, plan: RestorePlan, loaded: Mapping[str, Tensor]
    ) -> ReturnNormalizer | None:
        """Return the reward statistics to go on with: saved ones where there are, else fresh."""
        normalizer = self._fresh_return_normalizer()
        current = {} if normalizer is None else as_tensors("", normalizer.state())
        if plan.restore == RESTORE_ALL:
            # Arrays over slots are as long as that run had slots.
            free = {name: loaded[name] for name in current.keys() & loaded.keys()}
            fixed = {name: current[name] for name in current if name in _OF_ANY_RUN}
            chosen = plan.pair(current | free | fixed, loaded, RETURN_STATISTICS)
        else:
            chosen = {name: loaded[name] for name in _OF_ANY_RUN if name in loaded}
        if normalizer is None:
            return None
        if len(chosen) < len(_OF_ANY_RUN):
            logger.info("the checkpoint has no reward statistics; they start fresh")
            return normalizer
        try:
            normalizer.load_state(normalizer.state() | as_arrays(chosen))
        except ValueError as error:
            plan.problems.append(f"reward statistics: {error}")
        return normalizer

    def _counters(self) -> dict[str, Any]:
        return super()._counters() | {
            "horizon_frames": self.config.schedule_frames,
            "frames_learnt": self._frames_learnt,
            **self._backoff.counters(),
            "nonfinite_streak": self._updater.nonfinite_streak,
            **({"steps_unfrozen": self._steps_unfrozen} if self._has_freeze else {}),
            "optimizer": optimizer_structure(self._updater.optimizer.adam, self._names),
        }

    def _load_counters(self, counters: Mapping[str, Any]) -> None:
        super()._load_counters(counters)
        self._frames_learnt = counters["frames_learnt"]
        self._backoff.load_counters(counters)
        self._updater.nonfinite_streak = counters["nonfinite_streak"]
        self._steps_unfrozen = counters.get("steps_unfrozen", 0)
        if counters["horizon_frames"] != self.config.schedule_frames:
            logger.warning(
                "schedules ran over %d frames when this checkpoint was written and run over %d now "
                "(--algo.horizon-frames, or --algo.total-timesteps without it): at frame %d the "
                "learning rate is %g",
                counters["horizon_frames"],
                self.config.schedule_frames,
                self._frames_learnt,
                self._plan().learning_rate,
            )
