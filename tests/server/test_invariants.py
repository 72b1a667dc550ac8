"""A batch that breaks an invariant is refused by name; a whole one passes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from royale_client.wire.spaces import DiscreteSpec, MultiDiscreteSpec
from royale_server.exit_codes import ExitCode
from royale_server.model.engine import Engine
from royale_server.model.invariants import BrokenBatchError, Expected, check_batch
from tests.algorithms.rollouts import collect, make_policy
from tests.server.trainer_world import Attempt

EXPECTED = Expected(version=3, at_least=32, num_slots=4, may_have_gaps=False)
ACTION = MultiDiscreteSpec((3, 9))


@pytest.fixture
def batch():
    return collect(make_policy(action=ACTION, masks=True))  # 4 slots, 8 frames each


def check(batch, *, version=3, action=ACTION, **expected):
    storage, cells = batch
    check_batch(storage, cells, action, version, replace(EXPECTED, **expected))


def test_a_whole_batch_passes(batch):
    check(batch)


@pytest.mark.parametrize("action", [DiscreteSpec(11), MultiDiscreteSpec((2, 2, 12))])
def test_masks_of_any_width_are_read_where_they_were_written(action):
    check(collect(make_policy(action=action, masks=True)), action=action)


def shorten(storage, cells):
    return cells[:-1]


def repeat_a_cell(storage, cells):
    cells[5] = 4
    return cells


def leave_storage(storage, cells):
    return cells + 1


def empty_a_cell(storage, cells):
    storage.slots[7] = -1


def name_an_unknown_slot(storage, cells):
    storage.slots[7] = 4


def number_below_0(storage, cells):
    storage.ordinals[1] = -1


def store_twice(storage, cells):
    storage.ordinals[4] = storage.ordinals[0]  # the frame of slot 0 in the cell of its next


def leave_one_out(storage, cells):
    storage.ordinals[storage.ordinals >= 5] += 1


def reward_nothing(storage, cells):
    storage.rewards[9] = np.nan


def forget_log_prob(storage, cells):
    storage.step_state["log_prob"][9] = -np.inf


def forget_value(storage, cells):
    storage.step_state["value"][9] = np.inf


def act_outside(storage, cells):
    storage.step_state["action"][9, 1] = 9


def forbid_what_was_done(storage, cells):
    masks = storage.read_masks(cells)
    masks[9, 3 + storage.step_state["action"][9, 1]] = False
    storage.write_masks(cells, masks)


@pytest.mark.parametrize(
    ("damage", "invariant", "words"),
    [
        (shorten, "frames_short", "31 frames, expected at least 32"),
        (repeat_a_cell, "cells_ascend", "cell 4 follows cell 4"),
        (leave_storage, "cells_exist", "cells 1 to 32, expected 0 to 31"),
        (empty_a_cell, "slots_exist", "cell 7 is of slot -1, expected 0 to 3"),
        (name_an_unknown_slot, "slots_exist", "cell 7 is of slot 4, expected 0 to 3"),
        (number_below_0, "ordinals_exist", "cell 1 holds frame number -1 of slot 1"),
        (store_twice, "one_cell_a_frame", "frame 0 of slot 0 lies in cells 0 and 4"),
        (leave_one_out, "ordinals_in_step", "is followed by frame 6 (cell 20), expected 5"),
        (reward_nothing, "reward_finite", "1 of 32 frames have a reward that is not finite"),
        (forget_log_prob, "log_prob_finite", "the first in cell 9: -inf, expected finite"),
        (forget_value, "value_finite", "the first in cell 9: inf"),
        (act_outside, "action_exists", "expected 0 to [2, 8]"),
        (forbid_what_was_done, "action_legal", "1 of 32 frames hold an action that their mask"),
    ],
)
def test_each_invariant_is_named_with_where_it_breaks(batch, damage, invariant, words):
    storage, cells = batch
    changed = damage(storage, cells)
    with pytest.raises(BrokenBatchError) as refusal:
        check((storage, cells if changed is None else changed))
    assert refusal.value.invariant == invariant
    assert words in str(refusal.value)
    assert f"({invariant})" in str(refusal.value)


def test_a_batch_of_another_policy_version_is_refused(batch):
    with pytest.raises(BrokenBatchError, match=r"version 3 collected it, expected 4, which learns"):
        check(batch, version=4)


def test_a_frame_that_was_given_up_may_leave_a_gap(batch):
    leave_one_out(*batch)
    check(batch, may_have_gaps=True)


def test_what_a_policy_does_not_store_is_not_asked_for(batch):
    storage, _ = batch
    storage.step_state.clear()
    check(batch)


def test_an_off_policy_learner_takes_any_number_but_none(batch):
    storage, cells = batch
    check((storage, cells[:3]), at_least=None)
    with pytest.raises(BrokenBatchError, match="it has no frame"):
        check((storage, cells[:0]), at_least=None)


def test_checking_costs_microseconds_a_frame_at_most():
    """Half a percent of an iteration at 50,000 frames/s is 100 ns a frame; a loop takes 1000s."""
    batch = collect(make_policy(action=ACTION, masks=True), num_slots=512, num_steps=16)
    spent_s = []
    for _ in range(5):
        started = time.thread_time()
        check(batch, num_slots=512)
        spent_s.append(time.thread_time() - started)
    assert min(spent_s) / (512 * 16) < 1e-6


def test_a_broken_batch_halts_the_run_saves_the_learner_without_it_and_leaves_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(tmp_path)
    attempt.join()
    attempt.play_rows(2)
    learn = Engine.learn

    def learn_damaged(engine: Engine, command, **how):
        engine.apply(command.effects)
        engine.storage.rewards[int(command.cells[3])] = np.inf
        return learn(engine, replace(command, effects=()), **how)

    monkeypatch.setattr(Engine, "learn", learn_damaged)
    before = attempt.model()
    attempt.play(lambda: attempt.exit_code is not None)
    assert attempt.exit_code is ExitCode.REFUSED
    assert len(attempt.writer.rows) == 2
    assert attempt.model() == before
    (event,) = [e for e in attempt.writer.events if e["kind"] == "batch_refused"]
    assert event["invariant"] == "reward_finite"
    assert "cell 3: inf, expected finite numbers" in event["message"]
    saved = checkpoints.load(checkpoints.newest(tmp_path)[0])
    assert saved.step == attempt.writer.rows[-1]["run/step"]
    assert not saved.tensors.get("rollout")
    (bundle,) = attempt.layout.bundles.iterdir()
    assert bundle.name == "000003"  # of the iteration that has no row
    halt = json.loads((bundle / "halt.json").read_text("utf-8"))
    refusal = {"invariant": "reward_finite", "message": event["message"]}
    assert (halt["alarms"], halt["refused_batch"]) == ([], refusal)
    assert (halt["checkpoint"], halt["resume"]) == (str(checkpoints.newest(tmp_path)[0]), "again")
