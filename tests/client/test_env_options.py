"""Environments named by a word and a JSON object: the same as by the client's command line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from royale_client.cli import parse_flags
from royale_client.envs.dummy import DummyConfig
from royale_client.envs.gymnasium_envs import GymConfig
from royale_client.envs.options import chosen_env, settings_of
from royale_client.envs.provider import EnvProvider
from royale_client.envs.registry import find_provider
from royale_client.wire.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Everything:
    needed: int
    flag: bool = False
    rate: float = 0.5
    kind: Literal["one", "two", 1] = "one"
    names: tuple[str, ...] = ("a",)
    size: tuple[int, int] | None = None
    file: Path | None = None


FAMILY = EnvProvider(
    name="family",
    summary="all kinds of settings",
    config_type=Everything,
    env_id=lambda _: "family",
    make=lambda _config, _num: None,
    facts=lambda _: {},
)


def test_a_word_that_is_no_family_is_a_gymnasium_id_with_arguments():
    provider, config = chosen_env("CartPole-v1", {"render_mode": None})
    assert provider.name == "gym"
    assert config == GymConfig(env_id="CartPole-v1", env_kwargs='{"render_mode": null}')


@pytest.mark.parametrize(
    ("family", "options", "flags"),
    [
        ("dummy-v1", {"obs-dim": 3, "image": [2, 2, 1]}, "--obs-dim 3 --image 2 2 1"),
        ("arena", {"gamma": 1, "bots": ["push", "noop"]}, "--gamma 1 --bots push noop"),
        ("gym", {"env_id": "CartPole-v1", "frame_skip": 2}, "--env-id CartPole-v1 --frame-skip 2"),
    ],
)
def test_a_family_is_set_as_its_flags_set_it(family, options, flags):
    provider, config = chosen_env(family, options)
    assert provider is find_provider(family)
    assert config == parse_flags(provider, flags.split())[0]
    assert provider.facts(config) == provider.facts(parse_flags(provider, flags.split())[0])


def test_what_is_not_given_is_as_by_default():
    assert chosen_env("dummy-v1", {})[1] == DummyConfig()


def test_every_kind_of_setting_comes_as_json_has_it():
    given = {"needed": 3, "flag": True, "rate": 2, "kind": 1, "names": [], "size": [1, 2]}
    config = settings_of(FAMILY, {**given, "file": "a/b"})
    assert config == Everything(
        needed=3, flag=True, rate=2.0, kind=1, names=(), size=(1, 2), file=Path("a/b")
    )
    assert isinstance(config.rate, float)
    assert settings_of(FAMILY, {"needed": 3, "size": None}).size is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"needed": 3, "flagg": True}, "no setting 'flagg': did you mean flag?"),
        ({"needed": True}, "needed: got true, expected a whole number"),
        ({"needed": 3, "flag": 1}, "flag: got 1, expected true or false"),
        ({"needed": 3, "rate": "x"}, 'rate: got "x", expected a number'),
        ({"needed": 3, "kind": True}, 'kind: got true, expected "one" or "two" or 1'),
        ({"needed": 3, "names": "a"}, 'names: got "a", expected a list, of a text each'),
        ({"needed": 3, "names": [1]}, "names: got [1], expected a text"),
        ({"needed": 3, "size": [1]}, "size: got [1], expected a list, of a whole "),
        ({"needed": 3, "file": 1}, "file: got 1, expected a path or null"),
        ({}, "family: a setting is missing"),
    ],
)
def test_what_a_family_does_not_take_is_refused_and_what_it_takes_is_told(options, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        settings_of(FAMILY, options)


def test_senseless_numbers_are_refused_by_the_family_itself():
    with pytest.raises(ConfigError, match="obs-dim 0"):
        chosen_env("dummy-v1", {"obs_dim": 0})
