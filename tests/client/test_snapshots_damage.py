"""States that are not of these environments, damaged or made by somebody else."""

from __future__ import annotations

import random
from copy import deepcopy

import numpy as np
import pytest

from royale_client.driver import SnapshotError
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.envs.gymnasium_envs import GymConfig, driver_for, make_driver
from royale_client.snapshots.encoding import pack, unpack
from tests.client.snapshot_world import Drunkard, begin, gym_driver, play

JUNK = (None, "x", -1, 10**30, 1.5, b"", [], (), {}, {"a": 1}, np.zeros(3), np.bool_(True))


def dummy():
    return DummyDriver(DummyConfig(episode_length=5), 2)


def cart_pole():
    return gym_driver("CartPole-v1")


def drunkard():
    return driver_for(Drunkard(), None, "on", ())


def state_of(driver) -> bytes:
    play(driver, begin(driver), 1, 7)
    return driver.snapshot()


@pytest.mark.parametrize("make", [dummy, cart_pole, drunkard])
def test_damaged_bytes_are_refused_and_the_driver_can_be_reset(make):
    driver, rng = make(), random.Random(4)
    state = state_of(driver)
    for _ in range(200):
        with pytest.raises(SnapshotError):
            driver.restore(damaged(state, rng))
    expected = play(fresh := make(), begin(fresh), 2, 20)[1]
    assert play(driver, begin(driver), 2, 20)[1] == expected


def damaged(state: bytes, rng: random.Random) -> bytes:
    """Change a bit, cut, lengthen, or swap two pieces."""
    place, length = rng.randrange(len(state)), rng.randrange(1, 40)
    match rng.randrange(4):
        case 0:
            changed = bytes([state[place] ^ (1 << rng.randrange(8))])
            return state[:place] + changed + state[place + 1 :]
        case 1:
            return state[:place]
        case 2:
            return state + rng.randbytes(length)
    return state[place:] + state[:place] if place else b""


@pytest.mark.parametrize("make", [dummy, cart_pole, drunkard])
def test_junk_behind_a_right_digest_raises_nothing_else_and_the_driver_can_be_reset(make):
    driver, rng = make(), random.Random(5)
    document = unpack(state_of(driver))
    refused = 0
    for _ in range(150):
        changed = deepcopy(document)
        replace_somewhere(changed, rng)
        try:
            driver.restore(pack(changed))
        except SnapshotError:
            refused += 1
        begin(driver)
    assert refused > 50


def replace_somewhere(value, rng: random.Random) -> None:
    """Walk down at random and put junk in place of what is there, or take it away."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(list(keys))
        below = value[key]
        can_go_on = isinstance(below, dict | list) and below and rng.random() < 0.9
        if isinstance(below, tuple) and below and rng.random() < 0.9:
            below = value[key] = list(below)
            can_go_on = True
        if not can_go_on:
            break
        value = below
    if rng.random() < 0.2:
        del value[key]
    else:
        value[key] = rng.choice(JUNK)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: gym_driver("Acrobot-v1"), "got environment 'CartPole-v1', expected 'Acrobot-v1'"),
        (
            lambda: make_driver(GymConfig(env_id="CartPole-v1"), 5),
            "got slots 2, expected 5",
        ),
        (
            lambda: gym_driver("CartPole-v1", frame_skip=2),
            "got royale_client.envs.wrappers.InfoFilter around gymnasium.wrappers.common.TimeLimit "
            "around .*, expected royale_client.envs.wrappers.InfoFilter around "
            "royale_client.envs.wrappers.FrameSkip around",
        ),
        (dummy, "got environment 'CartPole-v1', expected 'dummy-v1'"),
    ],
    ids=["environment", "slots", "wrappers", "driver"],
)
def test_states_of_other_environments_are_refused_with_what_differs(make, sentence):
    state = state_of(gym_driver("CartPole-v1"))
    driver = make()
    with pytest.raises(SnapshotError, match=sentence):
        driver.restore(state)
    play(driver, begin(driver), 1, 3)


def test_states_of_other_spaces_are_refused_with_what_differs():
    state = state_of(dummy())
    other = DummyDriver(DummyConfig(episode_length=5, obs_dim=3), 2)
    with pytest.raises(SnapshotError, match="got obs dim 8, expected 3"):
        other.restore(state)


def test_states_of_other_versions_are_refused(monkeypatch):
    state = state_of(cart_pole())
    monkeypatch.setattr(
        "royale_client.driver_gymnasium.package_version", lambda name: f"99 of {name}"
    )
    with pytest.raises(SnapshotError, match=r"versions .*expected .*99 of gymnasium"):
        cart_pole().restore(state)


@pytest.mark.parametrize("name", ["step", "env", "__class__", "observation_space"])
def test_a_state_cannot_replace_methods_or_constants(name):
    driver = cart_pole()
    document = unpack(state_of(driver))
    parts = document["body"]["environments"][0][1]["parts"]
    bottom = parts[0][-1][1]
    bottom["attributes"][name] = 1.0
    with pytest.raises(SnapshotError, match=f"sets {name} of CartPoleEnv"):
        driver.restore(pack(document))


def test_an_empty_state_is_refused():
    for driver in (dummy(), cart_pole()):
        with pytest.raises(SnapshotError, match="damaged"):
            driver.restore(b"")


def test_a_state_of_a_later_format_is_refused():
    document = unpack(state_of(dummy()))
    document["format"] = 2
    with pytest.raises(SnapshotError, match="format 2, expected 1"):
        dummy().restore(pack(document))
