"""Actions from what an actor's last layer says, in NumPy: sampled by keyed noise, with log-probs.

This is the half of a distribution that acts; the half that learns needs gradients and lives in
``distributions``. Acting handles small batches thousands of times a second, where a dozen calls of
a tensor library cost more than the network before them. Letters: n rows, k categories, P parts,
d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.noise import Noise, Purpose

Array: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Float32Array: TypeAlias = npt.NDArray[np.float32]

HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


def categorical(
    logits: FloatArray, legal: BoolArray | None, noise: Noise, *, deterministic: bool = False
) -> IntArray:
    """Choose one of k categories for each row.

    Args:
        logits: Unnormalised log-probabilities. Shape ``(n, k)``.
        legal: What may be chosen, at least one category a row; None if everything. ``(n, k)``.
        noise: Addresses of the rows.
        deterministic: Take the likeliest, the first of several.

    Returns:
        Shape ``(n,)``, from 0. Legal whatever the logits are.
    """
    numbers = None if deterministic else noise.gumbel(Purpose.ACTION, logits.shape[1])
    return choose(logits, legal, numbers)


def categorical_log_prob(
    logits: FloatArray, legal: BoolArray | None, actions: IntArray
) -> Float32Array:
    """Return the log-probability of one category a row under a softmax over the legal ones.

    Args:
        logits: Shape ``(n, k)``.
        legal: As in ``categorical``.
        actions: Shape ``(n,)``.

    Returns:
        Natural logarithm; NaN where logits are absurd. Shape ``(n,)``.
    """
    if legal is not None:
        logits = np.where(legal, logits, np.float32(-np.inf))
    rows, width = logits.shape
    with np.errstate(invalid="ignore"):  # absurd logits give NaN, as they should
        shifted = logits - logits.max(-1, keepdims=True)
        total = np.exp(shifted).sum(-1)
        chosen = shifted.reshape(-1)[np.arange(0, rows * width, width) + actions]
        log_prob: Float32Array = chosen - np.log(total)
    return log_prob


def categorical_by_inversion(
    log_probs: FloatArray, legal: BoolArray, numbers: FloatArray | None
) -> IntArray:
    """Choose one of many categories for each row, from one random number a row.

    ``categorical`` needs a number for each category, which for hundreds of them costs more than
    the network before it.

    Args:
        log_probs: Normalised over the legal categories. Shape ``(n, k)``.
        legal: What may be chosen, at least one category a row. Shape ``(n, k)``.
        numbers: Uniform on (0, 1), ``(n,)``; None to take the likeliest, the first of several.

    Returns:
        Shape ``(n,)``, from 0. Legal whatever the log-probabilities are.
    """
    if numbers is None:
        return choose(log_probs, legal, None)
    with np.errstate(invalid="ignore"):  # absurd numbers end at the first legal category
        shares = np.exp(log_probs)
        shares *= legal
        reached = np.cumsum(shares, axis=1, dtype=np.float64)
        total = reached[:, -1:]
        # Below the total whatever the rounding: an impossible category ends no stretch.
        drawn = np.minimum(numbers[:, None] * total, np.nextafter(total, 0.0))
        chosen: IntArray = (reached > drawn).argmax(1)
        is_absurd = ~(np.isfinite(total[:, 0]) & (total[:, 0] > 0.0))
    return np.where(is_absurd, legal.argmax(1), chosen) if is_absurd.any() else chosen


def multi_categorical(
    logits: FloatArray,
    nvec: Sequence[int],
    legal: BoolArray | None,
    noise: Noise,
    *,
    deterministic: bool = False,
) -> IntArray:
    """Choose one category of each of P parts for each row.

    Args:
        logits: Logits of all parts side by side. Shape ``(n, sum(nvec))``.
        nvec: Number of categories of each part.
        legal: What may be chosen, laid out as ``logits``, at least one category a part.
        noise: Addresses of the rows.
        deterministic: Take the likeliest of each part, the first of several.

    Returns:
        Shape ``(n, P)``, from 0.
    """
    sizes = tuple(nvec)
    parts, widest = len(sizes), max(sizes)
    numbers = None
    if not deterministic:
        numbers = noise.gumbel(Purpose.ACTION, parts * widest).reshape(-1, widest)
    grid, allowed = _on_grid(logits, sizes, 0.0), _allowed(legal, sizes, len(logits))
    return choose(grid, allowed, numbers).reshape(-1, parts)


def multi_categorical_log_prob(
    logits: FloatArray, nvec: Sequence[int], legal: BoolArray | None, actions: IntArray
) -> Float32Array:
    """Return the sum of the parts' log-probabilities; see the two functions before."""
    sizes = tuple(nvec)
    grid, allowed = _on_grid(logits, sizes, 0.0), _allowed(legal, sizes, len(logits))
    parts = categorical_log_prob(grid, allowed, actions.reshape(-1))
    log_prob: Float32Array = parts.reshape(-1, len(sizes)).sum(-1)
    return log_prob


