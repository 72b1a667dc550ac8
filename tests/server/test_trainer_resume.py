"""A run that is stopped anywhere and resumed learns what an uninterrupted one does, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

import checkpoints
from royale_server.exit_codes import ExitCode
from royale_server.run.control import Letter
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


def aborted(directory: Path) -> Attempt:
    """A run that was stopped in its third learn step, which was given up."""
    first = Attempt(directory)
    first.join()
    first.play_rows(2)
    first.hold_learning = True
    first.play()
    first.interrupt()
    first.interrupt()
    first.hold_learning = False
    first.end()
    assert len(first.rows) == 2
    return first


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
    goes_on_as(whole, aborted(tmp_path), tmp_path)


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


@pytest.mark.parametrize("stored", [180, 184, 188])
def test_quitting_a_paused_run_learns_nothing_more_even_if_its_frames_are_all_there(
    whole: Attempt, tmp_path: Path, stored: int
) -> None:
    """Four slots, 64 frames an iteration: from 188 on, the rest itself completes the third."""
    first = Attempt(tmp_path)
    first.join()
    first.play_rows(2)
    first.play(lambda: first.hub.scheduler.ledger.stored_total >= stored)
    first.trainer.steering.letter(Letter.PAUSE)
    first.play(lambda: first.hub.scheduler.is_rested)
    first.trainer.steering.letter(Letter.QUIT)
    first.run()
    first.end()
    assert first.exit_code is ExitCode.FINISHED
    assert len(first.rows) == 2
    goes_on_as(whole, first, tmp_path)


def test_what_is_learnt_from_frames_that_were_saved_before_reaches_the_disk(
    whole: Attempt, tmp_path: Path
) -> None:
    """The step counts stored frames: the checkpoint after the learn step has the step of before."""
    saved = aborted(tmp_path).writer.steps[-1]
    second = Attempt(tmp_path, until_timesteps=saved)
    second.run()  # it needs no client
    assert second.exit_code is ExitCode.FINISHED
    assert second.rows == whole.rows[2:3]
    newest = checkpoints.load(checkpoints.newest(tmp_path)[0])
    assert newest.step == saved
    assert newest.documents["state"]["learner"]["global_step"] == saved
    learnt = {name: second.model()[name] for name in newest.tensors["model"]}
    assert {n: t.numpy().tobytes() for n, t in newest.tensors["model"].items()} == learnt
    assert checkpoints.list_steps(tmp_path).count(saved) == 1


@pytest.mark.parametrize("second", [Letter.PAUSE, Letter.CHECKPOINT])
@pytest.mark.parametrize("third", [Letter.PAUSE, Letter.CHECKPOINT, None])
def test_letters_while_a_checkpoint_is_taken_neither_end_saving_nor_change_the_run(
    whole: Attempt, tmp_path: Path, second: Letter, third: Letter | None
) -> None:
    attempt = Attempt(tmp_path)
    attempt.join()
    attempt.play(lambda: attempt.hub.scheduler.ledger.stored_total >= 75)
    attempt.trainer.steering.letter(Letter.CHECKPOINT)
    attempt.run()  # the snapshots have not come yet
    for letter in [second, third]:
        if letter is not None:
            attempt.trainer.steering.letter(letter)
            attempt.run()
    attempt.play(lambda: bool(attempt.writer.steps))
    if attempt.hub.is_paused:
        attempt.trainer.steering.letter(Letter.CHECKPOINT)
    num_saved = len(attempt.writer.steps)
    attempt.play_rows(FOUR_ROWS - 1)
    attempt.trainer.steering.letter(Letter.CHECKPOINT)
    attempt.play_rows(FOUR_ROWS)
    assert len(attempt.writer.steps) > num_saved
    assert attempt.rows == whole.rows[:FOUR_ROWS]
    assert attempt.model() == whole.model()


@pytest.mark.parametrize("letter", list(Letter))
@pytest.mark.parametrize("paused", [True, False])
def test_a_letter_to_a_run_that_is_ending_changes_nothing(
    whole: Attempt, tmp_path: Path, letter: Letter, paused: bool
) -> None:
    first = Attempt(tmp_path)
    first.join()
    first.play(lambda: first.hub.scheduler.ledger.stored_total >= 75)
    if paused:
        first.trainer.steering.letter(Letter.PAUSE)
        first.play(lambda: first.hub.scheduler.is_rested)
    first.interrupt()
    first.trainer.steering.letter(letter)
    first.run()
    first.end()
    assert first.exit_code is ExitCode.FINISHED
    goes_on_as(whole, first, tmp_path)
