"""``royale eval``: how many threads it uses, and players that cannot be had or do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms.policies.arena import ArenaPolicy
from algorithms.policies.config import ArenaPolicyConfig, MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.spaces import Spaces
from checkpoints import save
from royale_client.envs.arena.driver import ACTION_SPACE, OBSERVATION_SPACE
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_server.config import Pair, ServerConfig
from royale_server.config_document import to_document
from royale_server.model import threads
from royale_server.model.engine import Snapshot
from royale_server.saved_run import RunCounters, to_contents
from royale_server.tools.main import main

SMALL = ArenaPolicyConfig(channels=4, hidden_size=8, keys=4)
STEP = 64


ARENA = Spaces(observation=OBSERVATION_SPACE, action=ACTION_SPACE, masks=True)


def make_run(runs: Path, name: str, policy: Any = SMALL, spaces: Spaces = ARENA) -> Path:
    """A run on disk with one checkpoint of weights that learnt nothing."""
    torch.manual_seed(0)
    kind = ArenaPolicy if isinstance(policy, ArenaPolicyConfig) else MLPPolicy
    uid = kind.uid
    config = ServerConfig(
        pair=Pair(policy=uid, policy_variant="default", algo="ppo", algo_variant="default"),
        policy=policy,
        algo=PPOConfig(),
    )
    run = runs / "ppo" / uid / name
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "config.json").write_text(json.dumps(to_document(config)))
    learner = PPO(config.algo, kind(policy, spaces), seed=0)
    snapshot = Snapshot(
        state=learner.state(), policy_version=1, global_step=STEP, frames={}, generators={}
    )
    counters = RunCounters(
        iteration=1, env_steps=STEP, attempt=1, episodes_total=0, recent_returns=[]
    )
    contents = to_contents(snapshot, counters=counters, spaces=spaces, sessions=None, facts={})
    save(run, contents)
    return run


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def royale(capsys, runs) -> Callable[..., tuple[int, str, str]]:
    """Exit code, output and errors of ``royale eval`` of two battles against ``noop``."""

    def call(*words: object, against: str = "noop") -> tuple[int, str, str]:
        line = ("eval", *words, "--against", against, "--battles", "2", "--runs", runs)
        code = main([str(word) for word in line])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def limits(monkeypatch) -> list[tuple[str, int]]:
    """What the process is told of threads, in place of being told."""
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(
        threads, "torch", SimpleNamespace(set_num_threads=lambda n: told.append(("torch", n)))
    )
    monkeypatch.setattr(
        threads,
        "threadpoolctl",
        SimpleNamespace(threadpool_limits=lambda n, user_api: told.append((user_api, n))),
    )
    return told


# --- threads --------------------------------------------------------------------------------


def test_a_policy_plays_on_one_thread_as_in_the_server(royale, runs, limits) -> None:
    make_run(runs, "first")
    code, out, _ = royale("first")
    assert code == 0
    assert "against noop" in out
    assert limits == [("torch", 1), ("blas", 1)]


def test_more_threads_are_used_where_they_are_asked_for(royale, runs, limits) -> None:
    make_run(runs, "first")
    assert royale("first", "--torch-threads", 3)[0] == 0
    assert limits == [("torch", 3), ("blas", 3)]


def test_bots_alone_need_no_torch_and_limit_nothing(royale, runs, limits) -> None:
    assert royale("noop")[0] == 0
    assert limits == []


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_senseless_number_of_threads_is_refused_as_by_the_server(royale, runs, count) -> None:
    code, _, err = royale("noop", "--torch-threads", count)
    assert code == 2
    assert f"--torch-threads {count}: expected 1 to 1,024" in err


# --- players that cannot be had ---------------------------------------------------------------


def refused(result: tuple[int, str, str], code: int, *said: object) -> None:
    """Refused in a sentence or two, without a traceback and with nothing played."""
    assert result[0] == code
    assert result[1] == ""
    assert "Traceback" not in result[2]
    for word in said:
        assert str(word) in result[2]


def test_a_run_without_checkpoints_is_named(royale, runs) -> None:
    run = make_run(runs, "first")
    shutil.rmtree(run / str(STEP))
    refused(royale("first"), 1, run)


@pytest.mark.parametrize("step", ["63", "newest", "../other", "-1"])
def test_a_step_that_is_not_there_is_answered_with_those_that_are(royale, runs, step) -> None:
    make_run(runs, "first")
    refused(royale(f"first@{step}"), 2, f"no whole checkpoint {step}", STEP)


def test_a_damaged_checkpoint_is_never_played(royale, runs) -> None:
    run = make_run(runs, "first")
    file = run / str(STEP) / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    refused(royale("first"), 1, run)
    refused(royale(f"first@{STEP}"), 1, file.name)


def test_the_older_whole_checkpoint_plays_in_place_of_a_damaged_newest(royale, runs) -> None:
    run = make_run(runs, "first")
    newer = run / str(2 * STEP)
    shutil.copytree(run / str(STEP), newer)
    (newer / "manifest.json").unlink()
    assert royale("first")[0] == 0


def test_weights_of_another_architecture_name_the_tensors_that_do_not_fit(royale, runs) -> None:
    run = make_run(runs, "first")
    other = make_run(runs, "wider", ArenaPolicyConfig(channels=8, hidden_size=8, keys=4))
    shutil.copy(other / "config.json", run / "config.json")
    refused(royale("first"), 1, "actor.")


def test_a_policy_of_another_game_is_refused_before_it_plays(royale, runs) -> None:
    cart = Spaces(observation=BoxSpec(-1, 1, (4,), np.float32), action=DiscreteSpec(2), masks=False)
    run = make_run(runs, "cart", MLPPolicyConfig(hidden_sizes=(4,)), cart)
    refused(royale("cart"), 1, run, "arena")
    refused(royale("noop", against="cart"), 1, run, "arena")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        '"text"',
        '{"pair": null, "plugin": [], "policy": {}, "algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": [], "policy": 7, '
        '"algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": [], "policy": [], '
        '"algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": [], "policy": '
        '{"channels": {"a": 1}}, "algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": [], "policy": '
        '{"channels": "many"}, "algo": {}}',
        '{"pair": {"policy": ["arena-policy"], "algo": "ppo"}, "plugin": [], "policy": {}, '
        '"algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": 7, "policy": {}, '
        '"algo": {}}',
        '{"pair": {"policy": "arena-policy", "algo": "ppo"}, "plugin": ["no_such_plugin"], '
        '"policy": {}, "algo": {}}',
        "[" * 100_000,
    ],
)
def test_settings_that_are_damaged_are_refused_with_their_file(royale, runs, text) -> None:
    run = make_run(runs, "first")
    (run / "config.json").write_text(text)
    refused(royale("first"), 1, "config.json" if "no_such_plugin" not in text else "no_such_plugin")


def test_a_run_that_is_its_own_opponent_scores_exactly_half(royale, runs) -> None:
    make_run(runs, "first")
    code, out, _ = royale("first", "--json", "--seed", 3, against=f"first@{STEP}")
    assert code == 0
    # The noise is keyed by the deal and the seat, so both sides of a deal are the same battle.
    assert json.loads(out)[0]["score"] == 0.5


def test_a_player_that_is_neither_bot_nor_run_is_answered_with_the_runs_there_are(royale, runs):
    make_run(runs, "first")
    refused(royale("nosuch"), 2, "'nosuch' is no bot", "heuristic", "ppo/arena-policy/first")


@pytest.mark.parametrize(("flag", "value"), [("--battles", 3), ("--battles", 0), ("--seed", -1)])
def test_only_the_number_that_is_wrong_is_named(capsys, flag, value) -> None:
    assert main(["eval", "noop", "--against", "noop", flag, str(value)]) == 2
    said = capsys.readouterr().err
    assert f"{flag} {value}" in said
    (other,) = {"--battles", "--seed"} - {flag}
    assert other not in said
