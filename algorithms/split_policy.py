"""Policies whose actor and critic share no weight, so that each can judge frames by itself.

A learner may then train the two apart, and spare the actor frames in which there is nothing to
choose. Knows no network. Letters: n rows.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from algorithms.base import Evaluation, TrainablePolicy
from algorithms.distributions import Distribution


class SplitPolicy(TrainablePolicy):
    """A trainable policy in two halves: everything outside the module ``critic`` is the actor."""

    @abstractmethod
    def distribution(self, observations: tuple[Tensor, ...], masks: Tensor | None) -> Distribution:
        """Return how the actor would choose, with gradients to the actor only.

        Args:
            observations: Rows of what ``prepare`` returned, each with leading dimension n.
            masks: Legal actions. Shape ``(n, mask_size)``, bool; or ``None``.

        Returns:
            A distribution over n rows whose actions are laid out as the step state ``action``.
        """

    @abstractmethod
    def evaluate_values(self, observations: tuple[Tensor, ...]) -> Tensor:
        """Return ``V(s)`` of each row, with gradients to the critic only.

        Args:
            observations: As for ``distribution``.

        Returns:
            Shape ``(n,)``.
        """

    def evaluate_actions(
        self, observations: tuple[Tensor, ...], masks: Tensor | None, actions: Tensor
    ) -> Evaluation:
        """Judge stored actions by the present weights; see the base class."""
        distribution = self.distribution(observations, masks)
        return Evaluation(
            log_prob=distribution.log_prob(actions),
            entropy=distribution.entropy(),
            values=self.evaluate_values(observations),
        )
