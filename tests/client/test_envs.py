"""Environment families: found by name, built from flags, told apart by a digest."""

import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint

import gymnasium
import numpy as np
import pytest

from royale_client.driver import EnvDriver
from royale_client.envs import gymnasium_envs
from royale_client.envs.digest import env_digest
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.envs.gymnasium_envs import GymConfig, make_driver
from royale_client.envs.registry import find_provider, load_object, provider_names
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec
from tests.client.fakes import CountingEnv


class DoubleReward(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class AddOne(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward + 1


class NoWrapper:
    def __init__(self, env):
        pass


@pytest.fixture(autouse=True, scope="module")
def counting_id():
    gymnasium.register("RoyaleCounting-v0", entry_point=CountingEnv, max_episode_steps=7)
    yield
    del gymnasium.registry["RoyaleCounting-v0"]


def built(num_envs=2, **flags):
    driver = make_driver(GymConfig(env_id="RoyaleCounting-v0", **flags), num_envs)
    driver.reset(np.zeros(num_envs, np.uint64))
    return driver


def step(driver, action=1):
    return driver.step((np.full(driver.num_slots, action),))


# ------------------------------------------------------------------------------------- by name


def test_built_in_families_are_known():
    assert {"gym", "dummy-v1"} <= set(provider_names([]))
    assert find_provider("dummy-v1", []).config_type is DummyConfig


def test_unknown_family_is_refused_with_close_matches_and_the_gym_form():
    with pytest.raises(ConfigError, match=r"did you mean dummy-v1\?.*gym --env-id dumy-v1"):
        find_provider("dumy-v1", [])


def plugin(name, value):
    return EntryPoint(name, value, "royale.envs")


def test_plug_in_is_found_by_its_entry_point_and_not_imported_before():
    plugins = [
        plugin("mine", "royale_client.envs.dummy:PROVIDER"),
        plugin("other", "no_such_module:PROVIDER"),
    ]

    assert find_provider("mine", plugins).name == "dummy-v1"
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        find_provider("other", plugins)


def test_two_packages_that_claim_one_name_are_refused_by_name():
    plugins = [plugin("mine", "a:P"), plugin("mine", "b:P")]

    with pytest.raises(ConfigError, match=r"'mine' is claimed by a:P and by b:P"):
        provider_names(plugins)


def test_plug_in_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="is a type, expected an EnvProvider"):
        find_provider("mine", [plugin("mine", "royale_client.envs.dummy:DummyConfig")])


@pytest.mark.parametrize("reference", ["json", ":x", "json:", "json:no_such"])
def test_reference_must_name_a_module_and_something_in_it(reference):
    with pytest.raises(ConfigError, match="--wrapper"):
        load_object(reference, "--wrapper")


# ------------------------------------------------------------------------------------- gymnasium


def test_wrappers_go_around_every_environment_in_the_order_given():
    here = "tests.client.test_envs"
    doubled_first = built(wrapper=(f"{here}:DoubleReward", f"{here}:AddOne"))
    added_first = built(wrapper=(f"{here}:AddOne", f"{here}:DoubleReward"))

    # The bare reward is 10 * 1 + 1.
    assert step(doubled_first).rewards.tolist() == [23.0, 23.0]
    assert step(added_first).rewards.tolist() == [24.0, 24.0]


def test_wrapper_that_gives_no_environment_is_refused():
    with pytest.raises(ConfigError, match="gave a NoWrapper, no Env"):
        built(wrapper=("tests.client.test_envs:NoWrapper",))


def test_frame_skip_repeats_actions_and_time_limit_counts_environment_steps():
    driver = built(frame_skip=2, time_limit=4, env_kwargs='{"length": 99}')

    turns = [step(driver), step(driver)]

    # 11 + 21, then 31 + 41; four environment steps are the limit.
    assert turns[0].rewards.tolist() == [32.0, 32.0]
    assert turns[1].rewards.tolist() == [72.0, 72.0]
    assert turns[1].truncated.tolist() == [True, True]


def test_registered_time_limit_holds_without_a_flag():
    driver = built(env_kwargs='{"length": 99}')

    assert [step(driver).truncated.any() for _ in range(7)] == [False] * 6 + [True]


def test_no_step_and_no_request_is_spent_on_a_reset():
    driver = built(env_kwargs='{"length": 1}')

    assert all(step(driver).asks is None for _ in range(3))


@pytest.mark.parametrize("vectorization", ["sync", "vector_entry_point"])
def test_both_vectorisations_of_cartpole_run(vectorization):
    driver = make_driver(GymConfig(env_id="CartPole-v1", vectorization=vectorization), 3)
    turn = driver.reset(np.arange(3, dtype=np.uint64))
    episodes = []
    for _ in range(60):
        asking = 3 if turn.asks is None else int(turn.asks.sum())
        turn = driver.step((np.ones(asking, np.int64),))
        episodes += turn.episodes

    assert {record["row"] for record in episodes} == {0, 1, 2}
    # Pushing one way tips the pole over within 8 to 11 steps, each worth 1.
    assert all(8 <= record["length"] <= 11 for record in episodes)
    assert all(record["return"] == record["length"] for record in episodes)
    driver.close()


def test_unknown_id_is_refused_with_close_matches():
    with pytest.raises(ConfigError, match=r"did you mean CartPole-v1"):
        make_driver(GymConfig(env_id="CartPol-v1"), 1)


def test_unknown_module_of_an_id_is_refused():
    with pytest.raises(ConfigError, match="No module named 'no_such_package'"):
        make_driver(GymConfig(env_id="no_such_package:Env-v0"), 1)


def test_wrong_arguments_are_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"--env-kwargs .*\"size\""):
        make_driver(GymConfig(env_id="RoyaleCounting-v0", env_kwargs='{"size": 1}'), 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"env_kwargs": "{length: 3}"}, "is no JSON"),
        ({"env_kwargs": "[3]"}, "expected a JSON object"),
        ({"frame_skip": 0}, "--frame-skip 0"),
        ({"time_limit": 0}, "--time-limit 0"),
        ({"vectorization": "vector_entry_point", "frame_skip": 2}, "no --frame-skip"),
    ],
)
def test_senseless_flags_are_refused_when_they_are_read(flags, message):
    with pytest.raises(ConfigError, match=message):
        GymConfig(env_id="RoyaleCounting-v0", **flags)


