"""The gradient steps of one PPO learn step, and the optimizer that takes them.

Changes weights and optimizer only; schedules, statistics and undoing are the learner's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithms.advantages import scale_advantages
from algorithms.base import TrainablePolicy
from algorithms.errors import LearnAborted, UpdateError
from algorithms.ppo.batch import TrainingBatch, minibatch_rows
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.losses import kl_divergence, policy_loss, value_loss
from algorithms.ppo.metrics import StepLog


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePlan:
    """What counters and schedules say about one learn step."""

    seed: tuple[int, int]
    """Seed of the run and learn steps before this one: decide the order of the frames."""

    learning_rate: float
    """Step size of Adam."""

    ent_coef: float
    """Weight of the entropy bonus."""

    is_actor_frozen: bool
    """Whether only the critic is trained."""


class Updater:
    """Follows the gradient of PPO's loss through minibatches.

    Args:
        config: Settings.
        policy: What is trained.
    """

    optimizer: torch.optim.Adam
    """Of all the policy's parameters."""

    nonfinite_streak: int
    """Gradient steps skipped running, over learn steps."""

    def __init__(self, config: PPOConfig, policy: TrainablePolicy) -> None:
        self._parameters = list(policy.parameters())  # finding them costs as much as clipping them
        self.optimizer = torch.optim.Adam(
            self._parameters, lr=config.learning_rate, eps=config.adam_eps, fused=True
        )
        self.nonfinite_streak = 0
        self._config = config
        self._policy = policy

    def run(
        self,
        batch: TrainingBatch,
        plan: UpdatePlan,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> StepLog:
        """Pass over the frames until the passes are done or the policy has moved too far.

        Args:
            batch: The frames.
            plan: Of this learn step.
            should_abort: Polled before every gradient step.
            progress: Called after every pass with its number, the number of passes, metrics.

        Returns:
            What was measured.

        Raises:
            LearnAborted: If ``should_abort`` said so; weights may have changed by then.
            UpdateError: After too many skipped steps running.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = plan.learning_rate
        generator = np.random.default_rng(plan.seed)
        log = StepLog()
        goes_on = True
        while goes_on and log.num_passes < self._config.num_epochs:
            goes_on = self._run_pass(batch, plan, generator, log, should_abort)
            log.end_pass()
            progress(log.num_passes, self._config.num_epochs, log.means())
        return log

    def _run_pass(
        self,
        batch: TrainingBatch,
        plan: UpdatePlan,
        generator: np.random.Generator,
        log: StepLog,
        should_abort: Callable[[], bool],
    ) -> bool:
        """Use every frame once; return whether another pass may follow."""
        size = self._config.frames_per_minibatch(len(batch))
        for rows in minibatch_rows(len(batch), size, generator, batch.actions.device):
            if should_abort():
                raise LearnAborted(f"the learn step was aborted in pass {log.num_passes + 1}")
            minibatch = batch.take(rows)
            terms, log_ratio = self._loss_terms(minibatch, plan)
            log.note_ratio(log_ratio)
            if self._is_too_far(terms):
                return False
            self._step(self._loss(terms, plan), terms, plan, log)
        return True

    def _loss_terms(
        self, minibatch: TrainingBatch, plan: UpdatePlan
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return every number of a minibatch by metric key, and the log-ratios."""
        config = self._config
        now = self._policy.evaluate_actions(
            minibatch.observations, minibatch.masks, minibatch.actions
        )
        log_ratio = now.log_prob - minibatch.log_probs
        terms = {
            "ppo/entropy": now.entropy.mean(),
            "ppo/value_loss": value_loss(
                now.values, minibatch.values, minibatch.returns, value_clip=config.value_clip
            ),
        }
        if not plan.is_actor_frozen:
            advantages = minibatch.advantages
            if config.normalize_advantages:
                advantages = scale_advantages(advantages)
            surrogate = policy_loss(
                log_ratio, advantages, clip_coef=config.clip_coef, dual_clip=config.dual_clip
            )
            terms["ppo/policy_loss"] = surrogate.loss
            terms["ppo/clip_fraction"] = surrogate.clip_fraction
            terms["ppo/kl"] = kl_divergence(log_ratio.detach())
            if config.dual_clip is not None:
                terms["ppo/dual_clip_fraction"] = surrogate.dual_clip_fraction
        return terms, log_ratio.detach()

    def _loss(self, terms: Mapping[str, Tensor], plan: UpdatePlan) -> Tensor:
        critic_loss = self._config.vf_coef * terms["ppo/value_loss"]
        if plan.is_actor_frozen:
            return critic_loss
        return terms["ppo/policy_loss"] - plan.ent_coef * terms["ppo/entropy"] + critic_loss

    def _is_too_far(self, terms: Mapping[str, Tensor]) -> bool:
        limit = self._config.target_kl
        return limit is not None and "ppo/kl" in terms and float(terms["ppo/kl"]) > limit

    def _step(
        self, loss: Tensor, terms: Mapping[str, Tensor], plan: UpdatePlan, log: StepLog
    ) -> None:
        """Follow the gradient of a loss, unless it is not finite: then change nothing."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if plan.is_actor_frozen:
            for parameter in self._policy.actor_parameters():
                parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._config.max_grad_norm)
        if math.isfinite(float(norm)):
            self.optimizer.step()
            self.nonfinite_streak = 0
            log.add({**terms, "ppo/grad_norm": norm})
        else:
            self.optimizer.zero_grad()
            log.num_skipped += 1
            self._count_nonfinite(terms)

    def _count_nonfinite(self, terms: Mapping[str, Tensor]) -> None:
        self.nonfinite_streak += 1
        allowed = self._config.max_nonfinite_steps
        if self.nonfinite_streak <= allowed:
            return
        bad = [key for key, term in terms.items() if not math.isfinite(term.item())]
        raise UpdateError(
            f"the gradient was not finite in {self.nonfinite_streak} steps running, "
            f"--algo.max-nonfinite-steps allows {allowed}; not finite either: "
            f"{', '.join(bad) or 'nothing else'}. Look for absurd observations and rewards, or "
            "lower --algo.learning-rate"
        )
