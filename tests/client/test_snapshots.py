"""After a restore everything goes on as it would have, and what cannot be captured is named."""

from __future__ import annotations

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from royale_client.driver import SnapshotError
from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.envs.gymnasium_envs import driver_for
from royale_client.hello import make_hello
from tests.client.fakes import CountingEnv, CountingVectorEnv
from tests.client.snapshot_world import (
    AFTER,
    BEFORE,
    TIME_LIMIT,
    Drunkard,
    assert_goes_on_the_same,
    begin,
    digest_of,
    gym_driver,
    play,
    turn_bytes,
)

CLASSIC = (
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
)
STATISTICS = "gymnasium.wrappers:RecordEpisodeStatistics"


@pytest.mark.parametrize("env_id", CLASSIC)
def test_classic_control_goes_on_the_same(env_id):
    assert_goes_on_the_same(lambda: gym_driver(env_id))


@pytest.mark.parametrize(
    "config",
    [
        {"wrapper": (STATISTICS,)},
        {"frame_skip": 3},
        {"wrapper": (STATISTICS,), "frame_skip": 2},
        {"vectorization": "vector_entry_point"},
        {"vectorization": "async"},
    ],
    ids=["statistics", "frame skip", "both", "its own vector class", "a process each"],
)
def test_cart_pole_goes_on_the_same_however_it_is_built(config):
    assert_goes_on_the_same(lambda: gym_driver("CartPole-v1", **config))


@pytest.mark.parametrize("image", [None, (4, 6, 3)])
def test_the_dummy_environment_goes_on_the_same(image):
    config = DummyConfig(episode_length=TIME_LIMIT, image=image)
    assert_goes_on_the_same(lambda: DummyDriver(config, 3))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_every_autoreset_rule_goes_on_the_same(mode):
    def single(limit: int):
        return lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)

    # Limits of 11 and 13: the rows end in different steps.
    assert_goes_on_the_same(
        lambda: driver_for(
            SyncVectorEnv([single(11), single(13)], autoreset_mode=mode), None, "auto", ()
        )
    )


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_snapshot_in_every_turn_of_an_episode_goes_on_the_same(mode):
    def make():
        envs = [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=3)] * 2
        return driver_for(SyncVectorEnv(envs, autoreset_mode=mode), None, "auto", ())

    for num_steps in range(6):
        driver = make()
        turn, _ = play(driver, begin(driver), 1, num_steps)
        last = turn_bytes(turn.already_reported())
        state = driver.snapshot()
        _, expected = play(driver, turn, 2, 8)
        other = make()
        restored = other.restore(state)
        assert turn_bytes(restored) == last
        assert play(other, restored, 2, 8)[1] == expected


def stacked():
    env = gymnasium.make("MountainCarContinuous-v0", max_episode_steps=17)
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    env = wrappers.StickyAction(wrappers.RescaleAction(env, -0.5, 0.5), 0.3)
    env = wrappers.DelayObservation(wrappers.FrameStackObservation(env, 3), 2)
    return wrappers.Autoreset(wrappers.TimeAwareObservation(env, flatten=True))


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
@pytest.mark.parametrize(
    "wrap",
    [
        stacked,
        lambda: wrappers.MaxAndSkipObservation(gymnasium.make("CartPole-v1"), 2),
        lambda: wrappers.ClipReward(gymnasium.make("CartPole-v1", max_episode_steps=9), -1, 1),
        lambda: wrappers.DtypeObservation(gymnasium.make("CartPole-v1"), np.float64),
        lambda: wrappers.TransformReward(
            gymnasium.make("Pendulum-v1", max_episode_steps=9), np.tanh
        ),
    ],
    ids=["a stack", "max and skip", "clipped", "another dtype", "numpy's function"],
)
def test_gymnasium_wrappers_go_on_the_same(wrap):
    assert_goes_on_the_same(lambda: driver_for(wrap(), None, "auto", ()))


def test_wrappers_of_vector_environments_go_on_the_same():
    def make():
        envs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)] * 2)
        vector = wrappers.vector
        normalized = vector.NormalizeReward(vector.NormalizeObservation(envs))
        return driver_for(vector.RecordEpisodeStatistics(normalized), None, "auto", ())

    assert_goes_on_the_same(make)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_environment_with_the_two_methods_goes_on_the_same_with_its_masks(mode):
    def make():
        envs = [lambda: Drunkard(9), lambda: Drunkard(5)]
        return driver_for(SyncVectorEnv(envs, autoreset_mode=mode), None, "on", ())

    assert make().has_masks
    assert_goes_on_the_same(make)


def test_the_example_of_the_page_goes_on_the_same():
    assert_goes_on_the_same(lambda: gym_driver("docs.examples.corridor:Corridor-v0"))


class AskedForMasks(Drunkard):
    def _info(self):
        return {}

    def action_masks(self):
        return np.array([self.place > 0, True, self.steps % 2 == 0])


def test_masks_of_a_method_go_on_the_same():
    def make():
        return driver_for(SyncVectorEnv([AskedForMasks] * 2), None, "on", ())

    assert_goes_on_the_same(make)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Ant-v5"])
