"""What the server asks of a policy and of a learner: two small abstract classes.

The model thread is the only caller. Neither class knows sockets, files or scheduling: a policy
turns batches of observations into actions, a learner turns stored frames into better weights.
Letters: n rows of a batch, M frames of an iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from algorithms.config import RESTORE_ALL, LearnerConfig
from algorithms.errors import UpdateError
from algorithms.metric_spec import MetricSpec
from algorithms.noise import Noise
from algorithms.spaces import ArraySpec, Spaces
from algorithms.storage import Array, BoolArray, FloatArray, IntArray, RolloutStorage

OBSERVATION_STATISTICS = "observation_normalizer."
"""Prefix of the names of observation statistics among a model's tensors."""

RETURN_STATISTICS = "return_normalizer."
"""Prefix of the names of reward statistics, which belong to the learner."""


class Inference(NamedTuple):
    """What a policy answers to a batch of n observations."""

    actions: tuple[Array, ...]
    """One array ``(n, …)`` per leaf of the action space, in the leaf's exact dtype, legal and
    inside its bounds: what the environments get."""

    step_state: dict[str, Array]
    """What training needs to see again, under the names and layouts of ``Policy.step_state``.
    Each of shape ``(n, …)``."""

    later: Callable[[], dict[str, Array]] | None = None
    """Computes what is missing in ``step_state`` once the actions are on their way; None if nothing
    is. Called at most once, before the weights change and while the observations are as they were;
    not at all where nothing is kept, as in evaluation. See ``Policy.complete``."""

    def complete(self) -> dict[str, Array]:
        """Return the whole step state."""
        return self.step_state if self.later is None else {**self.step_state, **self.later()}


class Evaluation(NamedTuple):
    """Present judgement of stored actions, with gradients."""

    log_prob: Tensor
    """Log-probability of each action. Shape ``(n,)``."""

    entropy: Tensor
    """Entropy of each row's distribution, in nats. Shape ``(n,)``."""

    values: Tensor
    """``V(s_t)``. Shape ``(n,)``."""


