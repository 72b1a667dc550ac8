"""The loss terms of PPO and the numbers that describe an update, as plain functions of tensors.

Nothing here knows networks, storage or settings. Letters: B frames of a minibatch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class PolicyLoss(NamedTuple):
    """The policy's loss and the share of frames at which a bound held."""

    loss: Tensor
    """What is minimised, a number with gradient. Shape ``()``."""

    clip_fraction: Tensor
    """Share of frames whose ratio left ``[1 - clip_coef, 1 + clip_coef]``. Shape ``()``."""

    dual_clip_fraction: Tensor
    """Share of frames at which the second bound held. Shape ``()``."""


def policy_loss(
    log_ratio: Tensor, advantages: Tensor, *, clip_coef: float, dual_clip: float | None = None
) -> PolicyLoss:
    """Return the clipped surrogate loss.

    The objective of a frame is the smaller of ``ratio · A`` and ``clip(ratio) · A``. Where the
    advantage is negative a large ratio could still make it as bad as it likes; the second bound
    ends that at ``dual_clip · A``.

    Args:
        log_ratio: New minus old log-probability. Shape ``(B,)``.
        advantages: Shape ``(B,)``.
        clip_coef: How far the ratio may leave 1.
        dual_clip: The second bound, above 1; ``None`` for none.

    Returns:
        Loss and shares.

    Raises:
        ValueError: If the shapes differ; they would broadcast to a table.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, equation 7; Ye et al. 2020, arXiv:1912.09729,
        equation 5.
    """
    _same_shape("policy_loss", log_ratio=log_ratio, advantages=advantages)
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    objective = torch.minimum(ratio * advantages, clipped_ratio * advantages)
    with torch.no_grad():
        clip_fraction = (ratio != clipped_ratio).float().mean()
        dual_clip_fraction = torch.zeros_like(clip_fraction)
    if dual_clip is not None:
        floor = dual_clip * advantages
        is_held = (advantages < 0) & (objective < floor)
        objective = torch.where(is_held, floor, objective)
        dual_clip_fraction = is_held.float().mean()
    return PolicyLoss(-objective.mean(), clip_fraction, dual_clip_fraction)


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, *, value_clip: float | None = None
) -> Tensor:
    """Return half the mean squared error of the values, optionally the pessimistic clipped one.

    Args:
        values: The critic's values now. Shape ``(B,)``.
        old_values: Values seen while collecting. Shape ``(B,)``.
        returns: Targets. Shape ``(B,)``.
        value_clip: How far a value may leave the old one, in units of the return. The larger of
            the two errors counts. ``None`` for no clipping.

    Returns:
        Shape ``()``.

    Raises:
        ValueError: If the shapes differ; they would broadcast to a table.
    """
    _same_shape("value_loss", values=values, old_values=old_values, returns=returns)
    error = (values - returns).square()
    if value_clip is not None:
        clipped = old_values + (values - old_values).clamp(-value_clip, value_clip)
        error = torch.maximum(error, (clipped - returns).square())
    return 0.5 * error.mean()


def kl_divergence(log_ratio: Tensor) -> Tensor:
    """Estimate the KL divergence from the collecting to the present policy; never negative.

    Args:
        log_ratio: New minus old log-probability of actions of the old policy. Shape ``(B,)``.

    Returns:
        Nats. Shape ``()``.

    Source:
        Schulman 2020, «Approximating KL divergence», the third estimator (k3).
    """
    return (torch.expm1(log_ratio) - log_ratio).mean()


def explained_variance(
    values: npt.NDArray[np.floating], returns: npt.NDArray[np.floating]
) -> float | None:
    """Return which share of the variance of the returns the values explain.

    Args:
        values: Predictions. Shape ``(M,)``.
        returns: Targets. Shape ``(M,)``.

    Returns:
        1 is perfect, 0 is as good as a constant, below 0 is worse; ``None`` where the returns do
        not vary, so that there is nothing to explain.
    """
    variance = float(np.var(returns)) if len(returns) else 0.0
    if variance == 0.0:
        return None
    return 1.0 - float(np.var(returns - values)) / variance


def _same_shape(function: str, **tensors: Tensor) -> None:
    if len({tensor.shape for tensor in tensors.values()}) != 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"{function}: all inputs must be of one shape (B,), got {shapes}")
