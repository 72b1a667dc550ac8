"""Action distributions over batches: sampling from given noise, log-probabilities, entropies.

Random numbers come in as keyed noise and nothing here draws from a generator. A joint action's
log-probability and entropy are sums over its parts, always of shape ``(n,)``. Actions are what
the distribution produced: shifting, clipping and dtypes of environments are the policy's affair.
Letters: n rows, k categories, P parts, d dimensions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.noise import Noise, Purpose
from algorithms.sampling import HALF_LOG_2_PI, choose, places


class Distribution(ABC):
    """A distribution over actions for each of n rows."""

    @abstractmethod
    def sample(self, noise: Noise, purpose: int = Purpose.ACTION) -> Tensor:
        """Return one action for each row, a function of the row's parameters and noise only.

        Args:
            noise: Addresses of the n rows.
            purpose: Which of a row's numbers to use.

        Returns:
            Actions, detached. Shape as in the class.
        """

    @abstractmethod
    def mode(self) -> Tensor:
        """Return the likeliest action of each row, the first of several."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability (density) of each row's joint action.

        Args:
            actions: Actions as ``sample`` returns them.

        Returns:
            Natural logarithm. Shape ``(n,)``.

        Raises:
            ValueError: If the actions are of another shape (they would broadcast to a table).
        """

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy of each row's joint action in nats. Shape ``(n,)``."""

    def entropy_parts(self) -> dict[str, Tensor]:
        """Return what the entropy is a sum of, where an action is chosen in stages; else nothing.

        Returns:
            Nats by the stage's name. Each of shape ``(n,)``.
        """
        return {}


class SingleChoice(Distribution):
    """One choice for each row, whose category 0 is to do nothing. Actions are int64 ``(n,)``."""

    @abstractmethod
    def noop_entropy(self) -> Tensor:
        """Return the entropy of the question «category 0 or any other», in nats. Shape ``(n,)``.

        0 where the mask has answered it.
        """


class Categorical(SingleChoice):
    """One choice out of k for each row. Actions are int64 of shape ``(n,)``, from 0.

    A masked action has probability exactly 0 and receives no gradient.

    Args:
        logits: Unnormalised log-probabilities. Shape ``(n, k)``.
        mask: True where legal, bool, ``None`` if everything is. Shape ``(n, k)``.

    Raises:
        ValueError: If the shapes differ or a row allows nothing.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        if logits.ndim != 2:
            raise ValueError(f"Categorical: logits must be (n, k), got {tuple(logits.shape)}")
        if mask is not None:
            mask = _checked(mask, logits)
            refuse_empty(mask)
        self._choices = _Choices(logits, None if mask is None else ~mask)

    def sample(self, noise: Noise, purpose: int = Purpose.ACTION) -> Tensor:
        """Return the category that is biggest after adding Gumbel noise. Shape ``(n,)``."""
        return self._choices.sample(noise, purpose)

    def mode(self) -> Tensor:
        """Return the likeliest category, the first of several. Shape ``(n,)``."""
        return self._choices.mode()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability of each row's action. Shape ``(n,)``."""
        return self._choices.log_prob(actions)

    def entropy(self) -> Tensor:
        """Return the entropy over the legal categories in nats. Shape ``(n,)``."""
        return self._choices.entropy()

    def noop_entropy(self) -> Tensor:
        """Return how open the question «category 0 or any other» is; see the base class."""
        return self._choices.first_entropy()


class MultiCategorical(Distribution):
    """Several independent choices for each row. Actions are int64 of shape ``(n, P)``, from 0.

    The parts lie on a grid of P rows and ``max(nvec)`` columns whose surplus entries are masked,
    so that any number of parts costs the same few operations.

    Args:
        logits: Logits of all parts side by side. Shape ``(n, sum(nvec))``.
        nvec: Number of categories of each part.
        mask: True where legal, bool, laid out as ``logits``; ``None`` if everything is.

    Raises:
        ValueError: If the shapes do not fit or a part of a row allows nothing.
    """

    def __init__(self, logits: Tensor, nvec: Sequence[int], mask: Tensor | None = None) -> None:
        parts, widest, total = len(nvec), max(nvec), sum(nvec)
        sizes = tuple(nvec)
        if logits.ndim != 2 or logits.shape[1] != total:
            got = tuple(logits.shape)
            raise ValueError(f"MultiCategorical: logits must be (n, {total}), got {got}")
        grid = _on_grid(logits, sizes, fill=0.0)
        if mask is not None:
            allowed = _on_grid(_checked(mask, logits), sizes, fill=False)
            refuse_empty(allowed)
            self._choices = _Choices(grid, ~allowed)
        elif parts * widest != total:
            self._choices = _Choices(grid, _surplus(sizes).to(logits.device))
        else:
            self._choices = _Choices(grid, None)

    def sample(self, noise: Noise, purpose: int = Purpose.ACTION) -> Tensor:
        """Return for each part the category biggest after adding Gumbel noise. ``(n, P)``."""
        return self._choices.sample(noise, purpose)

    def mode(self) -> Tensor:
        """Return the likeliest category of each part, the first of several. ``(n, P)``."""
        return self._choices.mode()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the sum of the parts' log-probabilities. Shape ``(n,)``."""
        return self._choices.log_prob(actions).sum(-1)

    def entropy(self) -> Tensor:
        """Return the sum of the parts' entropies in nats. Shape ``(n,)``."""
        return self._choices.entropy().sum(-1)


