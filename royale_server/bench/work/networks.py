"""The yardsticks' own policy, as anybody would write it: two towers, sampled by torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

NUM_OBSERVATIONS = 4
NUM_ACTIONS = 2

Floats = npt.NDArray[np.float32]


class Sample(NamedTuple):
    """Actions of a batch and what PPO stores beside them, each ``(n,)``."""

    actions: npt.NDArray[np.int64]
    log_probs: Floats
    values: Floats


class Towers(nn.Module):
    """Actor and critic that share nothing."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.actor = _tower(width, NUM_ACTIONS, gain=0.01)
        self.critic = _tower(width, 1, gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits ``(n, 2)`` and values ``(n,)``."""
        return self.actor(observations), self.critic(observations)[:, 0]

    @torch.inference_mode()
    def sample(self, observations: npt.NDArray[Any]) -> Sample:
        """Choose an action for each row."""
        logits, values = self(torch.from_numpy(observations))
        log_probs = torch.log_softmax(logits, -1)
        actions = torch.multinomial(log_probs.exp(), 1)
        chosen = log_probs.gather(1, actions)[:, 0]
        return Sample(actions[:, 0].numpy(), chosen.numpy(), values.numpy())


def _tower(width: int, outputs: int, gain: float) -> nn.Sequential:
    sizes = (NUM_OBSERVATIONS, width, width, outputs)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
