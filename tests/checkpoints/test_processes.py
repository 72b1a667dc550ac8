"""Checkpoints across processes: another one loads what was saved, and a kill tears nothing."""

import json
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from checkpoints import CheckpointContents, load, newest, remove_unfinished, save

ROOT = Path(__file__).resolve().parents[2]

RESUME = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from checkpoints import load, newest

contents = load(newest(Path(sys.argv[1]))[0])
model, moments = contents.tensors["model"], contents.tensors["optimizer"]
state = contents.documents["state"]

# The optimizer continues where it was.
w = torch.nn.Parameter(model["w"])
adam = torch.optim.Adam([w], lr=0.1)
adam.load_state_dict({"state": {0: dict(moments)}, "param_groups": state["param_groups"]})
w.grad = torch.tensor([0.3, 0.3])
adam.step()

# Running statistics continue with their count (Chan's merge of two batches).
s, batch = state["statistics"], np.array([10.0, 20.0, 30.0])
count = s["count"] + len(batch)
delta = batch.mean() - s["mean"]
mean = s["mean"] + delta * len(batch) / count
m2 = s["var"] * s["count"] + batch.var() * len(batch) + delta**2 * s["count"] * len(batch) / count
print(json.dumps({
    "w": w.tolist(), "mean": mean, "var": m2 / count, "count": count,
    "normalised": (5 - mean) / (m2 / count + 1e-8) ** 0.5,
    "step": contents.step, "config": repr(state["config"]),
}))
"""


def run_python(script, *arguments):
    """Start a fresh interpreter on ``script`` with pipes to it."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What a second process makes of a checkpoint written here."""
    run_dir = tmp_path_factory.mktemp("run")
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    adam = torch.optim.Adam([w], lr=0.1)
    for gradient in ([1.0, 0.5], [0.2, -1.0]):
        w.grad = torch.tensor(gradient)
        adam.step()
    optimizer = adam.state_dict()
    config = {"none": None, "lr": 0.1, "betas": (0.9, 0.999), "name": "Übung ∆", "deep": [(1,), {}]}
    contents = CheckpointContents(
        step=2**53 + 1,
        tensors={"model": {"w": w}, "optimizer": optimizer["state"][0]},
        documents={
            "state": {
                "param_groups": optimizer["param_groups"],
                "statistics": {"mean": 2.5, "var": 1.25, "count": 4},  # of 1, 2, 3, 4
                "config": config,
            }
        },
    )
    save(run_dir, contents)
    process = run_python(RESUME, run_dir)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return {**json.loads(output), "saved_config": repr(config)}


def test_the_first_update_after_resume_is_that_of_an_uninterrupted_run(resumed):
    # Without moments: 0.71969599, -2.16338944; without the step count: 0.69823331, -2.04653478.
    assert resumed["w"] == pytest.approx([0.74210399, -2.05262232], abs=1e-7)


def test_running_statistics_come_back_with_their_count(resumed):
    # All seven values 1, 2, 3, 4, 10, 20, 30; with the count lost 5 would become -1.83694.
    assert resumed["mean"] == 10
    assert resumed["var"] == pytest.approx(104.28571429, abs=1e-8)
    assert resumed["count"] == 7
    assert resumed["normalised"] == pytest.approx(-0.48961825, abs=1e-8)


def test_a_step_beyond_the_doubles_and_a_config_of_all_types_arrive_exactly(resumed):
    assert resumed["step"] == 9007199254740993
    assert resumed["config"] == resumed["saved_config"]


SAVE_FOREVER = """
import itertools, sys
from pathlib import Path
import torch
from checkpoints import CheckpointContents, newest, prune, save

run_dir = Path(sys.argv[1])
for step in itertools.count(int(sys.argv[2])):
    big = {f"x{i}": torch.full((50_000,), float(step)) for i in range(4)}
    save(run_dir, CheckpointContents(step=step, tensors={"model": big, "optimizer": big}))
    prune(run_dir, keep_last=2)
    print(step, flush=True)
"""


@pytest.mark.chaos
def test_a_process_killed_at_random_moments_of_saving_loses_no_reported_checkpoint(tmp_path):
    moments = random.Random(0)
    next_step = 0
    for _ in range(3):
        process = run_python(SAVE_FOREVER, tmp_path, next_step)
        assert process.stdout is not None
        reported = int(process.stdout.readline())
        # Wait for a random time, or not at all if the pipe fills before; then no mercy.
        select.select([], [], [], moments.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        # A line may be cut by the kill; only whole ones count as reported.
        reported = max([reported, *(int(line) for line in rest.split("\n")[:-1])])
        path, skipped = newest(tmp_path)
        contents = load(path)
        assert contents.step >= reported
        assert skipped == []
        assert float(contents.tensors["model"]["x0"][-1]) == contents.step
        remove_unfinished(tmp_path)
        next_step = contents.step + 1


KILL_AT_EACH_CALL = """
import os, signal, sys
from pathlib import Path
import torch
from checkpoints import CheckpointContents, prune, save

torch.set_num_threads(1)
run_dir = Path(sys.argv[1])
big = {"x": torch.ones(1000)}

def contents(step):
    groups = {"model": big, "optimizer": big}
    return CheckpointContents(step=step, tensors=groups, documents={"state": 1})

def deadly(call, countdown):
    def wrapped(*arguments, **keywords):
        countdown[0] -= 1
        if countdown[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **keywords)
    return wrapped

# The k-th of the calls below is the last thing the child does; once it survives, that was all.
for k in range(1, 100):
    folder = run_dir / str(k)
    folder.mkdir()
    save(folder, contents(1))
    save(folder, contents(2))
    child = os.fork()
    if child == 0:
        countdown = [k]
        for owner, name in ((os, "fsync"), (os, "mkdir"), (os, "rename"), (os, "replace"),
                            (os, "symlink"), (os, "unlink"), (os, "rmdir")):
            setattr(owner, name, deadly(getattr(os, name), countdown))
        save(folder, contents(3))
        prune(folder, keep_last=2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(k, os.WIFSIGNALED(status), flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_kill_before_each_system_call_of_a_save_leaves_only_whole_checkpoints(tmp_path):
    process = run_python(KILL_AT_EACH_CALL, tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    killed = [int(line.split()[0]) for line in output.splitlines() if line.endswith("True")]
    # mkdir; four files, the directory and its parent flushed; renames; the link; the removal.
    assert len(killed) >= 12
    found = []
    for k in killed:
        path, skipped = newest(tmp_path / str(k))
        load(path)
        assert skipped == []
        found.append(int(path.name))
        remove_unfinished(tmp_path / str(k))
        assert not [p for p in (tmp_path / str(k)).iterdir() if p.name.startswith(".")]
    # The second stays the newest until the rename, the third is it from then on.
    assert found == sorted(found)
    assert set(found) == {2, 3}