class DiagGaussian(Distribution):
    """A normal distribution with independent dimensions. Actions are floats ``(n, d)``.

    Samples are never clipped: their log-probability is that of the number the learner stores,
    and bounding what the environment receives comes after it.

    Args:
        mean: Shape ``(n, d)``.
        log_std: Natural logarithm of the standard deviation. Shape ``(d,)`` or ``(n, d)``.

    Raises:
        ValueError: If the shapes do not fit.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        if mean.ndim != 2 or log_std.shape not in (mean.shape, mean.shape[1:]):
            got = f"{tuple(mean.shape)} and {tuple(log_std.shape)}"
            raise ValueError(f"DiagGaussian: mean (n, d) and log_std (d,) or (n, d), got {got}")
        self._mean = mean
        self._log_std = log_std

    def sample(self, noise: Noise, purpose: int = Purpose.ACTION) -> Tensor:
        """Return the mean plus noise of the standard deviation. Shape ``(n, d)``."""
        mean = self._mean.detach()
        numbers = torch.from_numpy(noise.normal(purpose, mean.shape[1])).to(mean)
        return mean + self._log_std.detach().exp() * numbers

    def mode(self) -> Tensor:
        """Return the mean. Shape ``(n, d)``."""
        return self._mean.detach()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the sum of the dimensions' log-densities. Shape ``(n,)``."""
        _check_actions(actions, self._mean.shape)
        standardised = (actions - self._mean) * torch.exp(-self._log_std)
        return -(0.5 * standardised.square() + self._log_std + HALF_LOG_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        """Return the sum of the dimensions' differential entropies in nats. Shape ``(n,)``."""
        per_dimension = self._log_std + (0.5 + HALF_LOG_2_PI)
        return per_dimension.expand_as(self._mean).sum(-1)


class _Choices:
    """Masked softmaxes over the last dimension of any number of leading ones."""

    def __init__(self, logits: Tensor, forbidden: Tensor | None) -> None:
        self._forbidden = forbidden
        self._logits = self._without_forbidden(logits, -math.inf)
        self._log_probs = torch.log_softmax(self._logits, dim=-1)

    def _without_forbidden(self, values: Tensor, fill: float) -> Tensor:
        return values if self._forbidden is None else values.masked_fill(self._forbidden, fill)

    def sample(self, noise: Noise, purpose: int) -> Tensor:
        shape = self._logits.shape
        return self._chosen(noise.gumbel(purpose, math.prod(shape[1:])).reshape(shape))

    def mode(self) -> Tensor:
        return self._chosen(None)

    def _chosen(self, numbers: npt.NDArray[np.float64] | None) -> Tensor:
        legal = None if self._forbidden is None else ~self._forbidden.numpy(force=True)
        chosen = choose(self._logits.numpy(force=True), legal, numbers)
        return torch.from_numpy(chosen).to(self._logits.device)

    def log_prob(self, actions: Tensor) -> Tensor:
        _check_actions(actions, self._log_probs.shape[:-1])
        return self._log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        # 0 * log 0 counts as 0: the infinite logarithm is replaced before it is multiplied, since
        # afterwards the value could be repaired but not the gradient.
        return -(self._log_probs.exp() * self._without_forbidden(self._log_probs, 0.0)).sum(-1)

    def first_entropy(self) -> Tensor:
        # Rows without the question get numbers that are harmless in both directions.
        first, others = self._log_probs[..., 0], self._log_probs[..., 1:]
        is_open = first.isfinite() & others.isfinite().any(-1)
        first = first.masked_fill(~is_open, 0.0)
        rest = others.masked_fill(~is_open.unsqueeze(-1), 0.0).logsumexp(-1)
        entropy = -(first.exp() * first + rest.exp() * rest)
        return entropy.masked_fill(~is_open, 0.0)


def _checked(mask: Tensor, logits: Tensor) -> Tensor:
    if mask.shape != logits.shape or mask.dtype != torch.bool:
        expected, got = tuple(logits.shape), f"{mask.dtype} {tuple(mask.shape)}"
        raise ValueError(f"action mask must be bool {expected}, got {got}")
    return mask.to(logits.device)


def refuse_empty(mask: Tensor) -> None:
    """Refuse masks that leave some choice without any possibility.

    Args:
        mask: Shape ``(n, …, k)``, bool.

    Raises:
        ValueError: If there is such a row.
    """
    has_choice = mask.any(-1)
    if not bool(has_choice.all()):
        place = (~has_choice).nonzero()[0].tolist()
        where = f"row {place[0]}" + (f", part {place[1]}" if len(place) > 1 else "")
        raise ValueError(
            f"action mask allows nothing in {where} of {len(mask)} rows; a mask must leave at "
            "least one legal action, also in states where only waiting is possible"
        )


def _check_actions(actions: Tensor, expected: torch.Size) -> None:
    if actions.shape != expected:
        got = tuple(actions.shape)
        raise ValueError(f"log_prob: actions must be {tuple(expected)}, got {got}")


def _on_grid(values: Tensor, nvec: tuple[int, ...], fill: float) -> Tensor:
    """Lay out ``(n, sum(nvec))`` as ``(n, P, max(nvec))``, with ``fill`` in the surplus."""
    parts, widest = len(nvec), max(nvec)
    if parts * widest == values.shape[1]:
        return values.reshape(-1, parts, widest)
    grid = values.new_full((len(values), parts * widest), fill)
    return grid.index_copy(1, _places(nvec).to(values.device), values).view(-1, parts, widest)


# Made outside inference mode whoever asks first: learning needs them to record gradients.


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _places(nvec: tuple[int, ...]) -> Tensor:
    """Return where each logit stands on the flattened grid. Shape ``(sum(nvec),)``."""
    return torch.from_numpy(places(nvec).copy())


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _surplus(nvec: tuple[int, ...]) -> Tensor:
    """Return which places of the grid hold no category. Shape ``(1, P, max(nvec))``."""
    return torch.arange(max(nvec)) >= torch.tensor(nvec)[None, :, None]
