"""PPO in one process with nothing around it: what the hyperparameters cost at the least.

Update and rollout are plain torch and NumPy; there are no checks, no records, no checkpoints.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from royale_server.bench import memory, yardstick
from royale_server.bench.work.networks import Floats, Towers
from royale_server.bench.work.rollout import Rollout, one_thread
from royale_server.bench.work.windows import Window


def measure(*, num_envs: int, vectorization: str, seconds: float) -> dict[str, float]:
    """Return frames per second, learning included."""
    one_thread()
    net = Towers(yardstick.WIDTH)
    rollout = Rollout(num_envs, yardstick.STEPS, vectorization, net)
    optimizer = make_optimizer(net)
    window, total = Window(seconds), 0
    while not window.is_closed(total):
        rollout.collect()
        update(net, optimizer, rollout)
        total += num_envs * yardstick.STEPS
    return {"frames_per_s": window.rate, "pss_mib": memory.pss_mib(os.getpid())}


def make_optimizer(net: Towers) -> torch.optim.Adam:
    """Return the optimizer of the yardstick."""
    return torch.optim.Adam(net.parameters(), lr=yardstick.LEARNING_RATE, eps=yardstick.ADAM_EPS)


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames to learn from, ``(M, …)`` each."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    targets: Tensor

    def rows(self, index: Tensor) -> Batch:
        """Return some of the frames."""
        return Batch(
            self.observations[index],
            self.actions[index],
            self.log_probs[index],
            self.advantages[index],
            self.targets[index],
        )


def update(net: Towers, optimizer: torch.optim.Optimizer, rollout: Rollout) -> None:
    """Do one learn step on a full rollout."""
    batch = _batch(net, rollout)
    count = len(batch.actions)
    size = -(-count // yardstick.MINIBATCHES)
    for _ in range(yardstick.EPOCHS):
        order = torch.randperm(count)
        for start in range(0, count, size):
            optimizer.zero_grad()
            _loss(net, batch.rows(order[start : start + size])).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), yardstick.MAX_GRAD_NORM)
            optimizer.step()


def _batch(net: Towers, rollout: Rollout) -> Batch:
    with torch.inference_mode():
        after = net(torch.from_numpy(rollout.now))[1].numpy()
    advantages = _advantages(rollout, after)
    kept = torch.from_numpy(np.flatnonzero(rollout.is_frame))
    columns = (
        rollout.observations.reshape(-1, rollout.observations.shape[-1]),
        rollout.actions.reshape(-1),
        rollout.log_probs.reshape(-1),
        advantages.reshape(-1),
        (advantages + rollout.values).reshape(-1),
    )
    return Batch(*(torch.from_numpy(column)[kept] for column in columns))


def _advantages(rollout: Rollout, after: Floats) -> Floats:
    """GAE, backwards; what follows an end by time limit is valued by the next row."""
    advantages = np.zeros_like(rollout.rewards)
    running = np.zeros_like(after)
    next_values = after
    for t in reversed(range(len(advantages))):
        goes_on = 1.0 - rollout.ended[t]
        bootstrapped = next_values * (1.0 - rollout.terminated[t])
        delta = rollout.rewards[t] + yardstick.GAMMA * bootstrapped - rollout.values[t]
        running = delta + yardstick.GAMMA * yardstick.GAE_LAMBDA * goes_on * running
        advantages[t] = running
        next_values = rollout.values[t]
    return advantages


def _loss(net: Towers, batch: Batch) -> Tensor:
    logits, values = net(batch.observations)
    log_probs = torch.log_softmax(logits, -1)
    chosen = log_probs.gather(1, batch.actions[:, None])[:, 0]
    ratio = (chosen - batch.log_probs).exp()
    scaled = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    clipped = ratio.clamp(1 - yardstick.CLIP, 1 + yardstick.CLIP)
    gain = torch.min(scaled * ratio, scaled * clipped).mean()
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    miss = (values - batch.targets).pow(2).mean()
    loss: Tensor = yardstick.VALUE * miss - gain - yardstick.ENTROPY * entropy
    return loss
