"""Every refusal of a start, provoked through the command line: exit code 2, its text, no trace."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from royale_server.model import build as model_build
from royale_server.preflight import gate, machine
from royale_server.preflight.facts import MIB, DeviceProcess
from royale_server.run.lock import RunLock
from tests.preflight.starts import ARENA, PPO, Starts

NAMED = ("--exp-name", "run")
INLINE = ("--inline", "CartPole-v1", "--inline-num-envs", "4")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished run."""
    from royale_server import cli
    from tests.preflight.starts import logging_put_back

    base = tmp_path_factory.mktemp("finished")
    with logging_put_back():
        assert cli.main([*PPO, *NAMED, *INLINE, "--checkpoint-base-dir", str(base)]) == 0
    return base


@pytest.fixture
def with_run(starts: Starts, finished: Path) -> Starts:
    shutil.copytree(finished, starts.base, dirs_exist_ok=True)
    return starts


@pytest.fixture
def taken():
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


def refused(starts: Starts, *words: str) -> str:
    """Start a server that must refuse and leave everything as it is; return what it says."""
    before = starts.digest()
    code, told = starts.server(*words)
    assert code == 2, told
    assert "Traceback" not in told
    assert starts.digest() == before
    return told


def test_an_occupied_directory_names_the_three_ways_on(with_run):
    told = refused(with_run, *PPO, *NAMED, *INLINE)
    assert "directory: " in told
    assert str(with_run.base / "ppo" / "mlp-policy" / "run") in told
    for way in ("--resume", "--overwrite", "--exp-name"):
        assert way in told


def test_a_run_that_is_not_there_cannot_be_resumed(starts):
    told = refused(starts, *PPO, *NAMED, *INLINE, "--resume")
    assert "there is no run to resume" in told


def test_a_live_run_is_left_alone_and_its_process_named(with_run):
    lock = RunLock(with_run.base / "ppo" / "mlp-policy" / "run" / "lock")
    try:
        told = refused(with_run, *PPO, *NAMED, *INLINE, "--resume", "--until-timesteps", "128")
    finally:
        lock.release()
    assert "live-run: " in told
    assert f"process {os.getpid()}" in told


def test_a_finished_run_names_the_command_that_goes_on(with_run):
    told = refused(with_run, *PPO, *NAMED, *INLINE, "--resume")
    assert "finished: the run is finished: 64 of 64 frames collected" in told
    assert "--until-timesteps 128" in told


def test_drift_names_every_field_with_both_values(with_run):
    words = (*PPO, *NAMED, *INLINE, "--resume", "--until-timesteps", "128")
    told = refused(with_run, *words, "--algo.gamma", "0.5", "--seed", "7")
    assert "algo.gamma: 0.99 in the run, 0.5 now" in told
    assert "seed: 0 in the run, 7 now" in told
    assert "--allow-identity-drift" in told


def test_a_plugin_file_whose_content_changed_is_drift(starts):
    plugin = Path("mine.py")
    plugin.write_text("def register(registry):\n    pass\n", encoding="utf-8")
    words = (*PPO, *NAMED, *INLINE, "--plugin", "mine.py")
    assert starts.server(*words)[0] == 0
    plugin.write_text("def register(registry):\n    return\n", encoding="utf-8")
    told = refused(starts, *words, "--resume", "--until-timesteps", "128")
    assert "files.plugin.mine.py: " in told


