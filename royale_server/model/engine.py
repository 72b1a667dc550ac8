"""Carries out what the scheduler commands on tensors: infer, learn, snapshot.

Runs on the model thread, one job at a time and in order: the model lock of the design, by
construction. Short jobs run on the I/O thread instead, when the model thread has none. Gathers the
observations of a batch straight from the received messages into the next cells of rollout storage
(the one copy, which also widens what came as float16) and infers on that block. What nobody waits
for is left to the `FrameKeeper`. Never touches a socket, a file or the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from algorithms.base import Learner, LearnerState, Policy
from algorithms.errors import LearnAborted
from algorithms.noise import Noise
from algorithms.storage import Cells, RolloutStorage, contiguous
from royale_client.wire.messages import Step
from royale_server import crash_points
from royale_server.iteration_clock import BOOTSTRAP, CHECKS, UPDATE
from royale_server.model import random_state
from royale_server.model.invariants import Expected, check_batch
from royale_server.model.keeping import Aside, FrameKeeper, Unwritten
from royale_server.model.opponents import Opponents
from royale_server.model.vram import vram_mb
from royale_server.scheduler import (
    LEARNER_SEAT,
    Effect,
    Infer,
    Learn,
)

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]
IntArray: TypeAlias = npt.NDArray[np.int64]
ProgressReport: TypeAlias = Callable[[int, int, dict[str, float]], None]


@dataclass(slots=True)
class Inferred:
    """The answers of one batch."""

    batch: Infer
    actions: tuple[Arrays, ...]
    """For each item one array per action leaf, rows in the order of ``item.rows``."""
    policy_version: int
    duration_s: float
    discount: float | None
    """What the learner will discount these frames with; see `Learner.discount`."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The outcome of one learn step."""

    metrics: dict[str, float]
    policy_version: int
    global_step: int
    frames_wanted: int | None
    finished: str | None
    """Why the algorithm is done, or None."""
    duration_s: float
    parts_s: Mapping[str, float]
    """Where that time went: ``BOOTSTRAP``, ``CHECKS`` and ``UPDATE`` of ``iteration_clock``."""
    storage_s: float
    """Spent writing frames since the learn step before, while nobody waited for an action."""
    memory_mb: Mapping[str, float]
    """Of the policy's device, by metric key; empty on a CPU."""
    suspects: tuple[dict[str, Any], ...] = ()
    """See ``Learner.suspects``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the learner's state and of the frames it will learn from next.

    Safe to write while training goes on.
    """

    state: LearnerState
    policy_version: int
    global_step: int
    frames: dict[str, Array]
    """Complete cells by the names of `Engine.load_frames`, each ``(M, …)``."""
    generators: dict[str, Any]
    """The process's random generators; see ``random_state``."""
    opponents: dict[str, Tensor] = field(default_factory=dict)
    """Snapshots of the policy; see ``Opponents.tensors``."""


