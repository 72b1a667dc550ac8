"""What a server refuses before it starts, and what that leaves on disk: nothing."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.system import records
from tests.system.processes import CARTPOLE, Processes

SHORT = (
    *("--exp-name", "run", "--algo.frames-per-iteration", 64),
    *("--algo.num-epochs", 1, "--algo.total-timesteps", 128),
)
TEXT = ("gym", "--env-id", "tests.system.envs:Spoken-v0")


def tree_digest(folder: Path) -> dict[str, str]:
    """Digest of every file below a folder, by its name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory, zygote) -> Path:
    """The folder of a finished run; copy it."""
    processes = Processes(tmp_path_factory.mktemp("finished"), zygote)
    server = processes.server(*SHORT)
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    assert (server.wait(), client.wait()) == (0, 0)
    processes.close()
    return server.runs


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """A folder with a finished run."""
    return Path(shutil.copytree(finished, tmp_path / "runs", symlinks=True))


def test_existing_run_is_refused_and_left_as_it_is(processes: Processes, runs):
    before = tree_digest(runs)
    server = processes.try_server(*SHORT, runs=runs)
    assert server.wait() == 2
    for way_out in ("--resume", "--overwrite", "--exp-name"):
        server.wait_for(way_out)
    assert tree_digest(runs) == before


def test_overwritten_run_is_kept_until_the_new_one_has_a_checkpoint(processes: Processes, runs):
    old = tree_digest(runs / "ppo" / "mlp-policy" / "run")
    server = processes.server(*SHORT, "--overwrite", "--seed", 7, runs=runs)
    (aside,) = (runs / "ppo" / "mlp-policy").glob(".overwritten-*")
    assert tree_digest(aside) == old
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    assert (server.wait(), client.wait()) == (0, 0)
    assert [path.name for path in (runs / "ppo" / "mlp-policy").iterdir()] == ["run"]
    assert {row["attempt"] for row in records.metrics(server.run)} == {1}


def test_overwriting_server_that_gets_no_client_puts_the_old_run_back(processes: Processes, runs):
    before = tree_digest(runs)
    server = processes.server(*SHORT, "--overwrite", runs=runs)
    server.interrupt()
    assert server.wait() == 130
    assert tree_digest(runs) == before


def test_resuming_what_is_not_there_is_refused_and_creates_nothing(processes: Processes):
    server = processes.try_server(*SHORT, "--resume")
    assert server.wait() == 2
    server.wait_for("there is no run to resume")
    assert not (processes.directory / "runs").exists()


def test_finished_run_is_refused_at_once_with_the_command_that_goes_on(processes: Processes, runs):
    before = tree_digest(runs)
    server = processes.try_server(*SHORT, "--resume", runs=runs)
    assert server.wait() == 2
    server.wait_for("the run is finished: 128 of 128 frames collected")
    server.wait_for("train on with: royale-server .* --resume --until-timesteps 256")
    assert tree_digest(runs) == before


def test_run_that_would_be_another_one_is_refused_and_left_as_it_is(processes: Processes, runs):
    before = tree_digest(runs)
    changed = ("--seed", 7, "--algo.gamma", 0.5, "--until-timesteps", 192)
    server = processes.try_server(*SHORT, "--resume", *changed, runs=runs)
    assert server.wait() == 2
    server.wait_for(r"algo\.gamma: 0\.99 in the run, 0\.5 now")
    server.wait_for(r"seed: \d+ in the run, 7 now")
    server.wait_for("--allow-identity-drift")
    assert tree_digest(runs) == before


def test_finished_run_goes_on_to_a_new_limit(processes: Processes, runs):
    server = processes.server(*SHORT, "--resume", "--until-timesteps", 192, runs=runs)
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    assert (server.wait(), client.wait()) == (0, 0)
    assert [row["run/step"] for row in records.metrics(server.run)] == [64, 128, 192]


def test_run_that_another_server_works_on_is_left_alone(processes: Processes, runs):
    server = processes.server(*SHORT, "--resume", "--until-timesteps", 10**9, runs=runs)
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    server.wait_for("iteration 3:")
    for flag in ("--resume", "--overwrite"):
        second = processes.try_server(*SHORT, flag, "--port", 0, runs=runs)
        assert second.wait() == 2
        second.wait_for(str(server.program.pid))
    server.interrupt()
    assert (server.wait(), client.wait()) == (0, 0)


@pytest.mark.parametrize(
    ("pair", "flag", "sentence"),
    [
        (("dummy-policy", "default", "ppo", "default"), (), "dummy-policy"),
        (("mlp-policy", "default", "ppo", "default"), ("--algo.gama", "0.9"), "--algo.gamma"),
        (("mlp-policy", "default", "ppo", "none"), (), "classic"),
    ],
    ids=["pair", "flag", "variant"],
)
def test_command_that_makes_no_sense_is_refused_by_name(processes: Processes, pair, flag, sentence):
    server = processes.try_server(*flag, pair=pair)
    assert server.wait() == 2
    server.wait_for(sentence)
    assert not (processes.directory / "runs").exists()


def test_taken_port_is_refused_without_a_run_directory(processes: Processes):
    first = processes.server(*SHORT)
    runs = processes.directory / "other"
    second = processes.try_server(*SHORT, "--port", first.port, runs=runs)
    assert second.wait() == 2
    second.wait_for(rf"--port {first.port}: cannot listen there")
    assert list(runs.rglob("run.json")) == []


def test_spaces_that_the_policy_cannot_take_end_server_and_client_with_a_sentence(
    processes: Processes,
):
    server = processes.server(*SHORT)
    client = processes.client(server, *TEXT)
    assert server.wait() == 2
    server.wait_for("Text")
    client.wait_for("the server cannot train this environment.*Text")
    assert client.wait() == 2
    assert list(server.runs.rglob("run.json")) == []


def test_client_with_other_spaces_is_refused_and_the_run_goes_on(processes: Processes):
    server = processes.server(*SHORT, "--min-clients", 2)
    first = processes.client(server, *CARTPOLE, "--num-envs", 2, name="first")
    server.wait_for("client first joined")
    wrong = processes.client(server, "gym", "--env-id", "Pendulum-v1", name="wrong")
    assert wrong.wait() == 2
    wrong.wait_for("observation space")
    second = processes.client(server, *CARTPOLE, "--num-envs", 2, name="second")
    assert [server.wait(), first.wait(), second.wait()] == [0, 0, 0]