def test_a_damaged_checkpoint_of_another_run_is_named(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    weights = step / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    told = refused(with_run, *PPO, *INLINE, "--algo.policy-checkpoint-path", str(step))
    assert "warm-start: " in told
    assert "model.safetensors" in told


def test_a_damaged_opponent_of_evaluation_rounds_is_named_before_anything_begins(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    weights = step / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    told = refused(with_run, *PPO, "--evaluate.against", str(step))
    assert "opponents: " in told
    assert "model.safetensors" in told


def test_an_opponent_of_another_architecture_names_itself_and_every_tensor(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    told = refused(
        with_run, *PPO, "--policy.hidden-sizes", "8", "8", "--evaluate.against", "push", str(step)
    )
    assert f"opponents: --evaluate.against {step}: " in told
    assert "actor.0.weight: got float32 (64, 4), expected float32 (8, 4)" in told


def test_an_opponent_for_other_spaces_than_the_policys_is_named(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    told = refused(with_run, *ARENA, "--evaluate.against", str(step))
    assert f"opponents: --evaluate.against {step}: " in told
    assert "observation space" in told


def test_opponents_that_fit_are_no_reason_to_refuse(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    named = (*PPO, *INLINE, "--exp-name", "other", "--evaluate.against", str(step))
    assert with_run.server(*named)[0] == 0


def test_a_taken_port_is_named_with_its_remedy(starts, taken):
    told = refused(starts, *PPO, *NAMED, "--port", taken)
    assert f"--host 127.0.0.1 --port {taken}: cannot listen there" in told
    assert "0 takes a free one" in told


def test_a_device_that_is_not_there(starts):
    told = refused(starts, *PPO, *NAMED, *INLINE, "--device", "cuda:9")
    assert "--device cuda:9: torch sees" in told
    assert "--device cpu or auto" in told


def test_a_policy_that_cannot_be_imported(starts, monkeypatch):
    monkeypatch.setitem(sys.modules, "algorithms.policies.mlp", None)
    told = refused(starts, *PPO, *NAMED, *INLINE)
    assert "components: " in told
    assert "algorithms.policies.mlp" in told


def test_a_tracker_that_is_not_installed(starts, monkeypatch):
    monkeypatch.setitem(sys.modules, "swanlab", None)
    told = refused(starts, *PPO, *NAMED, *INLINE, "--track.enabled")
    assert "tracker: " in told
    assert "swanlab" in told


def test_a_disk_below_two_checkpoints(with_run, monkeypatch):
    monkeypatch.setattr(machine, "free_disk_bytes", lambda _folder: 1000)
    words = (*PPO, *NAMED, *INLINE, "--resume", "--until-timesteps", "128")
    told = refused(with_run, *words)
    assert "disk: " in told
    assert "0.0 MB free, expected at least 2 x" in told
    told = refused(with_run, *PPO, "--exp-name", "other", *INLINE)
    assert "checkpoint-room: " in told
    assert "--checkpoint-base-dir" in told


def test_a_foreign_process_on_the_device(starts, monkeypatch):
    process = DeviceProcess(pid=4711, name="python", used_mib=3000)
    monkeypatch.setattr(
        "royale_server.preflight.examine.choose_device_kind", lambda _config: "cuda"
    )
    monkeypatch.setattr(machine, "device_processes", lambda _index: (process,))
    told = refused(starts, *PPO, *NAMED, *INLINE)
    assert "foreign-process: cuda: process 4711 (python) uses the device as well" in told
    assert "3,000 MB" in told
    assert "--doctor.shared-device" in told


def test_memory_over_the_budget_names_both_and_the_settings_to_lower(starts):
    told = refused(starts, *PPO, *NAMED, *INLINE, "--doctor.ram-budget-mb", "1")
    assert "memory: --doctor.ram-budget-mb: the run would take more memory than its budget" in told
    assert "expected at most 1 MB" in told
    for setting in ("--algo.frames-per-iteration", "--max-slots"):
        assert setting in told


class TinyDevice:
    """A GPU with 300 MB free, of which a pass takes 200."""

    def free_bytes(self) -> int:
        return 300 * MIB

    def start_measuring(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return 200 * MIB


def test_a_minibatch_that_does_not_fit_names_peak_free_headroom_and_the_next_size(
    starts, monkeypatch
):
    monkeypatch.setattr(model_build, "memory_of", lambda _device: TinyDevice())
    told = refused(starts, *PPO, *NAMED, *INLINE)
    for fact in ("a minibatch of 32 frames", "a peak of 200 MB", "256 MB headroom",
                 "at most 300 MB", "back the device with memory of the host",
                 "--algo.batch-size 32 --algo.minibatch-size 16"):  # fmt: skip
        assert fact in told


def test_a_gradient_step_that_raises_is_refused_with_what_it_raised(starts, monkeypatch):
    def raises(*_arguments):
        raise MemoryError("2 GiB")

    monkeypatch.setattr("algorithms.ppo.learner.PPO.rehearse", raises)
    told = refused(starts, *PPO, *NAMED, *INLINE)
    assert "it could not be taken: MemoryError: 2 GiB" in told


def test_acting_and_learning_that_disagree_are_refused_with_both_numbers(starts, monkeypatch):
    monkeypatch.setattr("algorithms.ppo.update.Updater.rehearse", lambda *_: 0.5)
    told = refused(starts, *PPO, *NAMED, *INLINE)
    assert "off by 0.5, expected at most 0.0001" in told
    assert "--policy.precision float32" in told


def test_several_faults_are_all_told_at_once(with_run, taken):
    told = refused(
        with_run, *PPO, *NAMED, "--port", taken, "--device", "cuda:9",
        "--algo.policy-checkpoint-path", str(with_run.base / "ppo" / "mlp-policy" / "run" / "64"),
    )  # fmt: skip
    assert "4 checks refuse this run, nothing was changed" in told
    # The checkpoint already meets the budget.
    for check in ("directory: ", "port: ", "device: ", "warm-start: "):
        assert check in told


def test_faults_of_the_command_and_of_the_machine_are_all_told_at_once(with_run, taken):
    told = refused(with_run, *PPO, *NAMED, "--port", taken, "--algo.gamma", "3", "--sede", "1")
    for fact in ("--algo.gamma: got 3.0", "--sede", "exists; add", f"{taken}: cannot listen"):
        assert fact in told


def test_an_unset_budget_is_told_and_the_run_starts(starts):
    code, told = starts.server(*PPO, *NAMED, *INLINE, "--doctor.ram-budget-mb", "none")
    assert code == 0
    assert "unset: --doctor.ram-budget-mb: is unset" in told
    assert "budget unset" in told


def test_more_than_is_free_now_is_told_and_the_run_starts(starts, monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 1)
    code, told = starts.server(*PPO, *NAMED, *INLINE)
    assert code == 0
    assert "more memory than is free now" in told


def test_no_flag_passes_over_a_check():
    flags = {name for name in gate.ServerConfig.__dataclass_fields__}
    assert not {name for name in flags if "force" in name or "skip" in name}


def test_a_server_that_only_evaluates_can_play_in_its_own_process(with_run):
    step = with_run.base / "ppo" / "mlp-policy" / "run" / "64"
    pair = ("mlp-policy", "default", "eval", "default", *INLINE, "--exp-name", "judged")
    weights = ("--algo.policy-checkpoint-path", str(step), "--evaluate.episodes", "5")
    code, told = with_run.server(*pair, *weights)
    assert code == 0
    assert "policy version 1 in CartPole-v1: mean return" in told
    assert "of 5 episodes" in told