class Engine:
    """Policy, learner and storage of one run.

    Args:
        policy: The network; acts and values.
        learner: Trains it.
        storage: Cells as the scheduler's ledger numbers them.
        opponents: Snapshots of the policy that play against it; None where nothing asks for them.
        may_be_nonfinite: See ``invariants.Expected``.
    """

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        storage: RolloutStorage,
        opponents: Opponents | None = None,
        *,
        may_be_nonfinite: bool = False,
    ) -> None:
        self.policy = policy
        self.learner = learner
        self.storage = storage
        self._opponents = opponents
        self._may_be_nonfinite = may_be_nonfinite
        self._evaluated = None if opponents is None else opponents.another()
        self._greedy: set[int] = set()
        """Codes of those of them that take their most likely actions."""
        self._keys = np.zeros(0, np.uint64)
        parameter = next(policy.parameters(), None)
        self.is_on_cpu = parameter is None or parameter.device.type == "cpu"
        """Whether jobs may run on any thread, as long as it is one at a time."""
        self._keeper = FrameKeeper(policy, storage)
        self._storage_s = 0.0

    def add_slots(self, keys: npt.NDArray[np.uint64]) -> None:
        """Take the noise keys of new slots, in the order the ledger numbered them."""
        self._keys = np.concatenate([self._keys, keys])

    @property
    def opponents(self) -> Opponents:
        """The snapshots of the policy."""
        assert self._opponents is not None, "this engine was made without opponents"
        return self._opponents

    @property
    def evaluated(self) -> Opponents:
        """The policies that play evaluation rounds, apart from those of self-play."""
        assert self._evaluated is not None, "this engine was made without opponents"
        return self._evaluated

    def evaluate_with(self, tensors: Sequence[Mapping[str, Tensor]], *, greedy: bool) -> None:
        """Say how evaluation rounds are played.

        Args:
            tensors: Weights of the opponents 1, 2, …
            greedy: Whether their policies take the most likely action.

        Raises:
            RestoreError: If one of them does not fit the policy's settings, naming every tensor.
        """
        for number, weights in enumerate(tensors, 1):
            self.evaluated.put(number, weights)
            self._seat_evaluated(number, greedy=greedy)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Numbers of the snapshots of the policy, oldest first; ask before the first job."""
        return () if self._opponents is None else self._opponents.versions

    # --- jobs ---------------------------------------------------------------------------

    def infer(self, batch: Infer) -> Inferred:
        """Infer one batch; `settle` writes what is to be kept of it."""
        crash_points.reach("collect")
        started = time.perf_counter()
        self._keeper.settle_before(batch.effects)
        noise = self._noise(batch)
        cells = contiguous(batch.cells) if batch.block is None else batch.block
        if batch.seats is not None:
            actions = self._infer_seated(batch, batch.seats, cells, noise)
        elif isinstance(cells, slice) and len(batch.cells) == len(noise):
            actions = self._infer_in_place(batch, cells, noise)
        else:
            actions = self._infer_mixed(batch, cells, noise)
        answers = _split(actions, [len(item.rows) for item in batch.items])
        crash_points.reach("infer")
        duration_s = time.perf_counter() - started
        learner = self.learner
        return Inferred(batch, answers, learner.policy_version, duration_s, learner.discount())

    def settle(self) -> None:
        """Write what the last batch left; other jobs do it first, so this only chooses when."""
        started = time.perf_counter()
        self._keeper.settle()
        self._storage_s += time.perf_counter() - started

    def apply(self, effects: Sequence[Effect]) -> None:
        """Write to the frames what is known by now; a job of its own where nothing else is due."""
        self._keeper.apply(effects)

    def take_snapshot(self, version: int) -> None:
        """Copy the policy as it is now into the pool, as the snapshot of this version."""
        self.opponents.take(version, self.policy)

    def pin(self, code: int, *, greedy: bool) -> None:
        """Let a copy of the policy as it is now play evaluation rounds under a code.

        Args:
            code: Stands for it among who plays a row.
            greedy: Whether it takes its most likely actions.
        """
        self.evaluated.take(code, self.policy)
        self._seat_evaluated(code, greedy=greedy)

    def _seat_evaluated(self, code: int, *, greedy: bool) -> None:
        self.evaluated.seat(code)
        if greedy:
            self._greedy.add(code)

    def unpin(self, codes: Sequence[int]) -> None:
        """Let these copies go."""
        for code in codes:
            self.evaluated.unseat(code)
        self.evaluated.forget(codes)
        self._greedy.difference_update(codes)

    def learn(
        self,
        command: Learn,
        *,
        version: int,
        may_have_gaps: bool,
        returns: Sequence[float],
        discards: Mapping[str, int],
        should_abort: Callable[[], bool],
        progress: ProgressReport,
    ) -> Learned:
        """Run one learn step on exactly the commanded cells.

        Args:
            command: The cells, and what is still to be written to them.
            version: Policy version that collected them.
            may_have_gaps: See ``invariants.Expected``.
            returns: Returns of the training episodes that ended in this iteration.
            discards: Frames given up in this iteration, by reason.
            should_abort: Polled between minibatches.
            progress: Called after each epoch.

        Raises:
            LearnAborted: If ``should_abort`` said so; weights are as before the step.
            BrokenBatchError: If the batch must not be learnt from; nothing has changed.
        """
        started = time.perf_counter()
        self._keeper.finish(command.effects)
        valued = time.perf_counter()
        learner = self.learner
        self._check(command, version, may_have_gaps=may_have_gaps)
        checked = time.perf_counter()
        step_before = learner.global_step
        learner.feedback(command.cells)
        for reason, count in discards.items():
            learner.discard_feedback(count, reason)
        try:
            metrics = learner.learn(
                self.storage, command.cells, should_abort=should_abort, progress=progress
            )
        except LearnAborted:
            learner.global_step = step_before  # a checkpoint now is that of the last learn step
            raise
        learner.episodes_finished(np.asarray(returns, np.float64))
        crash_points.reach("learn")
        storage_s, self._storage_s = self._storage_s, 0.0
        ended = time.perf_counter()
        return Learned(
            metrics=metrics,
            policy_version=learner.policy_version,
            global_step=learner.global_step,
            frames_wanted=learner.frames_wanted(),
            finished=learner.finished(),
            duration_s=ended - started,
            parts_s={
                BOOTSTRAP: valued - started,
                CHECKS: checked - valued,
                UPDATE: ended - checked,
            },
            storage_s=storage_s,
            memory_mb=vram_mb(self.policy),
        )

    def _check(self, command: Learn, version: int, *, may_have_gaps: bool) -> None:
        """Refuse a broken batch while nothing has changed yet."""
        learner = self.learner
        expected = Expected(
            version=version,
            at_least=learner.frames_wanted(),
            num_slots=len(self._keys),
            may_have_gaps=may_have_gaps,
            may_be_nonfinite=self._may_be_nonfinite,
        )
        action = self.policy.spaces.action
        check_batch(self.storage, command.cells, action, learner.policy_version, expected)

    def snapshot(self, cells: IntArray, effects: Sequence[Effect] = ()) -> Snapshot:
        """Copy the learner's state and the frames in these cells.

        Args:
            cells: All complete cells, ascending. Shape ``(M,)``.
            effects: What is still to be written to them.
        """
        frames = self._keeper.copy_frames(cells, effects)
        learner = self.learner
        return Snapshot(
            state=learner.state(),
            policy_version=learner.policy_version,
            global_step=learner.global_step,
            frames=frames,
            generators=random_state.capture(),
            opponents={} if self._opponents is None else self._opponents.tensors(),
        )

    def load_frames(self, frames: Mapping[str, Array]) -> None:
        """Put the frames of a checkpoint into the first cells; see `FrameKeeper.load_frames`."""
        self._keeper.load_frames(frames)

    # --- inference ----------------------------------------------------------------------

    def _infer_in_place(self, batch: Infer, cells: slice, noise: Noise) -> Arrays:
        """Every row is the learner's and the cells follow each other: gather and infer there."""
        storage = self.storage
        block = tuple([leaf[cells] for leaf in storage.observations])
        masks = (
            None if storage.mask_size is None else np.empty((len(noise), storage.mask_size), "?")
        )
        at = 0
        for item in batch.items:
            step: Step = item.request.payload
            stop = at + len(item.rows)
            for target, rows in zip(block, step.observations, strict=True):
                target[at:stop] = rows
            if masks is not None:
                masks[at:stop] = step.masks
            at = stop
        inference = self.policy.act(block, masks, noise, deterministic=False)
        self._keeper.keep(Unwritten(batch, cells, inference, masks, None))
        return inference.actions

    def _infer_mixed(self, batch: Infer, cells: Cells, noise: Noise) -> Arrays:
        """Some rows have no cell, or the cells are scattered: gather aside, then copy."""
        observations, masks = self._gathered(batch)
        has_cell = np.concatenate([item.learner for item in batch.items])
        inference = self.policy.act(observations, masks, noise, deterministic=batch.evaluation)
        aside = Aside(has_cell, observations)
        self._keeper.keep(Unwritten(batch, cells, inference, masks, aside))
        return inference.actions

    def _infer_seated(self, batch: Infer, seats: IntArray, cells: Cells, noise: Noise) -> Arrays:
        """Others play some rows: each policy infers its own, in a batch of its own."""
        observations, masks = self._gathered(batch)
        has_cell = np.concatenate([item.learner for item in batch.items])
        unwritten = Unwritten(batch, cells, None, None, None)
        answers: list[tuple[Array, Arrays]] = []
        for seat in np.unique(seats).tolist():
            rows = seats == seat
            shown = tuple(leaf[rows] for leaf in observations)
            legal = None if masks is None else masks[rows]
            if seat == LEARNER_SEAT:
                inference = self.policy.act(
                    shown, legal, noise.rows(rows), deterministic=batch.evaluation
                )
                aside = Aside(has_cell[rows], shown)
                unwritten = Unwritten(batch, cells, inference, legal, aside)
            elif batch.evaluation:
                inference = self.evaluated.policy(seat).act(
                    shown, legal, noise.rows(rows), deterministic=seat in self._greedy
                )
            else:
                inference = self.opponents.policy(seat).act(shown, legal, noise.rows(rows))
            answers.append((rows, inference.actions))
        self._keeper.keep(unwritten)
        return _merged(answers)

    def _gathered(self, batch: Infer) -> tuple[Arrays, Array | None]:
        """Copy the observations and masks of a batch, wherever its cells are."""
        steps: list[Step] = [item.request.payload for item in batch.items]
        columns = zip(*(step.observations for step in steps), strict=True)
        observations = tuple(
            _finite(np.concatenate(leaves, dtype=held.dtype))
            for leaves, held in zip(columns, self.storage.observations, strict=True)
        )
        masks = None
        if self.storage.mask_size is not None:
            masks = np.concatenate([np.asarray(step.masks) for step in steps])
        return observations, masks

    def _noise(self, batch: Infer) -> Noise:
        episodes, steps = batch.episodes.view(np.uint64), batch.steps.view(np.uint64)
        return Noise(self._keys[batch.slots], episodes, steps)


def _split(actions: Arrays, sizes: Sequence[int]) -> tuple[Arrays, ...]:
    answers = []
    at = 0
    for size in sizes:
        answers.append(tuple(leaf[at : at + size] for leaf in actions))
        at += size
    return tuple(answers)


def _merged(answers: Sequence[tuple[Array, Arrays]]) -> Arrays:
    """Put the actions of several policies where their rows are."""
    merged = []
    for j, first in enumerate(answers[0][1]):
        actions = np.empty((len(answers[0][0]), *first.shape[1:]), first.dtype)
        for rows, leaves in answers:
            actions[rows] = leaves[j]
        merged.append(actions)
    return tuple(merged)


def _finite(rows: Array) -> Array:
    """Replace what is not a number in rows that have no cell: the network must still answer.

    Rows with a cell were found finite on arrival.
    """
    if rows.dtype.kind == "f":
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    return rows