def test_missing_gymnasium_is_said_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)

    with pytest.raises(ConfigError, match=r"pip install 'royale-rl\[gym\]'"):
        make_driver(GymConfig(env_id="CartPole-v1"), 1)


def test_episode_metrics_are_declared_with_their_unit():
    config = GymConfig(env_id="x", episode_metric=("is_success", "height=m"))

    assert [(m.name, m.unit, m.aggregation) for m in config.metrics()] == [
        ("is_success", "1", "mean"),
        ("height", "m", "mean"),
    ]


def test_digest_changes_with_every_part_of_an_environment():
    box, discrete = BoxSpec(0, 1, (2,), np.float32), DiscreteSpec(2)
    facts = gymnasium_envs.PROVIDER.facts(GymConfig(env_id="CartPole-v1"))
    same = env_digest("a", facts, box, discrete)
    others = {
        env_digest("b", facts, box, discrete),
        env_digest("a", {**facts, "kwargs": {"g": 1}}, box, discrete),
        env_digest("a", facts, BoxSpec(0, 2, (2,), np.float32), discrete),
        env_digest("a", facts, box, DiscreteSpec(3)),
    }

    assert same == env_digest("a", dict(facts), box, discrete)
    assert len(others | {same}) == 5
    assert facts["versions"]["gymnasium"] == gymnasium.__version__


# ------------------------------------------------------------------------------------- dummy-v1


def test_dummy_is_a_driver_with_the_sizes_asked_for():
    driver: EnvDriver = DummyDriver(DummyConfig(obs_dim=3, num_actions=5), 2)

    assert driver.action_space == DiscreteSpec(5)
    assert driver.observation_space == BoxSpec(0, 1, (3,), np.float32)
    turn = driver.reset(np.arange(2, dtype=np.uint64))
    assert turn.observations[0].shape == (2, 3)
    assert turn.observations[0].dtype == np.float32


def test_dummy_image_makes_the_observation_a_dict():
    driver = DummyDriver(DummyConfig(image=(4, 5, 3), obs_dim=2), 2)

    assert isinstance(driver.observation_space, DictSpec)
    turn = driver.reset(np.arange(2, dtype=np.uint64))
    assert [leaf.shape for leaf in turn.observations] == [(2, 4, 5, 3), (2, 2)]
    assert turn.observations[0].dtype == np.uint8


def test_dummy_observations_depend_on_the_slots_seed_and_step_alone():
    def observations(seeds, steps):
        driver = DummyDriver(DummyConfig(episode_length=3), len(seeds))
        turn = driver.reset(np.array(seeds, np.uint64))
        later = [step(driver).observations[0] for _ in range(steps)]
        return np.stack([turn.observations[0], *later])

    together, alone = observations([5, 9], 10), observations([9], 10)
    assert np.array_equal(together[:, 1], alone[:, 0])
    assert not np.array_equal(together[:, 0], together[:, 1])
    assert ((together >= 0) & (together <= 1)).all()


def test_dummy_can_be_slow_without_a_clock():
    slept = []
    driver = DummyDriver(DummyConfig(step_ms=250.0), 1, sleep=slept.append)
    driver.reset(np.zeros(1, np.uint64))
    step(driver)

    assert slept == [0.25]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"episode_length": 0}, "--episode-length 0"),
        ({"image": (4, 0, 3)}, "--image 0"),
        ({"step_ms": -1.0}, "--step-ms"),
    ],
)
def test_dummy_refuses_senseless_sizes(flags, message):
    with pytest.raises(ConfigError, match=message):
        DummyConfig(**flags)


def test_package_is_light_until_something_is_used():
    program = """
        import sys
        import royale_client
        import royale_client.wire.messages
        heavy = {"gymnasium", "torch", "websockets", "tyro", "safetensors", "swanlab"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert "serve_env" in dir(royale_client)
        import royale_client.envs.dummy, royale_client.serve, royale_client.policy_client
        assert not {"gymnasium", "torch"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_every_public_name_can_be_imported():
    import royale_client

    assert all(getattr(royale_client, name) is not None for name in royale_client.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = royale_client.no_such_name