def diag_gaussian(
    mean: FloatArray, log_std: FloatArray, noise: Noise, *, deterministic: bool = False
) -> Float32Array:
    """Draw d numbers around a mean for each row; nothing is clipped.

    Args:
        mean: Shape ``(n, d)``, float32 as all below.
        log_std: Natural logarithm of the standard deviation. Shape ``(d,)`` or ``(n, d)``.
        noise: Addresses of the rows.
        deterministic: Take the mean.

    Returns:
        Shape ``(n, d)``.
    """
    if deterministic:
        return mean
    numbers: Array = noise.normal(Purpose.ACTION, mean.shape[1]).astype(np.float32)
    actions: Array = mean + np.exp(log_std) * numbers
    return actions


def diag_gaussian_log_prob(
    mean: FloatArray, log_std: FloatArray, actions: Float32Array
) -> Float32Array:
    """Return the sum of the dimensions' log-densities. Shape ``(n,)``."""
    standardised: Array = (actions - mean) * np.exp(-log_std)
    log_prob: Array = -(0.5 * standardised**2 + log_std + HALF_LOG_2_PI).sum(-1)
    return log_prob


def choose(
    logits: FloatArray, legal: BoolArray | None, numbers: FloatArray | None
) -> npt.NDArray[np.int64]:
    """Return the biggest of each row's last dimension after adding ``numbers``.

    A network fed with absurd numbers must still give a legal action to the environment; its
    log-probability tells the truth about such a row, so that it can be kept out of training.

    Args:
        logits: Shape ``(…, k)``.
        legal: What may be chosen, or None. As ``logits``.
        numbers: Gumbel noise, or None to choose the likeliest. As ``logits``.
    """
    scores = logits if numbers is None else logits + numbers
    if legal is not None:
        lowest = np.finfo(scores.dtype).min
        scores = np.where(legal, np.maximum(scores, lowest), -np.inf)
    chosen: IntArray = scores.argmax(-1)
    return chosen


def _on_grid(values: Array, nvec: tuple[int, ...], fill: float) -> Array:
    """Lay ``(n, sum(nvec))`` out as ``(n * P, max(nvec))``, with ``fill`` in the surplus."""
    widest = max(nvec)
    if len(nvec) * widest == values.shape[1]:
        return values.reshape(-1, widest)
    grid = np.full((len(values), len(nvec) * widest), fill, values.dtype)
    grid[:, places(nvec)] = values
    return grid.reshape(-1, widest)


def _allowed(legal: BoolArray | None, nvec: tuple[int, ...], rows: int) -> BoolArray | None:
    """Lay legality out as `_on_grid` does: what is no category of its part is not legal."""
    if legal is not None:
        return _on_grid(legal, nvec, fill=False)
    if len(nvec) * max(nvec) == sum(nvec):
        return None
    return _on_grid(np.ones((rows, sum(nvec)), np.bool_), nvec, fill=False)


@lru_cache(maxsize=64)
def places(nvec: tuple[int, ...]) -> IntArray:
    """Where each logit stands on the flattened grid of parts. Shape ``(sum(nvec),)``."""
    widest = max(nvec)
    found = np.concatenate([part * widest + np.arange(size) for part, size in enumerate(nvec)])
    found.flags.writeable = False
    return found
