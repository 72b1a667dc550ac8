"""A run that is stopped anywhere and resumed learns what an uninterrupted one does, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from royale_server.exit_codes import ExitCode
from tests.server.trainer_world import Attempt

FOUR_ROWS = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The run without a stop."""
    attempt = Attempt(tmp_path_factory.mktemp("whole"))
    attempt.join()
    attempt.play_rows(FOUR_ROWS)
    return attempt


def goes_on_as(whole: Attempt, first: Attempt, directory: Path) -> Attempt:
    """Resume what ``first`` left; the rows of both are those of the whole run."""
    second = Attempt(directory)
    second.join()
    second.play_rows(FOUR_ROWS - len(first.rows))
    assert first.rows + second.rows == whole.rows[:FOUR_ROWS]
    assert second.model() == whole.model()
    return second


def test_a_learn_step_that_is_aborted_is_done_by_the_resumed_run_from_the_same_frames(
    whole: Attempt, tmp_path: Path
) -> None:
    """Ctrl-C twice, in the middle of the third learn step."""
    first = Attempt(tmp_path)
    first.join()
    first.play_rows(2)
    first.hold_learning = True
    first.play()
    assert first.trainer.is_learning
    step_before = first.trainer._step
    model_before = first.model()
    first.interrupt()
    first.learn_poll_s = 7.0  # its 30 s are over at the fifth of twelve minibatches
    first.hold_learning = False
    first.run()
    assert len(first.rows) == 2
    first.end()
    assert first.exit_code is ExitCode.FINISHED
    assert first.model() == model_before
    assert first.writer.steps[-1] == step_before + first.hub.scheduler.ledger.num_complete
    assert first.hub.scheduler.ledger.num_complete >= 64
    second = goes_on_as(whole, first, tmp_path)
    assert second.writer.rows[0]["run/frames"] == first.hub.scheduler.ledger.num_complete


def test_an_impatient_second_ctrl_c_before_the_learn_step_begins_saves_its_frames_too(
    whole: Attempt, tmp_path: Path
) -> None:
    first = Attempt(tmp_path)
    first.join()
    first.play_rows(2)
    first.hold_learning = True
    first.play()
    first.interrupt()
    first.interrupt()
    first.hold_learning = False
    first.run()
    first.end()
    assert len(first.rows) == 2
    goes_on_as(whole, first, tmp_path)


@pytest.mark.parametrize("frames", [1, 30, 60])
def test_a_run_that_is_stopped_while_collecting_goes_on_to_the_bit(
    frames: int, whole: Attempt, tmp_path: Path
) -> None:
    first = Attempt(tmp_path)
    first.join()
    first.play_rows(2)
    stored = first.hub.scheduler.ledger.stored_total
    first.play(lambda: first.hub.scheduler.ledger.stored_total >= stored + frames)
    first.interrupt()
    first.end()
    goes_on_as(whole, first, tmp_path)


def test_periodic_checkpoints_change_nothing_and_the_newest_is_gone_on_from(
    whole: Attempt, tmp_path: Path
) -> None:
    """The process dies in the fourth iteration; the third is done again, and the same."""
    first = Attempt(tmp_path, save_every=2)
    first.join()
    first.play_rows(3)
    assert first.rows == whole.rows[:3]
    assert len(first.writer.steps) == 1
    second = Attempt(tmp_path)
    second.join()
    second.play_rows(2)
    assert second.rows == whole.rows[2:4]
    assert second.model() == whole.model()


def test_a_pause_changes_nothing(whole: Attempt, tmp_path: Path) -> None:
    """What travels with the rest is nowhere else: without it rewards would be missing."""
    attempt = Attempt(tmp_path)
    attempt.join()
    for frames in (10, 75, 140):
        attempt.play(lambda wanted=frames: attempt.hub.scheduler.ledger.stored_total >= wanted)
        attempt.hub.pause()
        attempt.play()
        attempt.hub.resume()
        attempt.run()
    attempt.play_rows(FOUR_ROWS)
    assert attempt.rows == whole.rows[:FOUR_ROWS]
    assert attempt.model() == whole.model()


def test_a_run_that_is_stopped_while_it_is_paused_goes_on_to_the_bit(
    whole: Attempt, tmp_path: Path
) -> None:
    first = Attempt(tmp_path)
    first.join()
    first.play_rows(2)
    first.play(lambda: first.hub.scheduler.ledger.stored_total >= 150)
    first.hub.pause()
    first.play()
    first.interrupt()
    first.end()
    goes_on_as(whole, first, tmp_path)
