"""Every path of a run has one name, and names are safe on every system."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.run.layout import RunLayout, next_attempt, timestamp_name

LAYOUT = RunLayout(base=Path("runs"), algorithm="ppo", policy="mlp-policy", name="exp")


def test_a_run_lies_below_its_algorithm_and_policy_and_checkpoints_below_the_run():
    assert LAYOUT.directory == Path("runs/ppo/mlp-policy/exp")
    assert LAYOUT.checkpoint(983040) == Path("runs/ppo/mlp-policy/exp/983040")
    assert LAYOUT.metrics == Path("runs/ppo/mlp-policy/exp/metrics.jsonl")
    assert LAYOUT.attempt_config(2) == Path("runs/ppo/mlp-policy/exp/config.attempt_2.json")
    assert LAYOUT.server_log(2) == Path("runs/ppo/mlp-policy/exp/logs/attempt_2/server.log")


UNSAFE_NAMES = ["", ".", "..", "a/b", "a\\b", "/etc", ".hidden", "-flag", "a b", "ü", "a\n"]
UNSAFE_ON_SOME = ["x" * 129, "con", "NUL.txt", "ends."]


@pytest.mark.parametrize("name", [*UNSAFE_NAMES, *UNSAFE_ON_SOME])
def test_a_name_that_is_no_safe_folder_is_refused(name):
    with pytest.raises(ConfigError, match=r"--exp-name: .* cannot name a folder; expected"):
        RunLayout(base=Path("runs"), algorithm="ppo", policy="mlp", name=name)


@pytest.mark.parametrize("name", ["a", "7", "my_exp-2.1", "x" * 128, "console"])
def test_ordinary_names_are_taken(name):
    assert RunLayout(base=Path("runs"), algorithm="ppo", policy="mlp", name=name).name == name


def test_names_made_from_the_time_sort_by_it_and_do_not_collide():
    now = datetime(2026, 11, 30, 7, 3, 12, tzinfo=UTC)
    name = timestamp_name(now, 3)
    assert name == "20261130-070312-seed3"
    assert timestamp_name(now, 3, [name]) == "20261130-070312-seed3-2"
    assert timestamp_name(now, 3, [name, f"{name}-2"]) == "20261130-070312-seed3-3"
    assert timestamp_name(now.replace(month=9), 3) < name


def test_attempts_are_numbered_as_numbers():
    assert next_attempt([]) == 1
    names = ["attempt_2", "attempt_10", "latest", "attempt_x", "config.attempt_3.json"]
    assert next_attempt(names) == 11


def test_only_a_run_of_this_very_name_counts_as_moved_aside():
    aside = LAYOUT.fresh_set_aside()
    assert LAYOUT.is_set_aside(aside)
    other = RunLayout(base=Path("runs"), algorithm="ppo", policy="mlp-policy", name="x-exp")
    assert not LAYOUT.is_set_aside(other.fresh_set_aside())
    assert not other.is_set_aside(aside)
    assert not LAYOUT.is_set_aside(Path("runs/ppo/other") / aside.name)
