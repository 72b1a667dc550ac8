"""When a checkpoint is taken, of what, and whether the run goes on: the saver among fakes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from checkpoints import CheckpointWriteError
from royale_server.model.worker import InlineWorker
from royale_server.run.writer import CheckpointSupersededError
from royale_server.saver import LAST_REST_S, Mark, Saver

PATH = Path("somewhere")
ITERATION = 7


class Bench:
    """A saver, and everything it calls on noted in ``calls``."""

    def __init__(self, *, saved: Mark | None = None, frames: int = 3) -> None:
        self.now = 100.0
        self.calls: list[str] = []
        self.frames = frames
        self.global_step = 1000
        self.copied: list[tuple[list[int], tuple[Any, ...]]] = []
        self.applied: list[tuple[Any, ...]] = []
        self.written: list[tuple[Any, Callable[[Any], None]]] = []
        self.saved: list[int] = []
        self.refused: list[tuple[int, Exception]] = []
        self.done: list[str] = []
        self.posted: list[Callable[[], None]] = []
        self.model = InlineWorker()
        self.failures: list[BaseException] = []
        ledger = SimpleNamespace(complete_cells=lambda: np.arange(self.frames))
        hub = SimpleNamespace(
            scheduler=SimpleNamespace(ledger=ledger),
            rest=lambda: self.calls.append("rest"),
            saved=lambda: self.calls.append("go on"),
            give_up_gathering=self._give_up_gathering,
        )
        engine = SimpleNamespace(snapshot=self._snapshot, apply=self.applied.append)
        writer = SimpleNamespace(checkpoint=lambda c, done: self.written.append((c, done)))
        self.saver = Saver(
            hub=hub,
            engine=engine,
            model=self.model,
            writer=writer,
            contents=self._contents,
            saved=saved,
            clock=lambda: self.now,
            post=self.posted.append,
            on_saved=lambda step, _path: self.saved.append(step),
            on_refused=lambda step, error: self.refused.append((step, error)),
            on_failed=self.failures.append,
        )

    def _give_up_gathering(self) -> None:
        self.calls.append("give up gathering")
        self.saver.gathered("sessions without snapshots")

    def _snapshot(self, cells: np.ndarray, effects: tuple[Any, ...]) -> Any:
        self.copied.append((cells.tolist(), effects))
        return SimpleNamespace(global_step=self.global_step, frames=len(cells))

    def _contents(self, snapshot: Any, sessions: Any) -> Any:
        step = snapshot.global_step + (snapshot.frames if sessions else 0)
        return SimpleNamespace(step=step, sessions=sessions, facts={"metrics_row": ITERATION})

    # what the others do
    def rested(self, *effects: Any) -> None:
        self.saver.rested(effects)

    def gathered(self, sessions: str = "sessions") -> None:
        self.saver.gathered(sessions)

    def copy(self) -> None:
        """The model thread gets to its jobs."""
        while self.model.run_pending():
            pass

    def disk(self, result: Path | Exception = PATH) -> None:
        """The writer's thread gets to the oldest checkpoint."""
        _, done = self.written.pop(0)
        done(result)
        while self.posted:
            self.posted.pop(0)()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.saver.tick()

    def conclude(self) -> None:
        self.done.append("concluded")

    def to_the_disk(self) -> tuple[int, Any]:
        """Step and sessions of the one checkpoint that waits for the disk."""
        ((contents, _),) = self.written
        return contents.step, contents.sessions


def test_the_run_goes_on_as_soon_as_everything_is_copied() -> None:
    bench = Bench()
    bench.saver.save()
    assert bench.calls == ["rest"]
    bench.rested("a reward")
    bench.gathered()
    assert bench.calls == ["rest"]
    bench.copy()
    assert bench.copied == [([0, 1, 2], ("a reward",))]
    assert bench.calls == ["rest", "go on"], "and the disk is not waited for"
    assert bench.to_the_disk() == (1003, "sessions")
    assert bench.saver.saved is None
    bench.disk()
    assert bench.saver.saved == Mark(1003, ITERATION)
    assert bench.saved == [1003]


