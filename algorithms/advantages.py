"""Advantages: generalised advantage estimation over ragged sequences, and their scaling.

Knows neither storage nor policies: rows in, rows out. Letters: M frames in sequence order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from algorithms.storage import BoolArray, FloatArray


def compute_gae(
    rewards: FloatArray,
    values: npt.NDArray[np.floating[Any]],
    next_values: FloatArray,
    continues: BoolArray,
    *,
    gamma: float,
    gae_lambda: float,
) -> FloatArray:
    """Estimate advantages by GAE(lambda), in float64.

    ``A[i] = delta[i] + gamma * gae_lambda * A[i + 1]`` where row i continues, and ``delta[i]``
    alone where it does not: at the end of an episode, at a hole, at the last frame of a slot.
    The recursion is evaluated by doubling: after pass p every row holds the sum over the first
    2**p rows of its sequence, so that one slot with thousands of frames costs a dozen passes.
    A row's result depends on no other sequence, to the last bit.

    Args:
        rewards: Reward of each frame. Shape ``(M,)``, environment units.
        values: ``V(s_t)``. Shape ``(M,)``.
        next_values: ``V(s_{t+1})`` of the true successor, 0 after a termination. Shape ``(M,)``.
        continues: The next row is the successor, and its advantage flows in. Shape ``(M,)``.
        gamma: Discount per frame, in ``[0, 1]``.
        gae_lambda: Bias-variance trade-off, in ``[0, 1]``.

    Returns:
        Unscaled advantages, shape ``(M,)``. Meaningless in rows whose inputs are not usable;
        these reach no other row as long as the row before them does not continue.

    Raises:
        ValueError: If the shapes differ or a coefficient is outside ``[0, 1]``.

    Source:
        Schulman et al. 2016, arXiv:1506.02438, equation 16; the evaluation by doubling is the
        scan of Hillis and Steele 1986, doi:10.1145/7902.7903.
    """
    shapes = {a.shape for a in (rewards, values, next_values, continues)}
    if len(shapes) != 1 or rewards.ndim != 1:
        raise ValueError(f"compute_gae: all inputs must be (M,), got {sorted(shapes)}")
    if not (0.0 <= gamma <= 1.0 and 0.0 <= gae_lambda <= 1.0):
        raise ValueError(
            f"compute_gae: gamma and gae_lambda must be in [0, 1], got {gamma} and {gae_lambda}"
        )
    advantages: FloatArray = rewards + gamma * next_values - values
    return suffix_sums(advantages, gamma * gae_lambda * continues)


def suffix_sums(terms: FloatArray, carry: FloatArray) -> FloatArray:
    """Solve ``y[i] = terms[i] + carry[i] * y[i + 1]`` for all rows at once.

    Args:
        terms: Finite wherever the carry before is not 0. Shape ``(M,)``.
        carry: Share of the next row that flows into this one; 0 in the last row. Shape ``(M,)``.

    Returns:
        y, shape ``(M,)``.

    Raises:
        ValueError: If the last row carries something in from beyond the end.
    """
    if len(carry) and carry[-1] != 0.0:
        raise ValueError(f"suffix_sums: nothing follows the last row, but it carries {carry[-1]}")
    sums, carry = terms.copy(), carry.copy()
    reach = 1
    while carry.any():
        flowing = carry[:-reach]
        sums[:-reach] += np.where(flowing != 0.0, flowing * sums[reach:], 0.0)
        carry[:-reach] *= carry[reach:]
        reach *= 2
    return sums


def scale_advantages(advantages: torch.Tensor) -> torch.Tensor:
    """Shift advantages to mean 0 and scale them to sample standard deviation (n - 1) 1.

    The result is finite for finite input: a single advantage has no deviation and is returned
    unscaled; equal advantages say that no action was better than another and become zeros.

    Args:
        advantages: Shape ``(n,)``.

    Returns:
        Shape ``(n,)``, same dtype.
    """
    if len(advantages) < 2:
        return advantages
    if bool(advantages.min() == advantages.max()):  # rounding in the mean must not be blown up
        return torch.zeros_like(advantages)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
