"""Takes checkpoints: brings the run to rest, gathers its parts, hands them to the writer.

Runs on the I/O thread and never blocks. The run goes on as soon as everything is copied; writing
happens elsewhere. A last checkpoint does not wait for ever for a rest that does not come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from checkpoints import CheckpointContents
from royale_server.endpoint.hub import Hub
from royale_server.model.engine import Engine, Snapshot
from royale_server.model.worker import ModelWorker
from royale_server.run.writer import CheckpointSupersededError, Writer
from royale_server.saved_run import Sessions
from royale_server.scheduler import Effect

logger = logging.getLogger(__name__)

LAST_REST_S = 5.0
"""How long a run that ends waits for its rest point; then it saves the last learn step."""

NO_CELLS = np.zeros(0, np.int64)


class Mark(NamedTuple):
    """What tells two checkpoints of a run apart.

    The step alone does not: it counts stored frames, and the same frames are stored before they are
    learnt from and after.
    """

    step: int
    iteration: int

    @classmethod
    def of(cls, contents: CheckpointContents) -> Mark:
        """The mark of a checkpoint."""
        return cls(contents.step, contents.facts["metrics_row"])


@dataclass(slots=True)
class _Save:
    """A checkpoint in the making."""

    done: Callable[[], None]
    is_last: bool
    deadline: float | None = None
    num_copies: int = 0
    """How often the run was copied: again if it is asked to rest again meanwhile."""
    is_rested: bool = False
    is_at_rest: bool = True
    """False once the rest was given up: only the learner is saved."""
    snapshot: Snapshot | None = None
    sessions: Sessions | None = None


class Saver:
    """Saves one attempt.

    Args:
        hub: The clients.
        engine: Policy, learner and storage.
        model: Runs the engine's jobs.
        writer: Writes checkpoints.
        contents: Puts everything into the form of a checkpoint.
        saved: Mark of the checkpoint that the attempt began with.
        clock: Monotonic seconds.
        post: Hands a callback from the writer's thread to this one.
        on_saved: Called with step and path of each checkpoint on disk.
        on_refused: Called with the step and the reason if the disk refused one.
        on_failed: Called if the model thread raised.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        engine: Engine,
        model: ModelWorker,
        writer: Writer,
        contents: Callable[[Snapshot, Sessions | None], CheckpointContents],
        saved: Mark | None,
        clock: Callable[[], float],
        post: Callable[[Callable[[], None]], None],
        on_saved: Callable[[int, Path], None],
        on_refused: Callable[[int, Exception], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._hub = hub
        self._engine = engine
        self._model = model
        self._writer = writer
        self._contents = contents
        self._clock = clock
        self._post = post
        self._on_saved = on_saved
        self._on_refused = on_refused
        self._on_failed = on_failed
        self._save: _Save | None = None
        self._waiting: list[Callable[[], None]] = []
        self.saved = saved
        """Mark of the newest checkpoint that is known to be on disk."""
        self.error: Exception | None = None
        """Why the newest one is not."""

    @property
    def is_under_way(self) -> bool:
        """Whether a checkpoint is being taken: the run goes on by itself after it."""
        return self._save is not None

    def save(self, done: Callable[[], None] | None = None) -> None:
        """Take a checkpoint at the next rest point and go on.

        Args:
            done: Called when it, or the one that is being taken, is on disk or was refused.
        """
        if done is not None:
            self._waiting.append(done)
        if self._save is None:
            self._save = _Save(done=_nothing, is_last=False)
            self._hub.rest()

    def save_last(self, done: Callable[[], None]) -> None:
        """Take the last checkpoint; the run stays at rest.

        Args:
            done: Called when it is on disk, or was refused.
        """
        save = self._save = self._save or _Save(done=done, is_last=True)
        save.done, save.is_last = done, True
        save.deadline = self._clock() + LAST_REST_S
        if not save.is_rested:
            self._hub.rest()

    def save_learner(self, done: Callable[[], None]) -> None:
        """Take the last checkpoint without the frames of the iteration, which must not be learnt.

        Args:
            done: Called when it is on disk, or was refused.
        """
        save = self._save = _Save(done=done, is_last=True, is_at_rest=False)
        self._copy(save, NO_CELLS, ())

    def hurry(self) -> None:
        """Wait for nobody any more."""
        if self._save is not None and self._save.deadline is not None:
            self._save.deadline = self._clock()
            self.tick()

    def rested(self, effects: tuple[Effect, ...]) -> None:
        """The run is at rest: copy the learner and its frames."""
        save = self._save
        if save is None or not save.is_at_rest:
            self._model.submit(partial(self._engine.apply, effects), _done, self._on_failed)
            return
        save.is_rested = True
        save.snapshot = save.sessions = None
        self._copy(save, self._hub.scheduler.ledger.complete_cells(), effects)

    def gathered(self, sessions: Sessions) -> None:
        """What clients come back to is known."""
        if self._save is not None and self._save.is_at_rest:
            self._save.sessions = sessions
            self._write_if_complete(self._save)

    def tick(self) -> None:
        """Do what is due by time alone."""
        save = self._save
        if save is None or save.deadline is None or self._clock() < save.deadline:
            return
        save.deadline = None
        if save.is_rested:
            self._hub.give_up_gathering()
            return
        logger.warning(
            "the run did not come to rest within %g s: the frames of the open iteration are not "
            "saved, and a resume collects them anew",
            LAST_REST_S,
        )
        save.is_at_rest = False
        self._copy(save, NO_CELLS, ())

    def _copy(
        self, save: _Save, cells: np.ndarray[Any, np.dtype[np.int64]], effects: tuple[Effect, ...]
    ) -> None:
        save.num_copies += 1
        job = partial(self._engine.snapshot, cells, effects)
        self._model.submit(job, partial(self._copied, save, save.num_copies), self._on_failed)

    def _copied(self, save: _Save, number: int, snapshot: Snapshot) -> None:
        if number == save.num_copies:
            save.snapshot = snapshot
            self._write_if_complete(save)

    def _write_if_complete(self, save: _Save) -> None:
        if save.snapshot is None or (save.is_at_rest and save.sessions is None):
            return
        self._save = None
        waiting, self._waiting = self._waiting, []
        contents = self._contents(save.snapshot, save.sessions)
        mark = Mark.of(contents)
        if mark == self.saved:
            _call(waiting, save.done)
        else:
            written = partial(self._written, mark, partial(_call, waiting, save.done))
            self._writer.checkpoint(contents, lambda result: self._post(partial(written, result)))
        if not save.is_last:
            self._hub.saved()

    def _written(self, mark: Mark, done: Callable[[], None], result: Path | Exception) -> None:
        if isinstance(result, CheckpointSupersededError):
            logger.warning("%s", result)
        elif isinstance(result, Exception):
            self.error = result
            self._on_refused(mark.step, result)
        else:
            self.error = None
            self.saved = mark
            self._on_saved(mark.step, result)
        done()


def _call(waiting: list[Callable[[], None]], done: Callable[[], None]) -> None:
    """Tell everybody who waits for a checkpoint; the run's own business comes last."""
    for each in (*waiting, done):
        each()


def _nothing() -> None:
    """The run does not wait for this checkpoint."""


def _done(_: None) -> None:
    """What was known of the frames is written."""
