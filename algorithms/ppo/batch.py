"""From stored frames to what PPO trains on: advantages, returns, and minibatches.

Reads storage, never writes to it. Letters: M frames of an iteration, of which B are trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algorithms.advantages import compute_gae
from algorithms.base import TrainablePolicy
from algorithms.errors import UpdateError
from algorithms.normalization import ReturnNormalizer
from algorithms.sequences import Sequences, next_values, order_frames
from algorithms.storage import Array, BoolArray, FloatArray, IntArray, RolloutStorage
from royale_client.wire.spaces import MultiDiscreteSpec, SpaceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the frames of an iteration teach, in the order in which each slot lived them."""

    sequences: Sequences
    """All M frames, also those that cannot be trained on."""

    cells: IntArray
    """Cells of the frames to train on. Shape ``(B,)``."""

    scaled_rewards: FloatArray
    """Their rewards as the critic sees them. Shape ``(B,)``."""

    values: FloatArray
    """``V(s_t)`` seen while collecting. Shape ``(B,)``."""

    advantages: FloatArray
    """Unscaled. Shape ``(B,)``."""

    @property
    def returns(self) -> FloatArray:
        """Targets of the critic. Shape ``(B,)``."""
        return self.advantages + self.values


def make_targets(
    storage: RolloutStorage,
    cells: IntArray,
    *,
    normalizer: ReturnNormalizer | None,
    gamma: float,
    gae_lambda: float,
) -> Targets:
    """Estimate what each frame of an iteration was worth.

    Args:
        storage: Where the frames lie.
        cells: Cells of complete frames in any order. Shape ``(M,)``.
        normalizer: Scales rewards by what was known before this iteration; ``None`` leaves them.
        gamma: Discount per frame.
        gae_lambda: Weight of long estimates.

    Returns:
        Values and advantages of the frames that can be trained on.

    Raises:
        UpdateError: If there is no such frame.
    """
    sequences = order_frames(storage, cells)
    all_values = storage.step_state["value"][sequences.cells].astype(np.float64)
    following = next_values(storage, sequences, all_values)
    usable = following.usable
    rewards, values = sequences.rewards[usable], all_values[usable]
    if normalizer is not None:
        rewards = normalizer.scale(rewards)
    advantages = compute_gae(
        rewards,
        values,
        following.values[usable],
        following.continues[usable],
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    trained = sequences.cells[usable]
    known = np.isfinite(storage.step_state["log_prob"][trained])
    if not known.any():
        raise UpdateError(
            f"none of the {len(cells)} frames of this iteration can be trained on: their rewards, "
            "values or log-probabilities are not finite, or nothing is known of what followed"
        )
    return Targets(
        sequences=sequences,
        cells=trained[known],
        scaled_rewards=rewards[known],
        values=values[known],
        advantages=advantages[known],
    )


def worst_frames(
    ratios: Iterable[tuple[int, float]], targets: Targets, storage: RolloutStorage
) -> tuple[dict[str, Any], ...]:
    """Describe frames whose probability ratio is furthest from 1, for a person.

    Args:
        ratios: Rows of the batch, and the ratio of each.
        targets: Of the same batch.
        storage: Where the frames lie.
    """
    stored = storage.step_state
    return tuple(
        {
            "ratio": ratio,
            "cell": (cell := int(targets.cells[row])),
            "slot": int(storage.slots[cell]),
            "ordinal": int(storage.ordinals[cell]),
            "log_prob": float(stored["log_prob"][cell]),
            "action": stored["action"][cell].tolist(),
            "value": float(targets.values[row]),
            "reward": float(storage.rewards[cell]),
            "advantage": float(targets.advantages[row]),
        }
        for row, ratio in ratios
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """The frames to train on, as tensors on the policy's device."""

    observations: tuple[Tensor, ...]
    """What the policy prepared. Each of leading dimension B."""

    masks: Tensor | None
    """Legal actions, bool. Shape ``(B, mask_size)``."""

    is_choice: Tensor | None
    """Whether more than one action was legal, bool; None without masks. Shape ``(B,)``."""

    actions: Tensor
    """Stored samples. Shape ``(B, …)``."""

    log_probs: Tensor
    """Their log-probabilities while collecting. Shape ``(B,)``."""

    values: Tensor
    """``V(s_t)`` while collecting. Shape ``(B,)``."""

    advantages: Tensor
    """Unscaled, float32. Shape ``(B,)``."""

    returns: Tensor
    """Targets of the critic, float32. Shape ``(B,)``."""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def nbytes(self) -> int:
        """Memory of all tensors, in bytes."""
        optional = [tensor for tensor in (self.masks, self.is_choice) if tensor is not None]
        kept = (self.actions, self.log_probs, self.values, self.advantages, self.returns)
        return sum(tensor.nbytes for tensor in (*self.observations, *optional, *kept))

    def take(self, rows: Tensor) -> TrainingBatch:
        """Return some of the frames.

        Args:
            rows: Indices, int64, or bool for each frame, on the same device. Shape ``(b,)``.
        """
        return TrainingBatch(
            observations=tuple(tensor[rows] for tensor in self.observations),
            masks=None if self.masks is None else self.masks[rows],
            is_choice=None if self.is_choice is None else self.is_choice[rows],
            actions=self.actions[rows],
            log_probs=self.log_probs[rows],
            values=self.values[rows],
            advantages=self.advantages[rows],
            returns=self.returns[rows],
        )


def make_batch(storage: RolloutStorage, targets: Targets, policy: TrainablePolicy) -> TrainingBatch:
    """Gather the usable frames and move them to the policy's device once.

    Args:
        storage: Where the frames lie.
        targets: What they teach.
        policy: Encodes observations.

    Returns:
        The batch.
    """
    cells = targets.cells
    masks = storage.read_masks(cells)
    observations = policy.prepare(storage.observations_of(cells))
    device = observations[0].device

    def tensor(array: Array) -> Tensor:
        numbers = torch.from_numpy(array)
        return (numbers.float() if numbers.is_floating_point() else numbers).to(device)

    return TrainingBatch(
        observations=observations,
        masks=None if masks is None else tensor(masks),
        is_choice=None if masks is None else tensor(has_choice(policy.spaces.action, masks)),
        actions=tensor(storage.step_state["action"][cells]),
        log_probs=tensor(storage.step_state["log_prob"][cells]),
        values=tensor(targets.values),
        advantages=tensor(targets.advantages),
        returns=tensor(targets.returns),
    )


def has_choice(action: SpaceSpec, masks: BoolArray) -> BoolArray:
    """Return whether a mask leaves more than one action.

    Args:
        action: The action space.
        masks: Legal actions, at least one a part. Shape ``(B, mask_size)``.

    Returns:
        Shape ``(B,)``.
    """
    parts = len(action.nvec) if isinstance(action, MultiDiscreteSpec) else 1
    legal: BoolArray = masks.sum(1) > parts
    return legal


def minibatch_rows(
    num_frames: int, size: int, generator: np.random.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Deal all frames into minibatches in random order; the last one takes the remainder.

    Args:
        num_frames: How many frames there are.
        size: Frames of a minibatch. The last holds ``size`` to ``2 · size - 1``, or everything if
            there are fewer than ``size``.
        generator: Decides the order.
        device: Where the indices are needed.

    Yields:
        Row indices, int64. Each frame occurs once.
    """
    order = torch.from_numpy(generator.permutation(num_frames)).to(device)
    count = max(1, num_frames // size)
    for number in range(count):
        is_last = number == count - 1
        yield order[number * size : num_frames if is_last else (number + 1) * size]
