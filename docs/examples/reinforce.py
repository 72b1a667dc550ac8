"""An algorithm of one's own: the policy gradient with a critic as baseline, one step per iteration.

Use it with ``--plugin docs/examples/reinforce.py`` and the words ``reinforce default``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from algorithms.advantages import compute_gae, scale_advantages
from algorithms.base import Learner, LearnerState, Policy, TrainablePolicy
from algorithms.config import LearnerConfig, positive
from algorithms.errors import LearnAborted
from algorithms.metric_spec import MetricSpec
from algorithms.restore import RestorePlan, copies, plan_policy
from algorithms.sequences import next_values, order_frames
from algorithms.storage import RolloutStorage
from royale_client.wire.errors import ConfigError
from royale_server.registry import AlgorithmEntry, Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig(LearnerConfig):
    """Settings; each field is a flag ``--algo.*``, those of every learner included."""

    uid: ClassVar[str] = "reinforce"

    learning_rate: float = 0.1
    """Step size of gradient descent."""

    gamma: float = 0.99
    """Discount per frame."""

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings."""
        return LearnerConfig.problems(self) + positive("--algo.learning-rate", self.learning_rate)


class Reinforce(Learner):
    """One gradient step on all frames of an iteration."""

    uid = "reinforce"
    metrics = (
        MetricSpec(key="reinforce/policy_loss", unit="1", meaning="Surrogate loss of the step."),
        MetricSpec(key="reinforce/value_loss", unit="squared return", meaning="Critic's error."),
    )
    config: ReinforceConfig
    policy: TrainablePolicy

    def __init__(self, config: ReinforceConfig, policy: Policy, *, seed: int) -> None:
        if not isinstance(policy, TrainablePolicy):
            raise ConfigError(f"reinforce: policy {policy.uid} cannot judge stored actions")
        super().__init__(config, policy, seed=seed)
        self.optimizer = torch.optim.SGD(policy.parameters(), lr=config.learning_rate)

    def learn(
        self,
        storage: RolloutStorage,
        cells: np.ndarray,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        """Do one learn step. Nothing changes before its last lines: an abort costs nothing."""
        frames = order_frames(storage, cells)
        values = storage.step_state["value"][frames.cells].astype(np.float64)
        following = next_values(storage, frames, values)
        usable = following.usable
        advantages = compute_gae(
            frames.rewards[usable],
            values[usable],
            following.values[usable],
            following.continues[usable],
            gamma=self.config.gamma,
            gae_lambda=1.0,
        )
        trained = frames.cells[usable]
        masks = storage.read_masks(trained)
        now = self.policy.evaluate_actions(
            self.policy.prepare(storage.observations_of(trained)),
            None if masks is None else torch.from_numpy(masks),
            torch.from_numpy(storage.step_state["action"][trained]),
        )
        targets = torch.from_numpy((advantages + values[usable]).astype(np.float32))
        weights = scale_advantages(torch.from_numpy(advantages.astype(np.float32)))
        policy_loss = -(weights * now.log_prob).mean()
        value_loss = (targets - now.values).square().mean()
        if should_abort():
            raise LearnAborted("the learn step was aborted before its gradient step")
        self.optimizer.zero_grad()
        (policy_loss + value_loss).backward()
        self.optimizer.step()
        self.policy.update_normalizers(storage.observations_of(frames.cells))
        self.policy_version += 1
        metrics = {
            "reinforce/policy_loss": float(policy_loss.detach()),
            "reinforce/value_loss": float(value_loss.detach()),
        }
        progress(1, 1, metrics)
        return metrics

    def discount(self) -> float:
        """Return the discount, for environments that shape their rewards by it."""
        return self.config.gamma

    def state(self) -> LearnerState:
        """Return a copy of everything; plain gradient descent remembers nothing."""
        model = copies(self.policy.tensors())
        return LearnerState(model=model, optimizer={}, counters=self._counters())

    def load_state(self, state: LearnerState, restore: str = "all") -> None:
        """Take over a state; every tensor that does not fit is named, and then nothing changes."""
        plan = RestorePlan(restore)
        policy = plan_policy(plan, self.policy, state.model)
        if restore == "all":
            plan.problems += self._check_counters(state.counters)
        plan.raise_problems()
        policy.apply()
        if restore == "all":
            self._load_counters(state.counters)


VARIANTS = {"default": ReinforceConfig(total_timesteps=50_000)}


def register(registry: Registry) -> None:
    """Say what this file offers; called by ``--plugin``."""
    registry.add_algorithm(
        AlgorithmEntry(
            uid="reinforce",
            summary="policy gradient with a baseline, one step per iteration",
            config="reinforce:ReinforceConfig",
            variants="reinforce:VARIANTS",
            implementation="reinforce:Reinforce",
            fits=("mlp-policy",),
        )
    )
