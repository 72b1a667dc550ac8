"""The arena for other libraries: a Gymnasium vector environment, a PettingZoo parallel one."""

import numpy as np
from gymnasium.vector import AutoresetMode
from pettingzoo.test import parallel_api_test, parallel_seed_test

from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.envs.arena.parallel_env import ArenaParallelEnv
from royale_client.envs.arena.vector_env import ArenaVectorEnv

LONGEST = 360
"""Decisions after which every battle is over."""


def test_the_vector_environment_keeps_its_spaces_and_the_same_step_rule() -> None:
    env = ArenaVectorEnv(2)
    assert env.num_envs == 4
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, infos = env.reset(seed=4)
    generator = np.random.default_rng(0)
    ended = 0
    for _ in range(LONGEST):
        assert env.observation_space.contains(observations)
        masks = infos["action_mask"]
        actions = (masks * generator.random(masks.shape)).argmax(axis=1)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        assert rewards.shape == terminated.shape == truncated.shape == (4,)
        assert not truncated.any()
        if terminated.any():
            ended += int(terminated.sum())
            np.testing.assert_array_equal(infos["_final_obs"], terminated)
            for row in terminated.nonzero()[0]:
                assert env.single_observation_space.contains(infos["final_obs"][row])
            results = infos["final_info"]["result"].reshape(2, 2)
            np.testing.assert_array_equal(results[:, 0], -results[:, 1])
    assert ended >= 4


def test_seeds_of_the_vector_environment_decide_the_deals() -> None:
    env = ArenaVectorEnv(2)
    first = env.reset(seed=4)[0]["vector"]
    np.testing.assert_array_equal(first, env.reset(seed=4)[0]["vector"])
    np.testing.assert_array_equal(first, env.reset(seed=[4, None, 5, None])[0]["vector"])
    assert not np.array_equal(first, env.reset(seed=6)[0]["vector"])
    assert not np.array_equal(env.reset()[0]["vector"], env.reset()[0]["vector"])


def test_a_generic_driver_can_run_the_vector_environment_with_its_masks() -> None:
    driver = GymnasiumDriver(ArenaVectorEnv(2), autoreset=None, action_mask="auto")
    turn = driver.reset(np.arange(4, dtype=np.uint64))
    assert driver.has_masks
    for _ in range(LONGEST):
        turn = driver.step((np.zeros(4, np.int64),))
        if turn.episodes:
            break
    assert len(turn.final_observations[0]) == len(turn.episodes) == 4, (
        "nobody plays: all at the cap"
    )


def test_the_parallel_environment_passes_pettingzoos_own_checks() -> None:
    parallel_api_test(ArenaParallelEnv(), num_cycles=400)
    parallel_seed_test(ArenaParallelEnv, num_cycles=30)


def test_agents_leave_the_parallel_environment_together_and_a_missing_action_is_a_no_op() -> None:
    env = ArenaParallelEnv()
    _, infos = env.reset(seed=1)
    assert infos["seat_0"]["action_mask"][0] == 1
    for _ in range(LONGEST):
        _, rewards, terminated, truncated, _ = env.step({})
        if any(terminated.values()):
            break
    assert terminated == {"seat_0": True, "seat_1": True}
    assert truncated == {"seat_0": False, "seat_1": False}
    assert env.agents == []
    # Nobody played: a draw, and the potential was 0 from beginning to end.
    assert rewards == {"seat_0": 0.0, "seat_1": 0.0}
