"""What a PPO learn step reports: the declarations, and the log that the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from algorithms.metric_spec import MetricSpec
from algorithms.ppo.option_metrics import (
    FROZEN,
    OF_ACTOR,
    OPTION_METRICS,
    OPTION_STEP_METRICS,
    SKIPPED,
    UNSCHEDULED,
)

STEP_METRICS = (
    MetricSpec(
        key="ppo/policy_loss",
        unit="1",
        meaning="Clipped surrogate loss; small and without meaning in absolute terms.",
        statistic="mean over gradient steps",
        absent_when=FROZEN,
        population=OF_ACTOR,
    ),
    MetricSpec(
        key="ppo/kl",
        unit="nat",
        meaning="How far the policy moved from the one that collected (k3 estimator).",
        statistic="mean over the gradient steps of the last pass, with the one that "
        "--algo.target-kl refused",
        absent_when=f"it is one gradient step, before which nothing has moved, or {FROZEN}",
        population=OF_ACTOR,
        healthy=(1e-5, 0.05),
    ),
    MetricSpec(
        key="ppo/clip_fraction",
        unit="1",
        meaning="Share of frames whose probability ratio left the clip range.",
        statistic="mean over gradient steps",
        absent_when=FROZEN,
        population=OF_ACTOR,
        healthy=(0.0, 0.5),
        may_be_constant="0 as long as the policy moves in small steps",
    ),
    MetricSpec(
        key="ppo/dual_clip_fraction",
        unit="1",
        meaning="Share of frames at which the second bound of the loss held.",
        statistic="mean over gradient steps",
        may_be_constant="0 as long as the policy moves in small steps",
        absent_when=f"--algo.dual-clip is None, {FROZEN}",
        population=OF_ACTOR,
    ),
    MetricSpec(
        key="ppo/entropy",
        unit="nat",
        meaning="Entropy of the policy's distribution over (joint) actions.",
        statistic="mean over gradient steps",
        absent_when=FROZEN,
        population=OF_ACTOR,
    ),
    MetricSpec(
        key="ppo/value_loss",
        unit="squared return",
        meaning="Half the mean squared error of the critic.",
        statistic="mean over gradient steps",
        absent_when=SKIPPED,
    ),
    MetricSpec(
        key="ppo/grad_norm",
        unit="1",
        meaning="Norm of the whole gradient before it is clipped.",
        statistic="mean over gradient steps",
        absent_when=SKIPPED,
    ),
    *OPTION_STEP_METRICS,
)
"""What is measured at every gradient step."""

METRICS = (
    *STEP_METRICS,
    MetricSpec(
        key="ppo/kl_epoch<n>",
        unit="nat",
        meaning="As ppo/kl, in the n-th pass, from 1: growing, each pass moved the policy further.",
        statistic="mean over the gradient steps of the pass",
        absent_when=f"the pass was not begun, is the first gradient step alone, or {FROZEN}",
        population=OF_ACTOR,
    ),
    MetricSpec(
        key="ppo/ratio_max_abs_dev",
        unit="1",
        meaning="Largest distance of a probability ratio from 1 before anything was learnt: above "
        "1e-5 the stored frames are not those the policy saw.",
        statistic="max",
        population="first minibatch of the first pass, judged anew with its masks, without noise",
        healthy=(0.0, 1e-4),
    ),
    MetricSpec(
        key="ppo/explained_variance",
        unit="1",
        meaning="Share of the variance of the returns that the collecting critic predicted.",
        statistic="last",
        absent_when="the returns do not vary",
        healthy=(0.0, 1.0),
    ),
    MetricSpec(key="ppo/advantage_mean", unit="return", meaning="Advantages before scaling."),
    MetricSpec(
        key="ppo/advantage_std",
        unit="return",
        meaning="Population deviation of the advantages before scaling.",
        statistic="standard deviation",
    ),
    MetricSpec(
        key="ppo/target_mean", unit="return", meaning="What the critic was taught to predict."
    ),
    MetricSpec(
        key="ppo/target_std",
        unit="return",
        meaning="Population deviation of what the critic was taught to predict.",
        statistic="standard deviation",
    ),
    MetricSpec(
        key="ppo/value_mean", unit="return", meaning="What the critic predicted while collecting."
    ),
    MetricSpec(
        key="ppo/reward_clip_frac",
        unit="1",
        meaning="Share of scaled rewards at the bound; they no longer say how good a step was.",
        healthy=(0.0, 0.0),
        may_be_constant="0 as long as no reward is out of the ordinary",
        absent_when="--algo.scale-rewards is off or --algo.scaled-reward-clip is None",
        population="every frame of the iteration",
    ),
    MetricSpec(
        key="ppo/learning_rate",
        unit="1",
        meaning="Step size of Adam in this learn step; of the actor if the critic has its own.",
        statistic="last",
        may_be_constant=UNSCHEDULED,
    ),
    MetricSpec(
        key="ppo/lr_backoff_events",
        unit="1",
        meaning="How often the learning rate was lowered for a large KL divergence.",
        statistic="sum since the run began",
        may_be_constant="0 as long as the policy moves in small steps",
        absent_when="--algo.lr-backoff-kl is None",
    ),
    MetricSpec(
        key="ppo/ent_coef",
        unit="1",
        meaning="Weight of the entropy bonus in this learn step.",
        statistic="last",
        may_be_constant=UNSCHEDULED,
    ),
    MetricSpec(
        key="ppo/actor_frozen",
        unit="1",
        meaning="1 if only the critic was trained.",
        statistic="last",
        may_be_constant="0 without a freeze",
    ),
    MetricSpec(
        key="ppo/epochs",
        unit="1",
        meaning="Passes begun; fewer than set if --algo.target-kl ended the step.",
        statistic="sum",
        may_be_constant="without --algo.target-kl it is what was set",
    ),
    MetricSpec(
        key="ppo/gradient_steps",
        unit="1",
        meaning="Gradient steps taken.",
        statistic="sum",
        may_be_constant="iterations of one size take the same number",
    ),
    MetricSpec(
        key="health/nan_guard_trips",
        unit="1",
        meaning="Gradient steps skipped because the gradient was not finite.",
        statistic="sum",
        population="gradient steps",
        healthy=(0.0, 0.0),
        may_be_constant="0 as long as every gradient is finite",
    ),
    MetricSpec(
        key="ppo/trained_frames",
        unit="frame",
        meaning="Frames used.",
        statistic="sum",
        may_be_constant="as run/frames",
    ),
    MetricSpec(
        key="ppo/samples_unused_frac",
        unit="1",
        meaning="Share of frames left out, for the reasons of ppo/unused_frames.",
        population="every frame of the iteration",
        healthy=(0.0, 0.0),
        may_be_constant="0 as long as every frame can be used",
    ),
    MetricSpec(
        key="ppo/unused_frames",
        unit="frame",
        meaning="Frames left out: a number of theirs is not finite, or nothing is known of what "
        "followed them.",
        statistic="sum",
        population="every frame of the iteration",
        may_be_constant="0 as long as every frame can be used",
    ),
    *OPTION_METRICS,
)
"""Every key that a PPO learn step may report."""


WORST_RATIOS = 10
"""Frames that are kept for a look at what is in them."""

_KL = "ppo/kl"


class StepLog:
    """Numbers of the gradient steps of one learn step, read from the device once per pass."""

    num_passes: int
    """Passes ended."""

    num_steps: int
    """Gradient steps taken in them."""

    num_skipped: int
    """Gradient steps skipped because the gradient was not finite."""

    ratio_error: float | None
    """Largest distance of a ratio from 1 in the first minibatch; ``None`` before it."""

    worst_ratios: tuple[tuple[int, float], ...]
    """Row in the batch and ratio of the frames of the first minibatch furthest from 1."""

    def __init__(self) -> None:
        self.worst_ratios = ()
        self.num_passes = 0
        self.num_steps = 0
        self.num_skipped = 0
        self.ratio_error = None
        self._open_pass: list[Mapping[str, Tensor]] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last_means: dict[str, float] = {}
        self._kl_by_pass: dict[str, float] = {}
        self._was_refused = False

    def note_ratio(self, log_ratio: Tensor, rows: Tensor) -> None:
        """Keep how far the first minibatch's ratios are from 1; later ones may differ.

        Args:
            log_ratio: New minus old log-probability. Shape ``(B,)``.
            rows: Where these frames are in the batch, int64. Shape ``(B,)``.
        """
        if self.ratio_error is not None:
            return
        worst = torch.expm1(log_ratio).abs().topk(min(WORST_RATIOS, len(log_ratio)))
        places = worst.indices
        self.ratio_error = float(worst.values[0])
        self.worst_ratios = tuple(
            zip(rows[places].tolist(), torch.exp(log_ratio[places]).tolist(), strict=True)
        )

    def add(self, numbers: Mapping[str, Tensor]) -> None:
        """Note a gradient step that was taken.

        Args:
            numbers: Tensors of shape ``()`` under keys of ``STEP_METRICS``; a step leaves out what
                it has no frame for.
        """
        self._open_pass.append(numbers)
        self.num_steps += 1

    def add_refused(self, numbers: Mapping[str, Tensor]) -> None:
        """Note a gradient step that was not taken, for the policy had moved too far before it.

        Args:
            numbers: As for ``add``; only how far that was is kept.
        """
        self._open_pass.append({_KL: numbers[_KL]})
        self._was_refused = True

    def end_pass(self) -> None:
        """Reduce the steps since the last call to their sums."""
        steps, self._open_pass = self._open_pass, []
        self.num_passes += 1
        if not steps:
            return
        alike: dict[tuple[str, ...], list[Tensor]] = {}
        for step in steps:
            alike.setdefault(tuple(step), []).append(torch.stack([*step.values()]).detach())
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for keys, rows in alike.items():
            for key, total in zip(keys, torch.stack(rows).double().sum(0).tolist(), strict=True):
                sums[key] = sums.get(key, 0.0) + total
                counts[key] = counts.get(key, 0) + len(rows)
        for key, total in sums.items():
            self._sums[key] = self._sums.get(key, 0.0) + total
            self._counts[key] = self._counts.get(key, 0) + counts[key]
        self._last_means = {key: total / counts[key] for key, total in sums.items()}
        if _KL in self._last_means and self._has_moved:
            self._kl_by_pass[f"{_KL}_epoch{self.num_passes}"] = self._last_means[_KL]

    def means(self) -> dict[str, float]:
        """Return the mean of every number over the steps that had it; nothing without a step."""
        means = {key: total / self._counts[key] for key, total in self._sums.items()}
        if not self._has_moved:
            means.pop(_KL, None)
        elif _KL in self._last_means:
            means[_KL] = self._last_means[_KL]
        return means

    @property
    def _has_moved(self) -> bool:
        """Whether a step saw weights other than those that collected; the first one never does."""
        return self.num_steps > 1 or self._was_refused

    def metrics(self) -> dict[str, float]:
        """Return everything that the learn step's row says about its gradient steps."""
        counts = {
            "ppo/epochs": float(self.num_passes),
            "ppo/gradient_steps": float(self.num_steps),
            "health/nan_guard_trips": float(self.num_skipped),
        }
        error = {} if self.ratio_error is None else {"ppo/ratio_max_abs_dev": self.ratio_error}
        return self.means() | self._kl_by_pass | counts | error