def test_another_process_goes_on_the_same(env_id, tmp_path):
    driver = gym_driver(env_id)
    turn, _ = play(driver, begin(driver), 1, BEFORE)
    (tmp_path / "state").write_bytes(driver.snapshot())
    command = [sys.executable, "-m", "tests.client.snapshot_world", env_id, tmp_path / "state"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == digest_of(play(driver, turn, 2, AFTER)[1])


def test_time_between_snapshot_and_restore_does_not_count():
    now_s = [1000.0]
    driver = clocked_driver(now_s)
    turn = begin(driver)
    now_s[0] += 5.0
    turn, _ = play(driver, turn, 1, 1)
    state = driver.snapshot()
    # Another process, whose clock begins elsewhere, 3 s after it started again.
    now_s[0] = 10.0
    other = clocked_driver(now_s)
    restored = other.restore(state)
    now_s[0] += 3.0
    turn, _ = play(other, restored, 2, 1)
    assert [episode["time_s"] for episode in turn.episodes] == [8.0, 8.0]


def clocked_driver(now_s):
    envs = SyncVectorEnv([lambda: Drunkard(2)] * 2, autoreset_mode=AutoresetMode.DISABLED)
    return GymnasiumDriver(envs, clock=lambda: now_s[0])


def test_statistics_of_gymnasium_count_on_from_the_time_that_was_spent(monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])

    def make():
        env = wrappers.RecordEpisodeStatistics(gymnasium.make("Pendulum-v1", max_episode_steps=2))
        return env, driver_for(env, None, "auto", ())

    _, driver = make()
    turn = begin(driver)
    now_s[0] += 5.0
    play(driver, turn, 1, 1)
    state = driver.snapshot()
    now_s[0] = 10.0
    env, other = make()
    restored = other.restore(state)
    now_s[0] += 3.0
    play(other, restored, 2, 1)
    assert list(env.time_queue) == [8.0]


def test_a_farewell_after_a_restore_is_the_one_before():
    driver, other = gym_driver("CartPole-v1"), gym_driver("CartPole-v1")
    play(driver, begin(driver), 1, BEFORE)
    state = driver.snapshot()
    farewell = driver.last_turn()
    other.restore(state)
    again = other.last_turn()
    assert farewell is not None
    assert again is not None
    assert turn_bytes(again) == turn_bytes(farewell.already_reported())


def test_a_client_says_whether_it_can_and_why_not(caplog):
    caplog.set_level("INFO")
    able, unable = gym_driver("CartPole-v1"), driver_for(CountingEnv(), None, "auto", ())
    assert make_hello([able, able], env_id="x").features == ("snapshot", "restart", "reconnect")
    assert caplog.messages == []
    assert make_hello([able, unable], env_id="x").features == ("restart", "reconnect")
    assert "CountingEnv cannot be snapshotted" in caplog.text


class OnlyReads(Drunkard):
    restore_state = None


class OnlyWrites(Drunkard):
    snapshot_state = None


class Quiet(gymnasium.Wrapper):
    pass


def async_driver():
    return driver_for(gymnasium.make_vec("CartPole-v1", 1, "async"), None, "off", ())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: driver_for(CountingEnv(), None, "auto", ()), "fakes.CountingEnv cannot be snaps"),
        (lambda: driver_for(CountingVectorEnv(2), None, "auto", ()), "CountingVectorEnv cannot"),
        (lambda: driver_for(Quiet(Drunkard()), None, "off", ()), "Quiet cannot .* snapshot_state"),
        (lambda: driver_for(OnlyReads(), None, "off", ()), "snapshot_state.. but no restore_state"),
        (lambda: driver_for(OnlyWrites(), None, "off", ()), "restore_state.. but no snapshot_stat"),
        (
            lambda: driver_for(
                wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: r),
                None,
                "off",
                (),
            ),
            "TransformReward cannot be snapshotted: func is a function",
        ),
        (async_driver, "AsyncVectorEnv cannot be snapshotted: its parts live in other processes"),
        (lambda: gym_driver("FrozenLake-v1"), "FrozenLakeEnv cannot be snapshotted"),
    ],
    ids=["env", "vector", "wrapper", "no write", "no read", "function", "processes", "family"],
)
@pytest.mark.filterwarnings("ignore:.*custom environment.*")
def test_the_obstacle_names_the_class_and_the_remedy(make, sentence):
    driver = make()
    assert re.search(sentence, driver.snapshot_obstacle or "")
    begin(driver)
    with pytest.raises(SnapshotError, match=sentence):
        driver.snapshot()
    driver.close()


class Hoarder(Drunkard):
    def snapshot_state(self):
        return {**super().snapshot_state(), "seen": {1, 2}}


class Forgetful(Drunkard):
    def snapshot_state(self):
        raise RuntimeError("what was the question?")


class Stubborn(Drunkard):
    def restore_state(self, state):
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Hoarder, r"Hoarder.snapshot_state\(\): seen is a set"),
        (Forgetful, r"Forgetful.snapshot_state\(\) raised RuntimeError\('what was"),
    ],
)
def test_a_method_that_fails_or_returns_what_cannot_travel_is_named(kind, sentence):
    driver = driver_for(kind(), None, "off", ())
    begin(driver)
    with pytest.raises(SnapshotError, match=sentence):
        driver.snapshot()


def test_an_environment_that_refuses_its_state_can_be_reset():
    driver = driver_for(Stubborn(), None, "off", ())
    begin(driver)
    with pytest.raises(SnapshotError, match="RuntimeError"):
        driver.restore(driver.snapshot())
    expected = play(fresh := driver_for(Stubborn(), None, "off", ()), begin(fresh), 3, 20)[1]
    assert play(driver, begin(driver), 3, 20)[1] == expected


def test_nothing_can_be_captured_before_the_first_reset():
    for driver in (gym_driver("CartPole-v1"), DummyDriver(DummyConfig(), 1)):
        with pytest.raises(SnapshotError, match="before its first reset"):
            driver.snapshot()
