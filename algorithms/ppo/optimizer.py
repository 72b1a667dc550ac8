"""The optimizer of actor and critic: one, or two in one that know nothing of each other.

Adam keeps what it knows of each parameter by itself. So two groups of one Adam, each with a rate
and a bound of its own, take the very steps that two optimizers would, and are saved like one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from algorithms.base import TrainablePolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.plan import UpdatePlan


class ActorCriticOptimizer:
    """Bounds gradients and steps weights.

    Args:
        config: Settings.
        policy: Whose weights.
    """

    adam: torch.optim.Adam
    """Of all the policy's parameters."""

    def __init__(self, config: PPOConfig, policy: TrainablePolicy) -> None:
        # Kept, since finding them costs as much as clipping them.
        self._actor = policy.actor_parameters()
        everything = list(policy.parameters())
        self._parts: dict[str, list[nn.Parameter]] = {"": everything}
        if config.separate_optimizers:
            actor = set(self._actor)
            critic = [parameter for parameter in everything if parameter not in actor]
            self._parts = {"_actor": self._actor, "_critic": critic}
        self._bound = config.max_grad_norm
        self.adam = torch.optim.Adam(
            [{"params": part} for part in self._parts.values()],
            lr=config.learning_rate,
            eps=config.adam_eps,
            fused=True,
        )

    @property
    def missing_bytes(self) -> int:
        """Memory of both moments of the parameters that have none so far, in bytes."""
        fresh = [p for part in self._parts.values() for p in part if p not in self.adam.state]
        return 2 * sum(parameter.nbytes for parameter in fresh)

    def set_rates(self, plan: UpdatePlan) -> None:
        """Set the step sizes of a learn step."""
        rates = {"": plan.learning_rate, "_actor": plan.learning_rate}
        for name, group in zip(self._parts, self.adam.param_groups, strict=True):
            group["lr"] = rates.get(name, plan.critic_learning_rate)

    def clear(self) -> None:
        """Forget all gradients."""
        self.adam.zero_grad()

    def step(self, *, is_actor_frozen: bool) -> dict[str, Tensor] | None:
        """Follow the gradients, unless they are not finite: then forget them and change nothing.

        Args:
            is_actor_frozen: Leave the actor as it is.

        Returns:
            Norms before they were bounded, by metric key; None if one was not finite.
        """
        if is_actor_frozen:
            for parameter in self._actor:
                parameter.grad = None
        norms = {
            f"ppo/grad_norm{name}": nn.utils.clip_grad_norm_(part, self._bound)
            for name, part in self._parts.items()
            if name == "" or _have_gradients(part)
        }
        if not all(math.isfinite(float(norm)) for norm in norms.values()):
            self.clear()
            return None
        self.adam.step()
        whole = norms.pop("ppo/grad_norm", None)
        if whole is None:
            whole = torch.stack([*norms.values()]).norm()
        return {"ppo/grad_norm": whole, **norms}


def _have_gradients(parameters: Iterable[nn.Parameter]) -> bool:
    return any(parameter.grad is not None for parameter in parameters)
