"""The terms of PPO's loss over a piece of a batch, and what each frame counts in the whole.

A gradient step may go through the policy in several pieces, because all of it would not fit into
memory. Every term is a mean over some of the batch's frames; a piece has its share of them, so that
the sum over the pieces is the term of the whole batch, and so are the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from algorithms.advantages import scale_advantages
from algorithms.base import TrainablePolicy
from algorithms.distributions import Distribution, SingleChoice
from algorithms.errors import UpdateError
from algorithms.ppo.batch import TrainingBatch
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.losses import kl_divergence, policy_loss, value_loss
from algorithms.ppo.plan import UpdatePlan
from algorithms.split_policy import SplitPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some frames of a gradient step."""

    frames: TrainingBatch
    """All of them: the critic's."""

    advantages: Tensor
    """As the loss takes them; meaningless where the actor does not learn. Shape ``(b,)``."""

    actor_rows: Tensor | None
    """Rows that the actor learns from, int64; None for all."""

    shares: Shares
    """How much of the step it is."""


class Shares(NamedTuple):
    """Which part of a gradient step's frames a piece holds, in (0, 1], or 0 if there are none."""

    frames: float
    """Of all."""

    actor: float
    """Of those that the actor learns from."""

    choices: float
    """Of those with more than one legal action."""


def pieces(batch: TrainingBatch, rows: Tensor, size: int, config: PPOConfig) -> Iterator[Piece]:
    """Cut a gradient step's frames into pieces.

    Args:
        batch: Frames of the learn step.
        rows: Those of the gradient step, int64. Shape ``(b,)``.
        size: Most frames of a piece.
        config: Settings.

    Yields:
        Pieces, each frame in one of them.
    """
    is_choice = None if batch.is_choice is None else batch.is_choice[rows]
    is_actors = is_choice if config.forced_rows == "critic_only" else None
    advantages = batch.advantages[rows]
    if config.normalize_advantages:
        advantages = _scaled(advantages, is_actors)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        frames = len(rows[part]) / len(rows)
        yield Piece(
            frames=batch.take(rows[part]),
            advantages=advantages[part],
            actor_rows=None if is_actors is None else is_actors[part].nonzero()[:, 0],
            shares=Shares(
                frames=frames,
                actor=frames if is_actors is None else _share(is_actors, part),
                choices=_share(is_choice, part) if config.has_noop_bonus else 0.0,
            ),
        )


def _share(is_one: Tensor | None, part: slice) -> float:
    if is_one is None:
        return 0.0
    return int(is_one[part].sum()) / max(1, int(is_one.sum()))


def _scaled(advantages: Tensor, is_actors: Tensor | None) -> Tensor:
    if is_actors is None:
        return scale_advantages(advantages)
    scaled = advantages.clone()
    scaled[is_actors] = scale_advantages(advantages[is_actors])
    return scaled


class _Judgement(NamedTuple):
    """What the actor says now of frames of its own."""

    log_ratio: Tensor
    entropy: Tensor
    entropy_parts: dict[str, Tensor]
    noop_entropy: Tensor | None


class Terms(NamedTuple):
    """What a piece adds to its gradient step."""

    loss: Tensor
    """To follow, with gradients. Shape ``()``."""

    numbers: dict[str, Tensor]
    """What it adds to each metric, detached, shape ``()``; absent where it has no frame of it."""

    log_ratios: Tensor | None
    """New minus old log-probability of every frame; None if the actor was not asked."""


