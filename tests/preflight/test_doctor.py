"""``royale doctor``: the checks of a start alone, told for a person; it changes nothing."""

from __future__ import annotations

import json

import pytest

from royale_server.preflight.client_checks import CLIENT_CHECKS
from royale_server.preflight.start_checks import START_CHECKS
from royale_server.tools.main import main as royale
from tests.preflight.starts import PPO, Starts

INLINE = ("--inline", "CartPole-v1", "--inline-num-envs", "4")


def test_the_verdict_comes_first_and_the_next_steps_last(starts: Starts):
    code, told = starts.doctor(*PPO, *INLINE, "--exp-name", "first")
    assert code == 0
    lines = told.splitlines()
    assert lines[0] == "SAFE TO RUN: YES"
    assert sum(line.startswith("OK ") for line in lines) == 1
    assert f"log:           {starts.base}/ppo/mlp-policy/first/logs/attempt_1/server.log" in lines
    assert any(line.startswith("dashboard: ") for line in lines)
    assert '    "frames_per_iteration": 64,' in told
    assert lines[-1].partition(". ")[2].startswith("start: royale-server mlp-policy default ppo")


def test_it_edits_moves_and_deletes_nothing(starts: Starts):
    assert starts.server(*PPO, *INLINE, "--exp-name", "first")[0] == 0
    run = ("--exp-name", "first")
    before = starts.digest()
    assert starts.doctor(*PPO, *INLINE, *run)[0] == 1
    assert starts.doctor(*PPO, *INLINE, *run, "--overwrite")[0] == 0
    resumed = (*PPO, *INLINE, *run, "--resume", "--until-timesteps", "128")
    assert starts.doctor(*resumed)[0] == 0
    assert starts.doctor(*PPO, *INLINE, *run, "--resume", "--track.enabled")[0] == 1
    assert starts.digest() == before


def test_what_is_in_the_way_comes_first_with_its_fix(starts: Starts):
    code, told = starts.doctor(*PPO, *INLINE, "--device", "cuda:9")
    assert code == 1
    assert told.startswith("SAFE TO RUN: NO\n\nFAIL  device: --device cuda:9: torch sees")
    assert "      fix:      use --device cpu or auto" in told
    assert "next steps:\n  1. device: use --device cpu or auto" in told
    assert "royale doctor mlp-policy" in told.splitlines()[-1]


def test_a_wrong_command_is_a_row_for_every_problem(starts: Starts):
    code, told = starts.doctor(*PPO, "--algo.gamma", "3", "--patience", "0")
    assert code == 1
    assert told.count("FAIL  configuration: ") == 2
    assert "--algo.gamma: got 3.0" in told
    assert "--patience: got 0" in told


def test_schedules_are_warned_of_where_a_run_goes_beyond_its_budget_only(starts: Starts):
    words = (*PPO, "--port", "0", "--algo.horizon-frames", "32")
    chosen, beyond = starts.doctor(*words), starts.doctor(*words, "--until-timesteps", "4096")
    assert (chosen[0], beyond[0]) == (0, 0)
    assert "WARN  schedules" not in chosen[1]
    assert "WARN  schedules: --until-timesteps: 4,096 frames are beyond the 32" in beyond[1]


def test_without_an_environment_the_second_phase_is_left_to_the_first_client(starts: Starts):
    code, told = starts.doctor(*PPO, "--port", "0")
    assert code == 0
    assert f"SKIP  {len(CLIENT_CHECKS)} checks not made (the first client brings" in told
    assert "connect: royale-env-client ENV --server-url URL" in told


def test_json_has_the_verdict_and_every_field(starts: Starts):
    code, told = starts.doctor(*PPO, *INLINE, "--json", "--device", "cuda:9")
    answer = json.loads(told)
    assert (code, answer["safe_to_run"]) == (1, False)
    (failed,) = [f for f in answer["findings"] if f["level"] == "fail"]
    assert set(failed) == {
        "check", "level", "what", "where", "got", "expected", "remedy", "details"
    }  # fmt: skip
    assert answer["parameters"]["algo"]["frames_per_iteration"] == 64


def test_a_look_at_the_structure_leaves_this_machine_out(starts: Starts):
    words = ("--structure-only", *PPO, "--port", "0", "--device", "cuda:9")
    code, told = starts.doctor(*words)
    assert code == 0
    assert "about this machine" in told


@pytest.mark.parametrize("check", [*START_CHECKS, *CLIENT_CHECKS], ids=lambda c: c.name)
def test_every_check_can_be_explained(check, capsys):
    assert royale(["check", "--explain", check.name]) == 0
    told = capsys.readouterr().out
    for part in (check.looks_at, check.why, check.cure):
        assert part in told


def test_an_unknown_check_names_those_there_are(capsys):
    assert royale(["doctor", "--explain", "luck"]) == 2
    assert "mask-agreement" in capsys.readouterr().err
