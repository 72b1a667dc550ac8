"""Three clients, a server killed in the midst of an iteration: the rows are those of no kill."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.system.processes import ROOT

pytestmark = pytest.mark.chaos

SMALL = ("--algo.frames-per-iteration", "192", "--algo.num-epochs", "2", "--seed", "5")


def verify(tmp_path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROYALE_")}
    return subprocess.run(
        [sys.executable, "-m", "royale_server.tools", "verify-resume", *arguments],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


ARENA = (
    *("arena-policy", "default", "ppo", "arena", "--seed", "5", "--algo.num-epochs", "1"),
    *("--algo.frames-per-iteration", "500", "--algo.gamma-end", "0.999"),
    *("--algo.total-timesteps", "20000", "--selfplay.mix", "mirror=0.4,pool=0.4,scripted=0.2"),
    *("--selfplay.snapshot-every", "2", "--selfplay.scripted", "push"),
)
"""Two battles of up to 360 decisions: the third, of an opponent of the pool, is under way when the
run is killed, in the middle of its eighth iteration."""


@pytest.mark.parametrize(
    "point", ["collect", "infer", "learn", "row", "save:envs.safetensors", "publish", "random"]
)
def test_battles_inside_the_server_go_on_where_they_were(tmp_path, point):
    inline = ("--inline", "arena", "--inline-num-envs", "2")
    checked = verify(tmp_path, "--kill-at", point, "--", *ARENA, *inline)
    print(checked.stdout, checked.stderr)
    assert checked.returncode == 0
    assert "the same to the last bit" in checked.stdout


def test_battles_of_two_clients_go_on_where_they_were(tmp_path):
    clients = [
        word
        for name in ("one", "two")
        for word in (
            "--client-command",
            f"{sys.executable} -m royale_client arena --battles 1 --client-name {name}",
        )
    ]
    server = (*ARENA, "--deterministic", "--min-clients", "2")
    checked = verify(tmp_path, "--kill-at", "collect", *clients, "--", *server)
    print(checked.stdout, checked.stderr)
    assert checked.returncode == 0
    assert "the same to the last bit" in checked.stdout


def client(env: str, name: str, *flags: str) -> tuple[str, str]:
    words = ["-m", "royale_client", "gym", "--env-id", env, "--num-envs", "2", *flags]
    return "--client-command", " ".join([sys.executable, *words, "--client-name", name])


@pytest.mark.parametrize("env", ["CartPole-v1", "HalfCheetah-v5"])
@pytest.mark.parametrize("point", ["collect", "learn", "random"])
def test_three_clients_and_a_kill_give_the_rows_of_no_kill(tmp_path, env, point):
    clients = [word for name in ("one", "two", "three") for word in client(env, name)]
    server = ("mlp-policy", "default", "ppo", "default", *SMALL)
    checked = verify(
        tmp_path,
        *("--kill-at", point, *clients, "--"),
        *(*server, "--deterministic", "--min-clients", "3"),
    )
    print(checked.stdout, checked.stderr)
    assert checked.returncode == 0
    assert "the same to the last bit" in checked.stdout


def test_two_groups_of_environments_in_flight_are_continued_as_well(tmp_path):
    clients = [
        w for n in ("one", "two", "three") for w in client("CartPole-v1", n, "--groups", "2")
    ]
    server = ("mlp-policy", "default", "ppo", "default", *SMALL)
    checked = verify(
        tmp_path,
        *("--kill-at", "infer", *clients, "--"),
        *(*server, "--deterministic", "--min-clients", "3"),
    )
    print(checked.stdout, checked.stderr)
    assert checked.returncode == 0