class LossTerms:
    """Evaluates PPO's loss.

    Args:
        config: Settings.
        policy: What is trained.
    """

    def __init__(self, config: PPOConfig, policy: TrainablePolicy) -> None:
        self._config = config
        self._policy = policy

    def of(self, piece: Piece, plan: UpdatePlan, *, needs_ratios: bool) -> Terms:
        """Return the loss of a piece and the numbers that describe it.

        Args:
            piece: The frames.
            plan: Of the learn step.
            needs_ratios: Ask the actor even if it is frozen.

        Returns:
            The terms.
        """
        values, judgement = self._judge(piece, plan, needs_ratios)
        frames, shares = piece.frames, piece.shares
        critic = value_loss(
            values, frames.values, frames.returns, value_clip=self._config.value_clip
        )
        numbers = {"ppo/value_loss": (shares.frames * critic).detach()}
        loss = shares.frames * (self._config.vf_coef * critic)
        if judgement is not None and not plan.is_actor_frozen:
            actor, of_actor = self._actor_terms(piece, judgement, plan)
            loss = actor + loss
            numbers |= of_actor
        ratios = None if judgement is None else _all_ratios(piece, judgement.log_ratio.detach())
        return Terms(loss, numbers, ratios)

    def _judge(
        self, piece: Piece, plan: UpdatePlan, needs_ratios: bool
    ) -> tuple[Tensor, _Judgement | None]:
        frames = piece.frames
        if not isinstance(self._policy, SplitPolicy):
            now = self._policy.evaluate_actions(frames.observations, frames.masks, frames.actions)
            log_ratio = now.log_prob - frames.log_probs
            return now.values, _Judgement(log_ratio, now.entropy, {}, None)
        values = self._policy.evaluate_values(frames.observations)
        has_actor_rows = piece.actor_rows is None or len(piece.actor_rows) > 0
        if not has_actor_rows or (plan.is_actor_frozen and not needs_ratios):
            return values, None
        with torch.set_grad_enabled(not plan.is_actor_frozen):
            return values, self._ask_actor(self._policy, piece)

    def _ask_actor(self, policy: SplitPolicy, piece: Piece) -> _Judgement:
        rows = piece.actor_rows
        frames = piece.frames if rows is None else piece.frames.take(rows)
        distribution = policy.distribution(frames.observations, frames.masks)
        noop = None
        if self._config.has_noop_bonus:
            noop = _noop_entropy(distribution, policy)[frames.is_choice]
        return _Judgement(
            log_ratio=distribution.log_prob(frames.actions) - frames.log_probs,
            entropy=distribution.entropy(),
            entropy_parts=distribution.entropy_parts(),
            noop_entropy=noop,
        )

    def _actor_terms(
        self, piece: Piece, judgement: _Judgement, plan: UpdatePlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        config, shares = self._config, piece.shares
        rows = piece.actor_rows
        surrogate = policy_loss(
            judgement.log_ratio,
            piece.advantages if rows is None else piece.advantages[rows],
            clip_coef=config.clip_coef,
            dual_clip=config.dual_clip,
        )
        terms = {
            "ppo/entropy": judgement.entropy.mean(),
            "ppo/policy_loss": surrogate.loss,
            "ppo/clip_fraction": surrogate.clip_fraction,
            "ppo/kl": kl_divergence(judgement.log_ratio.detach()),
        }
        if config.dual_clip is not None:
            terms["ppo/dual_clip_fraction"] = surrogate.dual_clip_fraction
        for name, part in judgement.entropy_parts.items():
            terms[f"ppo/entropy_{name}"] = part.mean()
        numbers = {key: (shares.actor * term).detach() for key, term in terms.items()}
        loss = shares.actor * (terms["ppo/policy_loss"] - plan.ent_coef * terms["ppo/entropy"])
        if judgement.noop_entropy is not None and len(judgement.noop_entropy):
            noop = shares.choices * judgement.noop_entropy.mean()
            numbers["ppo/noop_entropy"] = noop.detach()
            loss = loss - plan.noop_ent_coef * noop
        return loss, numbers


def _noop_entropy(distribution: Distribution, policy: SplitPolicy) -> Tensor:
    if not isinstance(distribution, SingleChoice):
        raise UpdateError(
            f"--algo.noop-ent-coef: policy {policy.uid} chooses by {type(distribution).__name__}, "
            "expected a SingleChoice; use 0"
        )
    return distribution.noop_entropy()


def _all_ratios(piece: Piece, of_actor: Tensor) -> Tensor:
    """Return log-ratios of all frames; of a single legal action the new log-probability is 0."""
    if piece.actor_rows is None:
        return of_actor
    return (-piece.frames.log_probs).index_copy(0, piece.actor_rows, of_actor)