def test_the_run_stays_at_rest_until_snapshots_are_gathered() -> None:
    bench = Bench()
    bench.saver.save()
    bench.rested()
    bench.copy()
    bench.wait(1000.0)  # only the hub decides how long
    assert bench.calls == ["rest"]
    bench.gathered()
    assert bench.calls == ["rest", "go on"]


def test_the_last_checkpoint_leaves_the_run_at_rest() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.gathered()
    bench.copy()
    assert bench.calls == ["rest"]
    assert bench.done == []
    bench.disk()
    assert bench.done == ["concluded"]


def test_a_save_asked_for_twice_is_one() -> None:
    bench = Bench()
    bench.saver.save()
    bench.saver.save()
    bench.rested()
    bench.saver.save()
    bench.gathered()
    bench.copy()
    assert bench.calls == ["rest", "go on"]
    assert len(bench.written) == 1


def test_a_save_can_follow_a_save_that_is_still_being_written() -> None:
    bench = Bench()
    for frames in (3, 5):
        bench.frames = frames
        bench.saver.save()
        bench.rested()
        bench.gathered()
        bench.copy()
    assert bench.calls == ["rest", "go on"] * 2
    bench.disk(CheckpointSupersededError(PATH, "not written, since step 1005 followed"))
    assert bench.saver.saved is None
    assert bench.saver.error is None
    bench.disk()
    assert bench.saver.saved == Mark(1005, ITERATION)


def test_a_rest_that_does_not_come_costs_the_open_iteration_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.wait(LAST_REST_S - 0.1)
    assert bench.model.run_pending() is False
    with caplog.at_level(logging.WARNING):
        bench.wait(0.2)
    assert "the frames of the open iteration are not saved" in caplog.text
    bench.copy()
    assert bench.copied == [([], ())]
    assert bench.to_the_disk() == (1000, None)
    bench.wait(100.0)
    assert len(bench.written) == 1
    bench.disk()
    assert bench.done == ["concluded"]


def test_a_rest_that_comes_after_it_was_given_up_changes_nothing() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.wait(LAST_REST_S + 0.1)
    bench.rested("a reward")
    bench.gathered()
    bench.copy()
    assert bench.to_the_disk() == (1000, None)
    bench.disk()
    assert bench.done == ["concluded"]


def test_snapshots_that_do_not_come_are_done_without_at_the_end() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.copy()
    bench.wait(LAST_REST_S + 0.1)
    assert bench.calls == ["rest", "give up gathering"]
    assert bench.to_the_disk() == (1003, "sessions without snapshots")


def test_who_is_in_a_hurry_waits_for_no_rest() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.saver.hurry()
    bench.copy()
    assert bench.to_the_disk() == (1000, None)


def test_who_is_in_a_hurry_waits_for_no_snapshot() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.saver.hurry()
    bench.copy()
    assert bench.to_the_disk() == (1003, "sessions without snapshots")


def test_hurry_is_for_the_last_checkpoint_only() -> None:
    bench = Bench()
    bench.saver.hurry()
    bench.saver.save()
    bench.saver.hurry()
    bench.copy()
    assert bench.written == []


@pytest.mark.parametrize("reached", ["asked", "rested", "copied", "gathered"])
def test_a_stop_during_a_periodic_save_makes_it_the_last(reached: str) -> None:
    bench = Bench()
    bench.saver.save()
    steps: list[tuple[str, Callable[[], None]]] = [
        ("rested", bench.rested),
        ("copied", bench.copy),
        ("gathered", bench.gathered),
    ]
    if reached == "gathered":  # before it is copied
        steps = [steps[0], steps[2], steps[1]]
    seen = reached == "asked"
    if seen:
        bench.saver.save_last(bench.conclude)
    for name, step in steps:
        step()
        if name == reached:
            bench.saver.save_last(bench.conclude)
            seen = True
    assert seen
    assert "go on" not in bench.calls
    assert bench.to_the_disk() == (1003, "sessions")
    bench.disk()
    assert bench.done == ["concluded"]
    assert bench.copied == [([0, 1, 2], ())]


