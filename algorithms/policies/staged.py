"""One action out of many, decided in stages: to act or to wait, with what, and where.

The stages are composed to the distribution over the flat list of actions, so that whoever samples,
stores or trains sees one choice. A stage in which the mask leaves one possibility, or none, costs
no probability and gets no gradient. Letters: n rows, S slots, T tiles.

Action 0 waits; action ``1 + slot · T + tile`` acts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from algorithms.distributions import SingleChoice, refuse_empty
from algorithms.noise import Noise, Purpose
from algorithms.sampling import (
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    categorical_by_inversion,
)

_FORBIDDEN = -1e30
"""Its exponential is exactly 0."""

_NEGLIGIBLE = -80.0
"""Less likely than 1e-34 adds nothing to an entropy, and exponentials of less take ten times as
long."""

NUM_STAGES = 3
"""Random numbers that a row needs."""


class StageOutputs(NamedTuple):
    """What an actor says of each stage, as unnormalised log-probabilities."""

    act: Tensor
    """To act, against 0 for waiting. Shape ``(n,)``."""

    slots: Tensor
    """With what, if acting. Shape ``(n, S)``."""

    tiles: Tensor
    """Where, if acting with that. Shape ``(n, S, T)``."""


class Stage(NamedTuple):
    """One choice among k, for any number of leading dimensions.

    Where everything is forbidden it holds numbers without meaning; since such a stage cannot be
    reached, nothing depends on them.
    """

    log_probs: Tensor
    """Log-probabilities under a mask, below every exponent where it forbids. Shape ``(…, k)``."""

    entropy: Tensor
    """Nats. Shape ``(…,)``."""


class Stages(NamedTuple):
    """The three choices."""

    gate: Stage
    """To wait and to act. Shape ``(n, 2)``."""

    slots: Stage
    """Shape ``(n, S)``."""

    tiles: Stage
    """Shape ``(n, S, T)``."""


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
    return Stages(
        gate=_stage(*gate_stage(outputs.act, mask[:, 0], slots)),
        slots=_stage(outputs.slots, slots),
        tiles=_stage(outputs.tiles, tiles),
    )


def gate_stage(act: Tensor, may_wait: Tensor, open_slots: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and legality of the first stage.

    Args:
        act: Score of acting, against 0 for waiting. Shape ``(n,)``.
        may_wait: Shape ``(n,)``, bool.
        open_slots: Slots with a legal tile. Shape ``(n, S)``, bool.

    Returns:
        Each of shape ``(n, 2)``.
    """
    logits = torch.stack([torch.zeros_like(act), act], dim=1)
    return logits, torch.stack([may_wait, open_slots.any(-1)], dim=1)


def masked_log_softmax(logits: Tensor, legal: Tensor) -> Tensor:
    """Return log-probabilities over what is legal, below every exponent elsewhere."""
    # Not minus infinity: where a whole stage is forbidden it would make NaN of the gradients.
    return torch.log_softmax(logits.masked_fill(~legal, _FORBIDDEN), dim=-1)


def _stage(logits: Tensor, legal: Tensor) -> Stage:
    return Stage(*_MaskedSoftmax.apply(logits, legal))  # type: ignore[no-untyped-call]


class _MaskedSoftmax(torch.autograd.Function):
    """Log-probabilities and their entropy, with a gradient by hand.

    With hundreds of tiles the many steps of an automatic one cost more than a convolution. With p
    the probabilities and H the entropy, ``dH/dz = -p (log p + H)`` of the logits z.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        log_probs = masked_log_softmax(logits, legal)
        possible = log_probs.clamp(min=_NEGLIGIBLE)
        shares = possible.exp().masked_fill_(~legal, 0.0)
        entropy = -(shares * possible).sum(-1)
        ctx.save_for_backward(possible, shares, entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        of_log_probs, of_entropy = gradients
        possible, shares, entropy = ctx.saved_tensors
        shift = of_log_probs.sum(-1) + of_entropy * entropy
        pull = torch.addcmul(shift[..., None], possible, of_entropy[..., None])
        return torch.addcmul(of_log_probs, shares, pull, value=-1.0), None


class StagedCategorical(SingleChoice):
    """The composed distribution. Actions are int64 of shape ``(n,)``, from 0.

    Args:
        stages: From ``masked_stages``.
        mask: The same mask.

    Raises:
        ValueError: If a row of the mask allows nothing.
    """

    def __init__(self, stages: Stages, mask: Tensor) -> None:
        refuse_empty(mask)
        self._stages = stages
        self._mask = mask

    def sample(self, noise: Noise, purpose: int = Purpose.ACTION) -> Tensor:
        """Return one action for each row, decided stage by stage. Shape ``(n,)``."""
        return self._chosen(noise.uniform(purpose, NUM_STAGES))

    def mode(self) -> Tensor:
        """Return what is likeliest in each stage in its turn. Shape ``(n,)``.

        That is not always the likeliest of all actions: where there are hundreds of ways to act,
        none of them is as likely as to wait, even if acting is nearly certain.
        """
        return self._chosen(None)

    def _chosen(self, numbers: FloatArray | None) -> Tensor:
        gate, slots, tiles = (stage.log_probs.numpy(force=True) for stage in self._stages)
        chosen = choose_in_stages(
            gate,
            self._mask.numpy(force=True),
            tiles.shape[1],
            slots_of=lambda rows: slots[rows],
            tiles_of=lambda rows, which: tiles[rows, which],
            numbers=numbers,
        )
        return torch.from_numpy(chosen.actions).to(self._mask.device)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability of each row's action. Shape ``(n,)``."""
        gate, slots, tiles = (stage.log_probs for stage in self._stages)
        if actions.shape != gate.shape[:1]:
            expected, got = tuple(gate.shape[:1]), tuple(actions.shape)
            raise ValueError(f"log_prob: actions must be {expected}, got {got}")
        places = (actions - 1).clamp(min=0)[:, None]
        slot = places.div(tiles.shape[2], rounding_mode="floor")
        acting = gate[:, 1:] + slots.gather(1, slot) + tiles.flatten(1).gather(1, places)
        return torch.where(actions == 0, gate[:, 0], acting[:, 0])

    def entropy(self) -> Tensor:
        """Return the entropy of the whole choice: the sum of its stages'. Shape ``(n,)``."""
        return torch.stack([*self.entropy_parts().values()]).sum(0)

    def noop_entropy(self) -> Tensor:
        """Return the entropy of the first stage. Shape ``(n,)``."""
        return self._stages.gate.entropy

    def entropy_parts(self) -> dict[str, Tensor]:
        """Return the entropy of each stage, weighted by how likely it is reached.

        Source:
            The chain rule of entropy; Cover and Thomas, «Elements of Information Theory», 2.2.
        """
        gate, slots, tiles = self._stages
        acting = gate.log_probs[:, 1].exp()
        by_slot = (slots.log_probs.exp() * tiles.entropy).sum(-1)
        return {"gate": gate.entropy, "slot": acting * slots.entropy, "tile": acting * by_slot}


