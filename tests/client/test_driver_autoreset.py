"""Every autoreset rule of Gymnasium comes out as the same frames."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from royale_client.driver import EnvContractError
from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.wire.errors import ConfigError
from tests.client.fakes import CountingEnv, CountingVectorEnv, counting_vector_env, replay

MODES = list(AutoresetMode)


# A row of length 2 with action 1 always: rewards 10 * step + 1. Episode 0 terminates, episode 1 is
# truncated, both with the final observation 2, and the next one begins at observation 0. The mask
# probe resets once before the first real reset, so episode 0 of the driver is the env's episode 1.
LENGTH_2 = [
    (0.0, 11.0, False, False, 1.0),
    (1.0, 21.0, False, True, 2.0),
    (0.0, 11.0, False, False, 1.0),
    (1.0, 21.0, True, False, 2.0),
    (0.0, 11.0, False, False, 1.0),
]


@pytest.mark.parametrize("mode", MODES)
def test_frames_of_a_row_do_not_depend_on_the_autoreset_rule(mode):
    driver = GymnasiumDriver(counting_vector_env([2, 3, 5], mode))

    rows = replay(driver, 5)

    assert rows[0] == LENGTH_2
    assert rows[1][:3] == [
        (0.0, 11.0, False, False, 1.0),
        (1.0, 21.0, False, False, 2.0),
        (2.0, 31.0, False, True, 3.0),
    ]
    assert [frame[0] for frame in rows[2]] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_next_step_row_is_silent_while_it_is_reset_and_asks_with_its_new_observation():
    driver = GymnasiumDriver(counting_vector_env([1, 3], AutoresetMode.NEXT_STEP))
    driver.reset(np.zeros(2, np.uint64))

    ending = driver.step((np.array([1, 1]),))
    resetting = driver.step((np.array([2]),))  # only row 1 asked

    assert ending.asks.tolist() == [False, True]
    assert ending.final_observations[0].tolist() == [[1.0]]
    assert ending.observations[0].tolist() == [[1.0]]  # row 1 only
    assert resetting.asks is None
    assert resetting.observations[0].tolist() == [[0.0], [2.0]]
    assert resetting.rewards.tolist() == [0.0, 22.0]  # row 0 did not act: 10 * 2 + 2 in row 1
    assert resetting.frames == 1
    assert not resetting.terminated.any()
    assert not resetting.truncated.any()


def test_action_passed_in_the_resetting_step_is_never_carried_out():
    env = counting_vector_env([1, 9], AutoresetMode.NEXT_STEP)
    driver = GymnasiumDriver(env)
    driver.reset(np.zeros(2, np.uint64))

    driver.step((np.array([1, 1]),))
    driver.step((np.array([2]),))
    driver.step((np.array([0, 2]),))

    assert [int(action) for action in env.envs[0].actions] == [1, 0]
    assert [int(action) for action in env.envs[1].actions] == [1, 2, 2]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_rules_without_a_resetting_step_let_every_row_ask_in_every_request(mode):
    driver = GymnasiumDriver(counting_vector_env([1, 2], mode))
    driver.reset(np.zeros(2, np.uint64))

    turns = [driver.step((np.array([1, 1]),)) for _ in range(4)]

    assert all(turn.asks is None and turn.frames == 2 for turn in turns)


@pytest.mark.parametrize("mode", MODES)
def test_episode_records_count_only_real_steps(mode):
    driver = GymnasiumDriver(counting_vector_env([2], mode))
    driver.reset(np.zeros(1, np.uint64))
    records = []
    asks = True
    while len(records) < 2:
        turn = driver.step((np.full(int(asks), 1),))
        asks = turn.asks is None or turn.asks[0]
        records += turn.episodes

    # 11 + 21, twice
    assert [(r["row"], r["return"], r["length"]) for r in records] == [(0, 32.0, 2), (0, 32.0, 2)]
    assert all(record["time_s"] >= 0 for record in records)


@pytest.mark.parametrize("mode", MODES)
def test_last_turn_truncates_open_rows_with_their_current_observation(mode):
    driver = GymnasiumDriver(counting_vector_env([1, 4], mode))
    driver.reset(np.zeros(2, np.uint64))
    driver.step((np.array([1, 1]),))

    last = driver.last_turn()

    # Row 0 ended by itself (truncated: second episode of the env); row 1 is cut at observation 1.
    assert last.asks.tolist() == [False, False]
    assert last.observations[0].shape == (0, 1)
    assert last.truncated.tolist() == [True, True]
    assert last.terminated.tolist() == [False, False]
    assert last.final_observations[0].tolist() == [[1.0], [1.0]]
    assert last.rewards.tolist() == [11.0, 11.0]
    assert [record["row"] for record in last.episodes] == [0]


def test_last_turn_leaves_a_row_alone_that_was_only_just_reset():
    driver = GymnasiumDriver(counting_vector_env([1, 4], AutoresetMode.NEXT_STEP))
    driver.reset(np.zeros(2, np.uint64))
    driver.step((np.array([1, 1]),))
    driver.step((np.array([1]),))

    last = driver.last_turn()

    assert last.truncated.tolist() == [False, True]
    assert last.final_observations[0].tolist() == [[2.0]]


def test_no_last_turn_before_the_first_action():
    driver = GymnasiumDriver(counting_vector_env([1], AutoresetMode.DISABLED))
    driver.reset(np.zeros(1, np.uint64))

    assert driver.last_turn() is None


def test_unknown_autoreset_rule_is_refused_with_the_remedy():
    env = CountingVectorEnv(2)
    env.metadata = {}

    with pytest.raises(ConfigError, match="--autoreset-mode next_step"):
        GymnasiumDriver(env)

    assert GymnasiumDriver(env, autoreset="same_step").num_slots == 2


@pytest.mark.parametrize("said", ["NextStep", "next_step", "NEXT_STEP", AutoresetMode.NEXT_STEP])
def test_autoreset_rule_is_understood_in_every_spelling(said):
    env = counting_vector_env([1, 3], AutoresetMode.NEXT_STEP)
    env.metadata["autoreset_mode"] = said
    driver = GymnasiumDriver(env)
    driver.reset(np.zeros(2, np.uint64))

    assert driver.step((np.array([1, 1]),)).asks.tolist() == [False, True]


def test_same_step_without_a_final_observation_is_refused():
    env = CountingVectorEnv(2)
    env._never = np.ones(2, np.bool_)
    driver = GymnasiumDriver(env)
    driver.reset(np.zeros(2, np.uint64))

    with pytest.raises(EnvContractError, match="final observation"):
        driver.step((np.array([0, 0]),))


def test_same_step_final_observations_may_come_as_one_batch():
    env = CountingVectorEnv(3)
    env._never = np.array([False, True, False])
    batch = np.arange(12, dtype=np.float32).reshape(3, 4)
    env.step = lambda actions: (
        env._observations,
        env._rewards,
        env._never,
        env._never,
        {"final_obs": batch, "_final_obs": env._never},
    )
    driver = GymnasiumDriver(env)
    driver.reset(np.zeros(3, np.uint64))

    turn = driver.step((np.zeros(3, np.int64),))

    assert turn.final_observations[0].tolist() == [[4.0, 5.0, 6.0, 7.0]]
    assert turn.terminated.tolist() == turn.truncated.tolist() == [False, True, False]


def test_seeds_reach_every_environment():
    env = counting_vector_env([9, 9], AutoresetMode.DISABLED)
    driver = GymnasiumDriver(env)

    driver.reset(np.array([7, 2**63 + 5], np.uint64))

    # Simulators take 31 bits: 2**63 + 5 keeps its lowest ones.
    assert [one.seeds[-1] for one in env.envs] == [7, 5]


def test_reset_of_one_row_does_not_disturb_the_observation_already_reported():
    class Reusing(CountingEnv):
        def _observation(self):
            return np.array([100.0 * self.episode + self.steps], np.float32)

    env = counting_vector_env([1, 9], AutoresetMode.DISABLED)
    for one in env.envs:
        one.__class__ = Reusing
    env.copy = False
    driver = GymnasiumDriver(env)
    driver.reset(np.zeros(2, np.uint64))

    turn = driver.step((np.array([1, 1]),))

    # Row 0 ended in episode 1 at step 1 and now shows episode 2 at step 0.
    assert turn.final_observations[0].tolist() == [[101.0]]
    assert turn.observations[0].tolist() == [[200.0], [101.0]]