def test_a_stop_after_a_periodic_save_rests_anew() -> None:
    bench = Bench()
    bench.saver.save()
    bench.rested()
    bench.copy()
    bench.gathered()
    bench.saver.save_last(bench.conclude)
    assert bench.calls == ["rest", "go on", "rest"]
    bench.frames = 7
    bench.rested()
    bench.copy()
    bench.gathered()
    bench.disk()
    assert bench.done == []
    bench.disk()
    assert bench.done == ["concluded"]
    assert bench.saver.saved == Mark(1007, ITERATION)


def test_a_run_that_is_told_to_rest_once_more_is_copied_once_more() -> None:
    """A client left meanwhile: what that meant for frames and what is gathered belong together."""
    bench = Bench()
    bench.saver.save()
    bench.rested()
    bench.gathered("the old")
    bench.rested("a successor's value")
    bench.copy()
    assert bench.written == []
    bench.gathered("the new")
    assert bench.to_the_disk() == (1003, "the new")
    assert bench.copied == [([0, 1, 2], ()), ([0, 1, 2], ("a successor's value",))]
    assert bench.calls == ["rest", "go on"]


def test_what_a_rest_brings_is_written_to_the_frames_though_nothing_is_saved() -> None:
    """A pause: no checkpoint, but the rewards that travel with the rest are nowhere else."""
    bench = Bench()
    bench.rested("a reward")
    bench.gathered()
    bench.copy()
    assert bench.applied == [("a reward",)]
    assert bench.copied == []
    assert bench.written == []


def test_what_is_on_disk_already_is_not_written_again() -> None:
    bench = Bench(saved=Mark(1003, ITERATION))
    bench.saver.save()
    bench.rested()
    bench.gathered()
    bench.copy()
    assert bench.written == []
    assert bench.calls == ["rest", "go on"]
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.gathered()
    bench.copy()
    assert bench.written == []
    assert bench.done == ["concluded"]
    assert bench.saved == []


def test_frames_that_were_saved_before_they_were_learnt_from_are_saved_again_after() -> None:
    """The step counts stored frames: it is the same before the learn step and after it."""
    bench = Bench(saved=Mark(1003, ITERATION - 1))
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.gathered()
    bench.copy()
    assert bench.to_the_disk()[0] == 1003


def test_a_refusal_of_the_disk_is_remembered_until_a_checkpoint_is_written() -> None:
    bench = Bench()
    refusal = CheckpointWriteError(PATH, "no space left on device")
    bench.saver.save()
    bench.rested()
    bench.gathered()
    bench.copy()
    bench.disk(refusal)
    assert bench.refused == [(1003, refusal)]
    assert bench.saver.error is refusal
    assert bench.saver.saved is None
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.gathered()
    bench.copy()
    assert bench.to_the_disk()[0] == 1003, "what was refused is tried again"
    bench.disk()
    assert bench.saver.error is None
    assert bench.done == ["concluded"]


def test_a_last_checkpoint_that_the_disk_refuses_ends_the_run_all_the_same() -> None:
    bench = Bench()
    bench.saver.save_last(bench.conclude)
    bench.rested()
    bench.gathered()
    bench.copy()
    bench.disk(CheckpointWriteError(PATH, "no space left on device"))
    assert bench.done == ["concluded"]
    assert bench.saver.error is not None


def test_a_model_that_cannot_be_copied_fails_the_run() -> None:
    bench = Bench()
    error = RuntimeError("out of memory")

    def fail(*_: Any) -> None:
        raise error

    bench.saver._engine.snapshot = fail
    bench.saver.save()
    bench.rested()
    bench.copy()
    assert bench.failures == [error]
