"""The gradient steps of one PPO learn step.

Changes weights and optimizer only; schedules, statistics and undoing are the learner's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from algorithms.base import TrainablePolicy
from algorithms.errors import LearnAborted, UpdateError
from algorithms.ppo.batch import TrainingBatch, minibatch_rows
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.metrics import StepLog
from algorithms.ppo.optimizer import ActorCriticOptimizer
from algorithms.ppo.plan import UpdatePlan
from algorithms.ppo.terms import LossTerms, pieces


class Updater:
    """Follows the gradient of PPO's loss, batch by batch.

    Args:
        config: Settings.
        policy: What is trained.
    """

    optimizer: ActorCriticOptimizer
    """Steps the policy's parameters."""

    nonfinite_streak: int
    """Gradient steps skipped running, over learn steps."""

    def __init__(self, config: PPOConfig, policy: TrainablePolicy) -> None:
        self.optimizer = ActorCriticOptimizer(config, policy)
        self.nonfinite_streak = 0
        self._config = config
        self._policy = policy
        self._terms = LossTerms(config, policy)

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
            UpdateError: After too many skipped steps running, or if a frozen actor moved.
        """
        self.optimizer.set_rates(plan)
        generator = np.random.default_rng(plan.seed)
        frozen = self._copy_of_actor() if plan.is_actor_frozen else []
        log = StepLog()
        goes_on = True
        while goes_on and log.num_passes < self._config.num_epochs:
            goes_on = self._run_pass(batch, plan, generator, log, should_abort)
            log.end_pass()
            progress(log.num_passes, self._config.num_epochs, log.means())
        if plan.is_actor_frozen:
            self._check_unmoved(frozen)
        return log

    def rehearse(self, batch: TrainingBatch, plan: UpdatePlan) -> float | None:
        """Go forward and backward once over all frames at once, and forget the gradients.

        Args:
            batch: The frames.
            plan: Of the learn step that would be.

        Returns:
            Largest |ratio - 1| of a frame; None if the actor was not asked.
        """
        rows = torch.arange(len(batch), device=batch.actions.device)
        try:
            (piece,) = pieces(batch, rows, len(batch), self._config)
            terms = self._terms.of(piece, plan, needs_ratios=True)
            terms.loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self.optimizer.clear()
        if terms.log_ratios is None:
            return None
        return float(torch.expm1(terms.log_ratios.double()).abs().max())

    def _copy_of_actor(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._policy.actor_parameters()]

    def _check_unmoved(self, frozen: list[Tensor]) -> None:
        now = self._policy.actor_parameters()
        if not all(torch.equal(*pair) for pair in zip(frozen, now, strict=True)):
            raise UpdateError(
                f"the actor of {self._policy.uid} moved while it was frozen; its actor_parameters "
                "must name every weight that is not the critic's"
            )

    def _run_pass(
        self,
        batch: TrainingBatch,
        plan: UpdatePlan,
        generator: np.random.Generator,
        log: StepLog,
        should_abort: Callable[[], bool],
    ) -> bool:
        """Use every frame once; return whether another pass may follow."""
        size = self._config.frames_per_step(len(batch))
        for rows in minibatch_rows(len(batch), size, generator, batch.actions.device):
            if should_abort():
                raise LearnAborted(f"the learn step was aborted in pass {log.num_passes + 1}")
            numbers = self._accumulate(batch, rows, plan, log)
            if self._is_too_far(numbers):
                log.add_refused(numbers)
                self.optimizer.clear()
                return False
            self._step(numbers, plan, log)
        return True

    def _accumulate(
        self, batch: TrainingBatch, rows: Tensor, plan: UpdatePlan, log: StepLog
    ) -> dict[str, Tensor]:
        """Add up the gradients of a batch, piece by piece; return its numbers by metric key."""
        self.optimizer.clear()
        config = self._config
        needs_ratios = log.ratio_error is None
        size = len(rows) if config.batch_size is None else config.minibatch_size or len(rows)
        numbers: dict[str, Tensor] = {}
        log_ratios, asked = [], []
        for index, piece in enumerate(pieces(batch, rows, size, config)):
            terms = self._terms.of(piece, plan, needs_ratios=needs_ratios)
            terms.loss.backward()  # type: ignore[no-untyped-call]
            for key, number in terms.numbers.items():
                numbers[key] = numbers[key] + number if key in numbers else number
            if terms.log_ratios is not None:
                log_ratios.append(terms.log_ratios)
                asked.append(rows[index * size : (index + 1) * size])
        if needs_ratios and log_ratios:
            log.note_ratio(torch.cat(log_ratios), torch.cat(asked))
        return numbers

    def _is_too_far(self, numbers: Mapping[str, Tensor]) -> bool:
        limit = self._config.target_kl
        return limit is not None and "ppo/kl" in numbers and float(numbers["ppo/kl"]) > limit

    def _step(self, numbers: Mapping[str, Tensor], plan: UpdatePlan, log: StepLog) -> None:
        """Follow the gradients, unless they are not finite: then change nothing."""
        norms = self.optimizer.step(is_actor_frozen=plan.is_actor_frozen)
        if norms is not None:
            self.nonfinite_streak = 0
            log.add({**numbers, **norms})
        else:
            log.num_skipped += 1
            self._count_nonfinite(numbers)

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
