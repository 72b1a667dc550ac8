"""One thread that runs jobs one at a time, in the order they were submitted.

Knows nothing of what the jobs do. Results go back through a ``deliver`` function, which hands
a callback to the thread that submitted (an event loop, as a rule).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Callback: TypeAlias = Callable[[], None]


class ModelWorker(Protocol):
    """Runs jobs in order and calls back with their results, on the submitter's thread."""

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T], None] | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Run ``job`` after all jobs submitted before it; then ``done`` or ``failed``.

        Without ``done`` nobody is told of its end, which spares the submitter a wake-up.
        """

    @property
    def is_idle(self) -> bool:
        """Whether every job submitted has ended: the submitter may do a short one by itself."""


def _outcome(
    job: Callable[[], T], done: Callable[[T], None] | None, failed: Callable[[BaseException], None]
) -> Callback | None:
    """Run a job; return what is to be called on the submitter's thread, if anything is."""
    try:
        result = job()
    except BaseException as error:  # the submitter decides what is fatal
        caught = error
        return lambda: failed(caught)
    return None if done is None else lambda: done(result)


class ModelThread:
    """A worker with a thread of its own.

    Args:
        deliver: Hands a callback to the submitting thread; must be thread-safe.
    """

    def __init__(self, deliver: Callable[[Callback], None]) -> None:
        self._deliver = deliver
        self._jobs: SimpleQueue[Callable[[], Callback | None] | None] = SimpleQueue()
        # Each has one writer, so that none needs a lock.
        self._num_submitted = 0
        self._num_ended = 0
        self._thread = threading.Thread(target=self._run, name="royale-model", daemon=True)
        self._thread.start()

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T], None] | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        """See `ModelWorker.submit`."""
        self._num_submitted += 1
        self._jobs.put(lambda: _outcome(job, done, failed))

    @property
    def is_idle(self) -> bool:
        """See `ModelWorker.is_idle`."""
        return self._num_submitted == self._num_ended

    @property
    def is_alive(self) -> bool:
        """Whether a job is still running (or wanted) after `close`."""
        return self._thread.is_alive()

    def close(self, timeout_s: float) -> None:
        """Stop after the jobs already submitted; wait for them for at most this long."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            callback = job()
            self._num_ended += 1
            if callback is not None:
                self._deliver(callback)


class InlineWorker:
    """A worker without a thread: the owner runs the jobs by calling `run_pending`."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], Callback | None]] = deque()

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T], None] | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        """See `ModelWorker.submit`."""
        self._jobs.append(lambda: _outcome(job, done, failed))

    @property
    def is_idle(self) -> bool:
        """See `ModelWorker.is_idle`; here every job has to wait for its turn."""
        return False

    def run_pending(self) -> bool:
        """Run one job and its callback. Returns False if there was none."""
        if not self._jobs:
            return False
        callback = self._jobs.popleft()()
        if callback is not None:
            callback()
        return True
