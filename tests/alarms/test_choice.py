"""Which alarms a command asks: built-in ones, those of plug-ins, and names that there are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.cli import RefusedCommandError, read_command, registry_for

PPO = ("mlp-policy", "default", "ppo", "classic")

PLUGIN = """\
from royale_server.alarms.conditions import below
from royale_server.alarms.declaration import Alarm

def register(registry):
    registry.add_alarm(
        Alarm(
            name="{name}", group="Ours", when=below("env/length_mean", 20.0), population="ended",
            severity="warn", patience=10, meaning="Short.", remedy="Look.",
        )
    )
"""


def read(*words: str):
    arguments = [*PPO, *words]
    return read_command(arguments, registry_for(arguments))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name: str) -> str:
        file = tmp_path / f"alarm_plugin_{name}.py"
        file.write_text(PLUGIN.format(name=name))
        return str(file)

    return write


def test_without_flags_all_built_in_alarms_are_asked():
    assert list(read().alarms) == list(BUILT_IN_ALARMS)
    assert read("--alarms.no-enabled").alarms == []


def test_an_alarm_of_a_plugin_is_asked_and_can_be_set_like_the_others(plugin):
    command = read(
        *("--plugin", plugin("short_episodes")),
        *("--alarms.patience-overrides", "short_episodes=3"),
        *("--alarms.severity-overrides", "short_episodes=halt"),
    )
    (mine,) = (alarm for alarm in command.alarms if alarm.name == "short_episodes")
    assert (mine.patience, mine.severity) == (3, "halt")


def test_two_alarms_of_one_name_are_refused_by_name(plugin):
    with pytest.raises(RefusedCommandError, match="alarm 'kl_high' is provided twice"):
        read("--plugin", plugin("kl_high"))


def test_names_that_there_are_not_are_all_said_at_once():
    with pytest.raises(RefusedCommandError) as refused:
        read(
            *("--alarms.disabled", "kl_hihg"),
            *("--alarms.patience-overrides", "nothing=3"),
            *("--alarms.use", "elsewhere"),
        )
    disabled, patience, use = sorted(refused.value.problems)
    assert "there is no alarm 'kl_hihg' (did you mean kl_high?)" in disabled
    assert patience.startswith("--alarms.patience-overrides: there is no alarm 'nothing'")
    assert use.startswith("--alarms.use: alarm 'elsewhere' is unknown")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--alarms.patience-overrides", "kl_high"),
        ("--alarms.patience-overrides", "kl_high=0"),
        ("--alarms.severity-overrides", "kl_high=loud"),
        ("--alarms.kl-high", "nan"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_what_is_expected(flag: str, value: str):
    with pytest.raises(RefusedCommandError) as refused:
        read(flag, value)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{flag}: got")
    assert "expected" in problem