class Policy(nn.Module, ABC):
    """Turns observations into actions. Frozen from one learn step to the next.

    Subclasses are made as ``PolicyClass(config, spaces, device=...)`` and raise ConfigError for
    spaces they cannot handle. A value network lives under the attribute ``critic``.
    """

    uid: ClassVar[str]
    """Name of the policy on the command line."""

    spaces: Spaces
    """What it was made for."""

    step_state: Mapping[str, ArraySpec]
    """Layout of what ``act`` wants stored with each frame."""

    @abstractmethod
    def act(
        self,
        observations: tuple[Array, ...],
        masks: BoolArray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Choose an action for each row.

        A row's action depends on its observation, its mask and its own noise, never on the batch
        it is part of (but for the rounding of matrix products).

        Args:
            observations: One array ``(n, …)`` per leaf of the observation space, never written
                to; may be read-only.
            masks: True where an action is legal. Shape ``(n, mask_size)``; ``None`` where the
                environments send none.
            noise: Addresses of the n rows' random numbers.
            deterministic: Take the likeliest action instead of sampling.

        Returns:
            Actions and step state.
        """

    @abstractmethod
    def values(self, observations: tuple[Array, ...]) -> npt.NDArray[np.float32]:
        """Return ``V(s)`` of each row.

        Args:
            observations: As for ``act``.

        Returns:
            Shape ``(n,)``; zeros from a policy without a critic.
        """

    def complete(self, inferences: Sequence[Inference]) -> dict[str, Array]:
        """Return the whole step state of several batches, one after the other.

        Short batches are completed together: override it where that costs less than each alone. How
        many are, depends on when a checkpoint is taken; no bit of a row may depend on that.

        Args:
            inferences: What ``act`` returned, at least one.

        Returns:
            Every name of ``step_state``, over the rows of all batches in order.
        """
        states = [inference.complete() for inference in inferences]
        if len(states) == 1:
            return states[0]
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def action_layout(self) -> IntArray | None:
        """Return what each action number means to this policy, if it thinks of actions in parts.

        Returns:
            One row an action, shape ``(A, d)``, -1 in every column of the action that waits; None
            for a policy that takes actions as the environment numbers them.
        """
        return None

    def update_normalizers(self, observations: tuple[Array, ...]) -> None:
        """Let observation statistics see the frames of an iteration: last act of a learn step.

        Args:
            observations: One array ``(M, …)`` per leaf, each frame once.
        """

    def normalizer_state(self) -> dict[str, Array]:
        """Return the statistics of the normalisers by name; empty without normalisers."""
        return {}

    def load_normalizer_state(self, state: Mapping[str, Array]) -> None:
        """Take over what ``normalizer_state`` returned, with exactly these names and shapes."""

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, buffers and normaliser statistics by name, without copying weights."""
        return self.state_dict() | as_tensors(OBSERVATION_STATISTICS, self.normalizer_state())


def as_tensors(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory, with a prefix before their names."""
    return {prefix + name: torch.from_numpy(array) for name, array in arrays.items()}


class Rehearsal(NamedTuple):
    """What a learner's gradient step takes, measured once before it counts."""

    ratio_deviation: float | None
    """Largest |ratio - 1| between acting and judging with the same weights."""

    frame_bytes: int
    """Of one frame on the device, held for a whole learn step."""

    optimizer_bytes: int
    """That the optimizer will hold on the device once it has stepped, and holds not yet."""


class TrainablePolicy(Policy):
    """A policy whose stored actions can be judged again: what policy-gradient learners need.

    ``act`` stores at least ``action``, ``log_prob`` (float32) and ``value`` (float32); ``action``
    is the sample itself, before any clipping, rescaling or shifting.
    """

    @abstractmethod
    def prepare(self, observations: tuple[Array, ...]) -> tuple[Tensor, ...]:
        """Encode observations once, for many minibatches of ``evaluate_actions``.

        Args:
            observations: One array ``(M, …)`` per leaf of the observation space.

        Returns:
            Tensors on the policy's device, each with leading dimension M.
        """

    @abstractmethod
    def evaluate_actions(
        self, observations: tuple[Tensor, ...], masks: Tensor | None, actions: Tensor
    ) -> Evaluation:
        """Judge stored actions by the present weights, with gradients.

        Args:
            observations: Rows of what ``prepare`` returned, each with leading dimension n.
            masks: Legal actions. Shape ``(n, mask_size)``, bool; or ``None``.
            actions: Rows of the step state ``action``. Shape ``(n, …)``.

        Returns:
            Log-probabilities, entropies and values.
        """

    def actor_parameters(self) -> list[nn.Parameter]:
        """Return every parameter outside the module ``critic``."""
        return [
            parameter
            for name, parameter in self.named_parameters()
            if not name.startswith("critic.")
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """Everything a learner needs to continue exactly: named tensors and plain JSON."""

    model: dict[str, Tensor]
    """Weights and normaliser statistics by name, on the CPU, copies."""

    optimizer: dict[str, Tensor]
    """Optimizer state as ``parameter/entry``, on the CPU, copies."""

    counters: dict[str, Any]
    """Counters, schedule state and structure of the optimizer; JSON-able."""


class Learner(ABC):
    """Improves a policy from stored frames, and knows when it is done.

    Args:
        config: Settings.
        policy: The policy to train; the server infers with ``learner.policy``.
        seed: Seed of every random choice of the learner, such as the order of minibatches.
    """

    uid: ClassVar[str]
    """Name of the algorithm on the command line."""

    on_policy: ClassVar[bool] = True
    """Whether only frames of the current policy version may be trained on."""

    evaluates: ClassVar[bool] = False
    """Whether it only plays evaluation rounds, by weights that it must be given."""

    saves: ClassVar[bool] = True
    """Whether there is anything worth a checkpoint."""

    metrics: ClassVar[tuple[MetricSpec, ...]] = ()
    """Declarations of every key that ``learn`` may return."""

    policy: Policy
    """What the server infers with."""

    policy_version: int
    """Completed learn steps."""

    global_step: int
    """Stored frames since the run began."""

    suspects: tuple[dict[str, Any], ...] = ()
    """Frames of the newest learn step that a person should look at if something is wrong, the worst
    first; plain data."""

    def __init__(self, config: LearnerConfig, policy: Policy, *, seed: int) -> None:
        self.config = config
        self.policy = policy
        self.seed = seed
        self.policy_version = 0
        self.global_step = 0
        self._recent_returns: deque[float] = deque(maxlen=config.stop_window)

    def frames_wanted(self) -> int | None:
        """Return how many frames the next learn step waits for; ``None`` if off-policy."""
        return self.config.frames_per_iteration

    def discount(self) -> float | None:
        """Return what ``learn`` will discount the frames with that are collected now.

        Environments that shape rewards by a potential shape by it. ``None``: the learner discounts
        nothing, or does not say, and such environments keep a discount of their own.
        """
        return None

    def feedback(self, cells: IntArray) -> None:
        """Take note that frames are complete and stored.

        Args:
            cells: Their cells. Shape ``(n,)``.
        """
        self.global_step += len(cells)

    def discard_feedback(self, count: int, reason: str) -> None:  # noqa: B027 - a hook
        """Take note of frames that will never be trained on; most learners have no use for it.

        Args:
            count: Number of frames.
            reason: ``late``, ``cut``, ``lost``, …
        """

    def episodes_finished(self, returns: FloatArray) -> None:
        """Take note of finished training episodes, in the order in which they ended.

        Args:
            returns: Undiscounted return of each. Shape ``(e,)``, environment units.
        """
        self._recent_returns.extend(float(episode_return) for episode_return in returns)

    def finished(self) -> str | None:
        """Return why the run is done, as a sentence; ``None`` if it is not."""
        return self.config.reached(self.global_step, self._recent_returns)

    @abstractmethod
    def learn(
        self,
        storage: RolloutStorage,
        cells: IntArray,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        """Do one learn step, all or nothing.

        Args:
            storage: Where the frames lie; only read.
            cells: Cells of the complete frames of this iteration. Shape ``(M,)``.
            should_abort: Polled often; true means: undo everything and raise.
            progress: Called after each pass with its number from 1, the number of passes, and
                metrics so far.

        Returns:
            Metrics of the step under declared keys. Absurd rewards may make some of them
            infinite or NaN.

        Raises:
            LearnAborted: If ``should_abort`` said so; weights, optimizer and normalisers are those
                from before the step.
            UpdateError: If learning cannot go on; likewise.
        """

    def frames_at_once(self) -> int | None:
        """Return how many frames go through the policy at once, with gradients; None if none."""
        return None

    def rehearse(self, storage: RolloutStorage, cells: IntArray) -> Rehearsal:
        """Go forward and backward once as a gradient step does, and change nothing.

        Only called where ``frames_at_once`` is a number.

        Args:
            storage: Holds made-up frames.
            cells: Of ``frames_at_once`` frames, each an episode of its own. Shape ``(M,)``.

        Raises:
            UpdateError: The algorithm says how many frames, and not how they are learnt from.
        """
        raise UpdateError(
            f"algorithm {self.uid!r} has frames_at_once but no rehearse; define both, or neither "
            "if it takes no gradient steps"
        )

    @abstractmethod
    def state(self) -> LearnerState:
        """Return a copy of everything needed to continue exactly."""

    @abstractmethod
    def load_state(self, state: LearnerState, restore: str = RESTORE_ALL) -> None:
        """Take over a state, or a part of it; nothing changes if it does not fit.

        Args:
            state: What ``state`` returned, here or in another process.
            restore: ``all`` continues: weights, optimizer, counters. ``model``, ``except-NAME``
                and patterns take weights only and leave counters, optimizer and schedules fresh.
                Normaliser statistics travel with every mode.

        Raises:
            RestoreError: If anything does not fit, naming every tensor that does not.
        """

    def _counters(self) -> dict[str, Any]:
        return {
            "algorithm": self.uid,
            "policy_version": self.policy_version,
            "global_step": self.global_step,
            "recent_returns": list(self._recent_returns),
        }

    def _load_counters(self, counters: Mapping[str, Any]) -> None:
        self.policy_version = counters["policy_version"]
        self.global_step = counters["global_step"]
        self._recent_returns.clear()
        self._recent_returns.extend(counters["recent_returns"])

    def _check_counters(self, counters: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with counters that are to be continued."""
        if counters.get("algorithm") != self.uid:
            return [
                f"the checkpoint was written by algorithm {counters.get('algorithm')!r}, this run "
                f"uses {self.uid!r}; only weights can be taken over (--algo.restore model)"
            ]
        return [f"counter {name} is missing" for name in self._counters() if name not in counters]
