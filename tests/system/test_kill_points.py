"""Killed anywhere, a run goes on from its newest whole checkpoint as if nothing had happened."""

from __future__ import annotations

import signal

import pytest

from algorithms.ppo.metrics import METRICS
from checkpoints import newest, read_manifest
from royale_server.crash_points import VARIABLE
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.run.records import read_records
from royale_server.tools.comparing import differences, history
from tests.system import records
from tests.system.processes import Processes, only_run

KEYS = deterministic_keys(declared(METRICS))
SAVE_EVERY, ITERATIONS, FRAMES, ENVS = 3, 10, 512, 4
LAST_STEP = ITERATIONS * FRAMES
FLAGS = (
    *("--inline", "CartPole-v1", "--inline-num-envs", ENVS, "--seed", 3, "--exp-name", "run"),
    *("--algo.frames-per-iteration", FRAMES, "--algo.num-epochs", 1, "--save-every", SAVE_EVERY),
    *("--until-timesteps", LAST_STEP),
)
# 512 frames of 4 environments are 128 batches an iteration; 960 is in the midst of the eighth.
IN_THE_EIGHTH = {"collect": 960, "infer": 960, "learn": 8, "row": 8}
FILES = (
    *("model.safetensors", "manifest.json"),
    *(
        pytest.param(name, marks=pytest.mark.chaos)
        for name in (
            *("optimizer.safetensors", "rollout.safetensors", "envs.safetensors"),
            *("state.json", "rng.json"),
        )
    ),
)


@pytest.fixture(scope="module")
def uninterrupted(zygote, tmp_path_factory):
    """Directory of a run that nobody killed."""
    processes = Processes(tmp_path_factory.mktemp("uninterrupted"), zygote)
    assert processes.try_server(*FLAGS).wait() == 0
    processes.close()
    return processes.run


def rows(run):
    return history(read_records(run / "metrics.jsonl")[0])


def weights(run):
    return (run / str(LAST_STEP) / "model.safetensors").read_bytes()


def resume_and_compare(processes, uninterrupted):
    """Resume the killed run; return the iterations that were complete before and after the kill.

    The writer lags behind by what it has in hand, so how many those are is not quite fixed.
    """
    run = only_run(processes.directory / "runs")
    done = max(rows(run))
    path, _ = newest(run)
    saved = read_manifest(path)
    assert saved.step == max(records.steps(run))
    assert processes.try_server(*FLAGS, "--resume").wait() == 0
    (resumed,) = records_of(run, "resumed")
    assert resumed["step"] == saved.step
    assert differences(rows(uninterrupted), rows(run), KEYS, last_iteration=ITERATIONS) == []
    assert weights(run) == weights(uninterrupted)
    return done, saved.facts["metrics_row"]


def records_of(run, kind):
    return [event for event in read_records(run / "events.jsonl")[0] if event["kind"] == kind]


def kill_at(processes, point):
    server = processes.try_server(*FLAGS, environment={VARIABLE: point})
    assert server.wait() == -signal.SIGKILL


@pytest.mark.parametrize("point", ["collect", "infer", "learn", "row"])
def test_killed_between_two_checkpoints_the_iterations_since_the_first_are_done_again(
    processes: Processes, uninterrupted, point
):
    kill_at(processes, f"{point}:{IN_THE_EIGHTH[point]}")
    done, saved = resume_and_compare(processes, uninterrupted)
    # The last rows and the checkpoint of iteration 6 may still have been on their way to the disk.
    assert saved <= done <= 7
    assert saved in (3, 6)


def test_half_a_row_is_isolated_and_counts_for_nothing(processes: Processes, uninterrupted):
    kill_at(processes, "row:8")
    metrics = only_run(processes.directory / "runs") / "metrics.jsonl"
    assert not metrics.read_bytes().endswith(b"\n")
    done, saved = resume_and_compare(processes, uninterrupted)
    found, skipped = read_records(metrics)
    first, then = range(1, done + 1), range(saved + 1, ITERATIONS + 1)
    assert [row["run/iteration"] for row in found] == [*first, *then]
    assert (done, skipped) == (7, 1)


@pytest.mark.parametrize("file", FILES)
def test_killed_after_any_file_of_a_checkpoint_the_one_before_it_is_taken(
    processes: Processes, uninterrupted, file
):
    kill_at(processes, f"save:{file}:2")
    run = only_run(processes.directory / "runs")
    assert len(records.steps(run)) == 1
    done, saved = resume_and_compare(processes, uninterrupted)
    # Had the disk been slow, the next checkpoint would have been written in place of this one.
    assert saved in (3, 6)
    assert done >= saved + SAVE_EVERY


@pytest.mark.parametrize("point", ["publish", "link"])
def test_killed_once_a_checkpoint_has_its_name_that_one_is_taken(
    processes: Processes, uninterrupted, point
):
    kill_at(processes, f"{point}:2")
    run = only_run(processes.directory / "runs")
    assert len(records.steps(run)) == 2
    done, saved = resume_and_compare(processes, uninterrupted)
    assert saved in (6, 9)
    assert done >= saved


def test_killed_in_its_first_save_a_run_has_nothing_to_resume_and_begins_anew(
    processes: Processes, uninterrupted
):
    kill_at(processes, "save:manifest.json:1")
    refused = processes.try_server(*FLAGS, "--resume")
    assert refused.wait() == 2
    refused.wait_for("holds no whole checkpoint; --overwrite starts it anew")
    assert processes.try_server(*FLAGS, "--overwrite").wait() == 0
    run = only_run(processes.directory / "runs")
    assert differences(rows(uninterrupted), rows(run), KEYS, last_iteration=ITERATIONS) == []


def test_killed_at_the_end_before_the_last_checkpoint_the_end_is_done_again(
    processes: Processes, uninterrupted
):
    kill_at(processes, "stop")
    done, saved = resume_and_compare(processes, uninterrupted)
    # The last rows and the checkpoint of iteration 9 may still have been on their way to the disk.
    assert done >= saved
    assert saved in (6, 9)


def test_killed_while_a_stop_is_under_way_the_run_goes_on_from_the_checkpoint_before(
    processes: Processes, uninterrupted
):
    server = processes.try_server(*FLAGS, environment={VARIABLE: "stop"})
    server.wait_for("saved the checkpoint")
    server.signal(signal.SIGTERM)
    assert server.wait() == -signal.SIGKILL
    done, saved = resume_and_compare(processes, uninterrupted)
    assert done >= saved >= 3


def test_what_a_killed_save_left_behind_is_removed_by_the_resume(
    processes: Processes, uninterrupted
):
    kill_at(processes, "save:state.json:2")
    run = only_run(processes.directory / "runs")
    assert len(list(run.glob(".tmp-*"))) == 1
    resume_and_compare(processes, uninterrupted)
    assert list(run.glob(".tmp-*")) == []