class Chosen(NamedTuple):
    """What was decided for n rows."""

    actions: IntArray
    """Shape ``(n,)``."""

    log_probs: Float32Array
    """Shape ``(n,)``."""


def choose_in_stages(
    gate: FloatArray,
    masks: BoolArray,
    num_slots: int,
    *,
    slots_of: Callable[[IntArray], FloatArray],
    tiles_of: Callable[[IntArray, IntArray], FloatArray],
    numbers: FloatArray | None,
) -> Chosen:
    """Decide whether to act, then with what, then where; later stages only for those that act.

    Args:
        gate: Log-probabilities to wait and to act. Shape ``(n, 2)``.
        masks: Legal actions, at least one a row. Shape ``(n, 1 + S · T)``.
        num_slots: S.
        slots_of: Returns the slots' log-probabilities of some rows, ``(k, S)``.
        tiles_of: Returns the tiles' log-probabilities of some rows, each with one slot, ``(k, T)``.
        numbers: Uniform on (0, 1), ``(n, 3)``; None to take the likeliest of each stage.

    Returns:
        Actions, legal whatever the log-probabilities are.
    """

    def choose(log_probs: FloatArray, legal: BoolArray, stage: int, rows: IntArray) -> IntArray:
        drawn = None if numbers is None else numbers[rows, stage]
        return categorical_by_inversion(log_probs, legal, drawn)

    num_tiles = masks.shape[1] // num_slots
    legal = masks[:, 1:].reshape(len(masks), num_slots, num_tiles)
    open_slots = np.asarray(legal.any(-1))
    everyone = np.arange(len(masks))
    acts = choose(gate, np.stack([masks[:, 0], open_slots.any(1)], axis=1), 0, everyone)
    actions = np.zeros(len(masks), np.int64)
    log_probs: Float32Array = gate[everyone, acts]
    rows = acts.nonzero()[0]
    if len(rows):
        k = np.arange(len(rows))
        of_slots = slots_of(rows)
        slots = choose(of_slots, open_slots[rows], 1, rows)
        of_tiles = tiles_of(rows, slots)
        tiles = choose(of_tiles, legal[rows, slots], 2, rows)
        actions[rows] = 1 + slots * num_tiles + tiles
        log_probs[rows] += of_slots[k, slots]
        log_probs[rows] += of_tiles[k, tiles]
    return Chosen(actions, log_probs)


def layout(num_slots: int, num_tiles: int) -> IntArray:
    """Return slot and tile of every action as `choose_in_stages` composes them, -1 for waiting.

    Found by choosing each of them, so that it cannot differ from what the policy does.

    Returns:
        Shape ``(1 + S · T, 2)``.
    """
    slots = np.arange(num_slots).repeat(num_tiles)
    tiles = np.tile(np.arange(num_tiles), num_slots)
    chosen = choose_in_stages(
        np.tile(np.array([-1.0, 0.0], np.float32), (len(slots), 1)),
        np.ones((len(slots), 1 + len(slots)), np.bool_),
        num_slots,
        slots_of=lambda rows: np.eye(num_slots, dtype=np.float32)[slots[rows]],
        tiles_of=lambda rows, _: np.eye(num_tiles, dtype=np.float32)[tiles[rows]],
        numbers=None,
    )
    parts = np.full((1 + len(slots), 2), -1, np.int64)
    parts[chosen.actions] = np.stack([slots, tiles], axis=1)
    return parts
