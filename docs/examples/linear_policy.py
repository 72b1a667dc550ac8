"""A policy of one's own: linear actor and critic for vectors and discrete actions.

Use it with ``--plugin docs/examples/linear_policy.py`` and the words ``linear-policy default``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from algorithms.base import Evaluation, Inference, TrainablePolicy
from algorithms.distributions import Categorical
from algorithms.noise import Noise
from algorithms.spaces import ArraySpec, Spaces
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_server.registry import PolicyEntry, Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPolicyConfig:
    """Settings of the linear policy; each field is a flag ``--policy.*``."""

    init_scale: float = 0.01
    """Standard deviation of the weights before training."""


class LinearPolicy(TrainablePolicy):
    """One matrix for the logits, one for the value."""

    uid = "linear-policy"

    def __init__(
        self, config: LinearPolicyConfig, spaces: Spaces, *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        observation, action = spaces.observation, spaces.action
        if not isinstance(observation, BoxSpec) or len(observation.shape) != 1:
            raise ConfigError("linear-policy: expected a flat Box of observations")
        if not isinstance(action, DiscreteSpec):
            raise ConfigError("linear-policy: expected discrete actions")
        self.spaces = spaces
        self.first_action = action.start
        self.actor = nn.Linear(observation.shape[0], action.n)
        self.critic = nn.Linear(observation.shape[0], 1)
        for layer in (self.actor, self.critic):
            nn.init.normal_(layer.weight, std=config.init_scale)
        number = ArraySpec((), np.dtype(np.float32))
        whole = ArraySpec((), np.dtype(np.int64))
        self.step_state = {"action": whole, "log_prob": number, "value": number}
        self.to(device)
        self.device = torch.device(device)

    @torch.inference_mode()
    def act(
        self,
        observations: tuple[np.ndarray, ...],
        masks: np.ndarray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Choose an action for each row, with the noise of that row."""
        (rows,) = self.prepare(observations)
        legal = None if masks is None else torch.from_numpy(masks)
        distribution = Categorical(self.actor(rows), legal)
        chosen = distribution.mode() if deterministic else distribution.sample(noise)
        return Inference(
            actions=((chosen + self.first_action).numpy(force=True),),
            step_state={
                "action": chosen.numpy(force=True),
                "log_prob": distribution.log_prob(chosen).numpy(force=True),
                "value": self.critic(rows)[:, 0].numpy(force=True),
            },
        )

    @torch.inference_mode()
    def values(self, observations: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the value of each row."""
        (rows,) = self.prepare(observations)
        return self.critic(rows)[:, 0].numpy(force=True)

    def prepare(self, observations: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
        """Move the observations to the device, as float32."""
        (rows,) = observations
        return (torch.tensor(rows, dtype=torch.float32, device=self.device),)

    def evaluate_actions(
        self, observations: tuple[Tensor, ...], masks: Tensor | None, actions: Tensor
    ) -> Evaluation:
        """Judge stored actions by the present weights."""
        (rows,) = observations
        distribution = Categorical(self.actor(rows), masks)
        return Evaluation(
            log_prob=distribution.log_prob(actions),
            entropy=distribution.entropy(),
            values=self.critic(rows)[:, 0],
        )


VARIANTS = {"default": LinearPolicyConfig()}


def register(registry: Registry) -> None:
    """Say what this file offers; called by ``--plugin``."""
    registry.add_policy(
        PolicyEntry(
            uid="linear-policy",
            summary="linear actor and critic",
            config="linear_policy:LinearPolicyConfig",
            variants="linear_policy:VARIANTS",
            implementation="linear_policy:LinearPolicy",
            fits=("ppo", "reinforce"),
        )
    )
