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

import torch
from torch import Tensor

from algorithms.noise import Noise, Purpose

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


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
