"""A disk that is full, or that may not be written to: a run goes on, and what it saved stays whole.

The kernel's limit on the size of a process's files plays the full disk: it can be set from
outside, in the midst of a run, and lifted again, without any privilege. Pipes and sockets know no
such limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import load, newest
from royale_server.run.records import read_records
from tests.system import records
from tests.system.processes import Processes, Program, eventually

FLAGS = (
    *("--inline", "CartPole-v1", "--inline-num-envs", 4, "--exp-name", "run", "--seed", 3),
    *("--algo.frames-per-iteration", 64, "--algo.num-epochs", 1),
    *("--save-every", 5, "--keep-last", 1000),
)
NOTHING = 0
REFUSED = r"the checkpoint of step (\d+) could not be written: .*older checkpoints are untouched"

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="needs limits that can be set from outside"
)


def limit_files(program: Program, num_bytes: int) -> None:
    """Let the process make no file longer than this."""
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


def start(processes: Processes, *flags: object) -> Program:
    """Start a run and wait for its first checkpoint."""
    server = processes.try_server(*FLAGS, *flags)
    server.wait_for("saved the checkpoint")
    return server


def assert_resumes(processes: Processes, run: Path) -> None:
    """The newest checkpoint is whole, and two iterations follow it without a gap."""
    path, torn = newest(run)
    step = load(path).step
    assert torn == []
    assert list(run.glob(".tmp-*")) == []
    again = processes.try_server(*FLAGS, "--resume", "--until-timesteps", step + 128)
    assert again.wait() == 0
    attempt = records.events(run, "resumed")[-1]["attempt"]
    rows = [row for row in read_records(run / "metrics.jsonl")[0] if row["attempt"] == attempt]
    assert records.events(run, "resumed")[-1]["step"] == step
    assert rows[-1]["run/step"] >= step + 128  # two iterations, and the frames of an open one


def assert_rows_are_complete(run: Path) -> None:
    rows, _ = read_records(run / "metrics.jsonl")
    assert [row["run/iteration"] for row in rows] == list(range(1, len(rows) + 1))


def test_run_outlives_a_full_disk_and_makes_up_for_it_once_there_is_room(processes: Processes):
    server = start(processes)
    run = processes.run
    limit_files(server, NOTHING)
    server.wait_for("the checkpoint of step .* could not be written")
    before = records.steps(run)
    done = server.count("iteration ")
    server.wait_for("iteration ", times=done + 1)  # training has not noticed
    assert "free some disk space" in server.output
    limit_files(server, resource.RLIM_INFINITY)
    server.wait_for("saved the checkpoint", times=len(before) + 1)
    server.interrupt()
    assert server.wait() == 0
    assert_rows_are_complete(run)
    assert records.steps(run)[: len(before)] == before
    assert_resumes(processes, run)


def test_run_that_ends_on_a_full_disk_says_what_it_can_be_resumed_from(processes: Processes):
    server = start(processes)
    run = processes.run
    limit_files(server, NOTHING)
    server.wait_for("could not be written")
    newest_step = records.steps(run)[-1]
    server.interrupt()
    assert server.wait() == 1
    server.wait_for("the disk did not take everything")
    server.wait_for(f"checkpoint: step {newest_step}")
    assert records.steps(run)[-1] == newest_step
    assert_resumes(processes, run)


def test_quota_that_ends_between_two_files_leaves_the_checkpoint_before(processes: Processes):
    server = start(processes)
    run = processes.run
    (first, *_) = records.steps(run)
    sizes = {path.stem: path.stat().st_size for path in (run / str(first)).iterdir()}
    assert sizes["optimizer"] > 1.9 * sizes["model"]  # Adam keeps two moments of each weight
    limit_files(server, sizes["model"] + 1000)
    refused = server.wait_for(REFUSED)
    server.interrupt()
    assert server.wait() == 1
    assert int(refused.group(1)) not in records.steps(run)
    assert_resumes(processes, run)


def test_rows_cut_by_a_full_disk_are_written_again_whole(processes: Processes):
    server = start(processes)
    run = processes.run
    # Room for a part of the next row; half rows are isolated, and no reader takes them for rows.
    limit_files(server, (run / "metrics.jsonl").stat().st_size + 300)
    server.wait_for("metrics.jsonl cannot be written")
    limit_files(server, resource.RLIM_INFINITY)
    saved = server.count("saved the checkpoint")
    server.wait_for("saved the checkpoint", times=saved + 1)
    server.interrupt()
    assert server.wait() == 0
    assert_rows_are_complete(run)
    assert_resumes(processes, run)


@contextlib.contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[None]:
    """A disk of its own for a folder, in memory."""
    options = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
    if subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.chaos
def test_a_disk_that_really_fills_up_costs_the_run_nothing_once_there_is_room(
    processes: Processes,
):
    runs = processes.directory / "runs"
    runs.mkdir()
    with small_disk(runs, 2 << 20):
        ballast = runs / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        server = start(processes)
        server.wait_for("the checkpoint of step .* could not be written: .*No space left on device")
        run = processes.run
        before = records.steps(run)
        done = server.count("iteration ")
        server.wait_for("iteration ", times=done + 2)
        ballast.unlink()
        server.wait_for("saved the checkpoint", times=server.count("saved the checkpoint") + 1)
        server.interrupt()
        assert server.wait() == 0
        assert_rows_are_complete(run)
        assert records.steps(run)[: len(before)] == before
        assert_resumes(processes, run)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody make, change or remove anything in a folder; files that are open stay open."""
    if os.geteuid():
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)
        return
    # Permissions do not bind this user; a mount does.
    bound = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if bound.returncode:
        pytest.skip("this user is not bound by permissions and may not mount")
    try:
        remount = ["mount", "-o", "remount,bind,ro", folder]
        eventually(
            lambda: not subprocess.run(remount, capture_output=True, check=False).returncode,
            "a moment in which no file is open to be written",
        )
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_run_whose_directory_becomes_read_only_goes_on_without_checkpoints(processes: Processes):
    server = start(processes)
    run = processes.run
    with read_only(run):
        server.wait_for(REFUSED)
        done = server.count("iteration ")
        server.wait_for("iteration ", times=done + 1)
        before = records.steps(run)
    server.wait_for("saved the checkpoint", times=len(before) + 1)
    server.interrupt()
    assert server.wait() == 0
    assert records.steps(run)[: len(before)] == before
    assert_rows_are_complete(run)
    assert_resumes(processes, run)


def test_run_in_a_read_only_folder_is_refused_with_a_sentence(processes: Processes):
    runs = processes.directory / "runs"
    runs.mkdir()
    with read_only(runs):
        server = processes.try_server(*FLAGS)
        assert server.wait() == 2
        server.wait_for(f"{runs}.*(Read-only file system|Permission denied)")
    assert list(runs.iterdir()) == []


@pytest.mark.chaos
def test_resume_in_a_read_only_folder_is_refused_with_a_sentence(processes: Processes):
    server = start(processes)
    server.interrupt()
    assert server.wait() == 0
    run = processes.run
    with read_only(run):
        again = processes.try_server(*FLAGS, "--resume")
        assert again.wait() == 2
        again.wait_for("(Read-only file system|Permission denied)")
    assert_resumes(processes, run)
