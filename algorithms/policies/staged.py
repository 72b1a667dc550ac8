"""One action out of many, decided in stages: to act or to wait, with what, and where.

The stages are composed to the distribution over the flat list of actions, so that whoever samples,
stores or trains sees one choice. A stage in which the mask leaves one possibility, or none, costs
no probability and gets no gradient. Letters: n rows, S slots, T tiles.

Action 0 waits; action ``1 + slot · T + tile`` acts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from algorithms.distributions import Categorical

_FORBIDDEN = -1e30
"""Its exponential is exactly 0."""

_NEGLIGIBLE = -80.0
"""Less likely than 1e-34 adds nothing to an entropy, and exponentials of less are slow."""


class StageOutputs(NamedTuple):
    """What an actor says of each stage, as unnormalised log-probabilities."""

    act: Tensor
    """To act, against 0 for waiting. Shape ``(n,)``."""

    slots: Tensor
    """With what, if acting. Shape ``(n, S)``."""

    tiles: Tensor
    """Where, if acting with that. Shape ``(n, S, T)``."""


class Stages(NamedTuple):
    """Log-probabilities of each stage under a mask, below every exponent where it forbids.

    A stage in which everything is forbidden holds numbers without meaning; since it cannot be
    reached, nothing depends on them.
    """

    gate: Tensor
    """To wait and to act. Shape ``(n, 2)``."""

    slots: Tensor
    """Shape ``(n, S)``."""

    tiles: Tensor
    """Shape ``(n, S, T)``."""

    def flat(self) -> Tensor:
        """Return the log-probability of every action. Shape ``(n, 1 + S · T)``."""
        acting = (self.gate[:, 1:] + self.slots)[:, :, None] + self.tiles
        return torch.cat([self.gate[:, :1], acting.flatten(1)], dim=1)


def layout(num_slots: int, num_tiles: int) -> Tensor:
    """Return slot and tile of every action as `Stages.flat` composes them, -1 for waiting.

    Found by composing numbers that say where they come from, so that it cannot differ from what the
    policy does.

    Returns:
        int64, shape ``(1 + S · T, 2)``.
    """
    slots = torch.arange(num_slots, dtype=torch.float64)[None] * num_tiles
    tiles = torch.arange(num_tiles, dtype=torch.float64).expand(1, num_slots, num_tiles)
    gate = torch.tensor([[-1.0, 0.0]], dtype=torch.float64)
    origins = Stages(gate, slots, tiles).flat()[0].long()
    parts = torch.stack([origins // num_tiles, origins % num_tiles], dim=1)
    return parts.masked_fill((origins < 0)[:, None], -1)


def masked_stages(outputs: StageOutputs, mask: Tensor) -> Stages:
    """Normalise every stage over what the mask leaves of it.

    Args:
        outputs: Of the actor.
        mask: Legal actions, at least one a row. Shape ``(n, 1 + S · T)``, bool.

    Returns:
        The stages.
    """
    tiles = mask[:, 1:].view(outputs.tiles.shape)
    slots = tiles.any(-1)
    gate = torch.stack([mask[:, 0], slots.any(-1)], dim=1)
    preferences = torch.stack([torch.zeros_like(outputs.act), outputs.act], dim=1)
    return Stages(
        gate=_log_softmax(preferences, gate),
        slots=_log_softmax(outputs.slots, slots),
        tiles=_log_softmax(outputs.tiles, tiles),
    )


def _log_softmax(logits: Tensor, legal: Tensor) -> Tensor:
    # Not minus infinity: where a whole stage is forbidden it would make NaN of the gradients.
    return torch.log_softmax(logits.masked_fill(~legal, _FORBIDDEN), dim=-1)


class StagedCategorical(Categorical):
    """The composed distribution. Actions are int64 of shape ``(n,)``, from 0.

    Args:
        stages: From ``masked_stages``.
        mask: The same mask.
    """

    def __init__(self, stages: Stages, mask: Tensor) -> None:
        super().__init__(stages.flat(), mask)
        self._stages = stages
        self._parts: dict[str, Tensor] | None = None

    def entropy(self) -> Tensor:
        """Return the entropy of the whole choice: the sum of its stages'. Shape ``(n,)``."""
        return torch.stack([*self.entropy_parts().values()]).sum(0)

    def noop_entropy(self) -> Tensor:
        """Return the entropy of the first stage. Shape ``(n,)``."""
        return self.entropy_parts()["gate"]

    def entropy_parts(self) -> dict[str, Tensor]:
        """Return the entropy of each stage, weighted by how likely it is reached.

        Source:
            The chain rule of entropy; Cover and Thomas, «Elements of Information Theory», 2.2.
        """
        if self._parts is None:
            gate, slots, tiles = self._stages
            acting = gate[:, 1].exp()
            by_slot = (slots.exp() * _entropy(tiles)).sum(-1)
            self._parts = {
                "gate": _entropy(gate),
                "slot": acting * _entropy(slots),
                "tile": acting * by_slot,
            }
        return self._parts


def _entropy(log_probs: Tensor) -> Tensor:
    possible = log_probs.clamp(min=_NEGLIGIBLE)
    return -(possible.exp() * possible).sum(-1)
