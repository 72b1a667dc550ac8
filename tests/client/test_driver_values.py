"""What reaches the wire and the environment: dtypes, shapes, masks, metrics, bad numbers."""

import datetime
import gc
import logging
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from royale_client.driver import EnvContractError
from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.envs.gymnasium_envs import driver_for
from royale_client.envs.wrappers import FrameSkip, InfoFilter
from royale_client.hello import make_hello
from royale_client.loop import EnvLoop
from royale_client.space_conversion import leaf_dtypes, to_spec
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    TupleSpec,
    leaves,
)
from tests.client.fake_server import FakeServer, ServerTransport
from tests.client.fakes import CountingEnv, CountingVectorEnv


class ScriptedEnv(gymnasium.Env):
    """Plays given rewards and observations; ends after the last one; remembers its actions."""

    def __init__(self, rewards, observations=None, space=None, action_space=None, infos=None):
        self.rewards = rewards
        self.observations = observations or [np.zeros(1, np.float32)] * (len(rewards) + 1)
        self.observation_space = space or spaces.Box(-1e3, 1e3, (1,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.infos = infos or [{}] * (len(rewards) + 1)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.step_count = 0
        return self.observations[0], self.infos[0]

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} of {type(action)}"
        self.actions.append(action)
        reward = self.rewards[self.step_count]
        self.step_count += 1
        ended = self.step_count == len(self.rewards)
        return (
            self.observations[self.step_count],
            reward,
            ended,
            False,
            self.infos[self.step_count],
        )


def driver_of(env, metrics=(), mask="auto"):
    driver = driver_for(env, None, mask, metrics)
    driver.reset(np.zeros(driver.num_slots, np.uint64))
    return driver


def play(driver, action, steps):
    return [driver.step((np.asarray(action),)) for _ in range(steps)]


def mean_metric(name):
    return EpisodeMetric(name, "1", "all", "mean")


# ------------------------------------------------------------------ widths and dtypes (case H24)


def test_return_of_large_rewards_that_cancel_is_exact():
    turns = play(driver_of(ScriptedEnv([1e8, 1.0, -1e8])), [0], 3)

    # In float32 the sum would be 0.
    assert [record["return"] for record in turns[-1].episodes] == [1.0]
    assert turns[1].rewards.dtype == np.float64


def test_frame_skip_sums_in_double_precision_and_stops_at_the_end():
    env = FrameSkip(ScriptedEnv([1e8, 1.0, -1e8, 5.0]), 3)
    turns = play(driver_of(env), [0], 2)

    assert [turn.rewards.tolist() for turn in turns] == [[1.0], [5.0]]
    assert [turn.terminated.tolist() for turn in turns] == [[False], [True]]


def test_frame_skip_below_one_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        FrameSkip(CountingEnv(), 0)


def test_wider_observations_are_cast_once_to_the_declared_dtype():
    observations = [np.array([1.5], np.float64), np.array([1.0000001], np.float64)]
    (turn,) = play(driver_of(ScriptedEnv([0.0], observations)), [0], 1)

    (final,) = turn.final_observations
    assert final.dtype == np.float32
    assert final[0, 0] == np.float32(1.0000001)


# Gymnasium casts when it stacks the rows, and numpy mentions it.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_overflow_of_an_observation_to_infinity_is_bad_data_and_said_once(caplog):
    observations = [np.zeros(1), np.array([1e300]), np.array([1e300]), np.zeros(1)]
    driver = driver_of(ScriptedEnv([0.0] * 3, observations))

    turns = play(driver, [0], 2)

    assert np.isinf(turns[0].observations[0]).all()
    warnings = [r.message for r in caplog.records if "NaN or infinite" in r.message]
    assert len(warnings) == 1
    assert "the observation of slot 0 is NaN or infinite at step 1 of its episode" in warnings[0]


def test_bad_reward_is_named_once_per_slot_and_sent_as_it_is(caplog):
    env = SyncVectorEnv(
        [lambda: ScriptedEnv([1.0, np.nan, np.inf, 1.0]), lambda: ScriptedEnv([1.0] * 4)],
        autoreset_mode=AutoresetMode.DISABLED,
    )
    turns = play(driver_of(env), [0, 0], 3)

    assert np.isnan(turns[1].rewards[0])
    assert turns[2].rewards[0] == np.inf
    messages = [r.message for r in caplog.records]
    assert len(messages) == 1
    assert messages[0].startswith("the reward of slot 0 is NaN or infinite at step 2")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_discrete_environment_of_either_integer_width_gets_a_scalar_inside_its_space(dtype):
    env = ScriptedEnv([0.0] * 2, action_space=spaces.Discrete(3, start=5, dtype=dtype))
    driver = driver_of(env)

    play(driver, [7], 2)

    assert driver.action_space == DiscreteSpec(3, 5)
    assert env.actions == [7, 7]
    assert {type(action) for action in env.actions} == {dtype}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_box_environment_gets_its_exact_dtype_and_shape(dtype):
    space = spaces.Box(-2, 2, (2, 1), dtype)
    env = ScriptedEnv([0.0], action_space=space)
    driver = driver_of(env)

    driver.step((np.array([[[1], [-2]]], dtype),))

    assert env.actions[0].dtype == dtype
    assert env.actions[0].tolist() == [[1], [-2]]


def test_environment_may_keep_and_change_the_actions_it_was_given():
    env = ScriptedEnv([0.0] * 3, action_space=spaces.Box(-2, 2, (1,), np.float32))
    driver = driver_of(env)
    for value in (1.0, 2.0):
        action = np.full((1, 1), value, np.float32)
        action.flags.writeable = False  # as a view of a received message
        driver.step((action,))
        env.actions[-1][:] *= 0.5

    assert [action.tolist() for action in env.actions] == [[0.5], [1.0]]


def test_observation_of_another_shape_is_refused_with_both_shapes():
    class Wrong(CountingVectorEnv):
        def step(self, actions):
            return np.zeros((2, 5), np.float32), *super().step(actions)[1:]

    driver = driver_of(Wrong(2))
    with pytest.raises(EnvContractError, match=r"\(2, 5\).*\(4,\)"):
        play(driver, [0, 0], 1)


def test_observation_that_does_not_fit_the_declared_integers_is_refused():
    space = spaces.Box(0, 255, (1,), np.uint8)
    observations = [np.zeros(1, np.uint8), np.array([300])]
    env = ScriptedEnv([0.0], observations, space)

    class Raw(CountingVectorEnv):
        def __init__(self):
            super().__init__(1)
            self.single_observation_space = space
            self._observations = np.zeros((1, 1), np.uint8)

        def step(self, actions):
            return np.array([[300]]), *super().step(actions)[1:]

    driver = driver_of(Raw())
    with pytest.raises(EnvContractError, match="fit uint8"):
        play(driver, [0], 1)
    assert env.observation_space.dtype == np.uint8


@pytest.mark.parametrize("bad", ["rewards", "terminated"])
def test_results_of_another_shape_are_refused_by_name(bad):
    class Wrong(CountingVectorEnv):
        def step(self, actions):
            observations, rewards, ends, cuts, infos = super().step(actions)
            if bad == "rewards":
                return observations, np.zeros((2, 2)), ends, cuts, infos
            return observations, rewards, np.zeros(3, np.bool_), cuts, infos

    driver = driver_of(Wrong(2))
    with pytest.raises(EnvContractError, match="reward: got" if bad == "rewards" else "terminated"):
        play(driver, [0, 0], 1)


# ---------------------------------------------------------------------------- nested spaces, text


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 2, 1), np.uint8),
        "arm": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(4, start=-1))),
        "buttons": spaces.MultiBinary(3),
        "order": spaces.Text(5, charset="abc"),
        "gear": spaces.MultiDiscrete([3, 2]),
    }
)


def nested_value():
    return {
        "camera": np.full((2, 2, 1), 7, np.uint8),
        "arm": (np.array([0.5, -0.5]), np.int64(-1)),
        "buttons": np.array([1, 0, 1], np.int8),
        "order": "abba",
        "gear": np.array([2, 1]),
    }


def test_spaces_become_specs_with_sorted_keys():
    assert to_spec(NESTED) == DictSpec(
        (
            ("arm", TupleSpec((BoxSpec(-1, 1, (2,), np.float64), DiscreteSpec(4, -1)))),
            ("buttons", MultiBinarySpec((3,))),
            ("camera", BoxSpec(0, 255, (2, 2, 1), np.uint8)),
            ("gear", MultiDiscreteSpec((3, 2))),
            ("order", TextSpec(5, "abc")),
        )
    )
    paths = [leaf.path for leaf in leaves(to_spec(NESTED))]
    assert paths == ["arm/0", "arm/1", "buttons", "camera", "gear", "order"]
    assert [str(dtype) for dtype in leaf_dtypes(NESTED)] == [
        "float64",
        "int64",
        "int8",
        "uint8",
        "int64",
        "uint32",
    ]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Sequence(spaces.Discrete(2)), "Sequence cannot travel"),
        (spaces.Dict({"a": spaces.Graph(spaces.Discrete(2), None)}), "space /a: Graph"),
        (spaces.MultiDiscrete([[2, 2], [2, 2]]), "flat vector"),
        (spaces.MultiDiscrete([2, 2], start=[1, 0]), "shift the values"),
    ],
)
def test_space_that_cannot_travel_is_refused_by_name_and_place(space, message):
    with pytest.raises(ConfigError, match=message):
        to_spec(space)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_nested_observations_arrive_leaf_by_leaf_also_as_finals(mode):
    env = SyncVectorEnv(
        [lambda n=n: ScriptedEnv([0.0] * n, [nested_value()] * 9, NESTED) for n in (1, 3)],
        autoreset_mode=mode,
    )
    (turn,) = play(driver_of(env), [0, 0], 1)
    finals = dict(
        zip([leaf.path for leaf in leaves(to_spec(NESTED))], turn.final_observations, strict=True)
    )

    assert finals["arm/0"].tolist() == [[0.5, -0.5]]
    assert finals["arm/1"].tolist() == [-1]
    assert finals["camera"].shape == (1, 2, 2, 1)
    assert finals["order"].tolist() == [[97, 98, 98, 97, 0]]
    asking = 1 if mode is AutoresetMode.NEXT_STEP else 2
    assert [len(leaf) for leaf in turn.observations] == [asking] * 6


def test_nested_actions_reach_the_environment_in_its_own_structure():
    env = ScriptedEnv([0.0], action_space=NESTED)
    driver = driver_of(env)
    by_path = {
        "arm/0": np.array([[0.25, 1.0]]),
        "arm/1": np.array([2]),
        "buttons": np.array([[0, 1, 1]], np.int8),
        "camera": np.full((1, 2, 2, 1), 9, np.uint8),
        "gear": np.array([[0, 1]]),
        "order": np.array([[99, 97, 98, 0, 0]], np.uint32),
    }

    driver.step(tuple(by_path[leaf.path] for leaf in leaves(driver.action_space)))

    (action,) = env.actions  # ScriptedEnv asserted that it lies in the space
    assert action["order"] == "cab"
    assert action["arm"][1] == 2
    assert action["gear"].tolist() == [0, 1]


# ---------------------------------------------------------------------------------------- masks


def masked_env(masks, space=None):
    infos = [{"action_mask": mask} for mask in masks]
    space = space or spaces.Discrete(3)
    return ScriptedEnv([0.0] * (len(masks) - 1), action_space=space, infos=infos)


def test_masks_in_the_first_info_are_declared_and_follow_the_observations():
    masks = [np.array([1, 0, 1], np.int8), np.array([0, 1, 0]), np.array([True, True, False])]
    driver = driver_of(masked_env(masks))

    turns = play(driver, [0], 2)

    assert driver.has_masks
    assert turns[0].masks.tolist() == [[False, True, False]]
    # The episode ended and was reset: the mask is the one of its first observation.
    assert turns[1].masks.tolist() == [[True, False, True]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_masks_belong_to_the_asking_rows_under_every_autoreset_rule(mode):
    short = [np.array([1, 0, 0]), np.array([0, 0, 1])]
    long = [np.array([0, 1, 1])] * 5
    env = SyncVectorEnv([lambda: masked_env(short), lambda: masked_env(long)], autoreset_mode=mode)

    (turn,) = play(driver_of(env), [0, 1], 1)

    expected = [[True, False, False], [False, True, True]]
    assert turn.masks.tolist() == (expected[1:] if mode is AutoresetMode.NEXT_STEP else expected)


def test_masks_of_a_multi_discrete_action_are_joined_part_by_part():
    mask = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    env = masked_env([mask, mask], spaces.MultiDiscrete([2, 3]))

    (turn,) = play(driver_of(env), [[0, 1]], 1)

    assert turn.masks.tolist() == [[True, False, False, True, True]]


def test_masks_may_come_from_a_method():
    class WithMethod(CountingEnv):
        def action_masks(self):
            return np.array([self.steps == 0, True, True])

    driver = driver_of(WithMethod())

    assert driver.has_masks
    assert play(driver, [1], 1)[0].masks.tolist() == [[False, True, True]]


def test_vector_environment_may_give_all_masks_by_one_method():
    class WithMethod(CountingVectorEnv):
        def action_masks(self):
            return np.array([[1, 0], [0, 1]])

    assert play(driver_of(WithMethod(2)), [0, 1], 1)[0].masks.tolist() == [
        [True, False],
        [False, True],
    ]


def test_masks_can_be_ignored_or_insisted_on():
    env = masked_env([np.ones(3), np.ones(3)])

    assert not driver_of(env, mask="off").has_masks
    with pytest.raises(ConfigError, match="neither"):
        driver_of(CountingEnv(), mask="on")
    with pytest.raises(ConfigError, match="nothing to mask"):
        driver_of(ScriptedEnv([0.0], action_space=spaces.Box(0, 1, (1,))), mask="on")


def test_missing_mask_is_refused_with_the_slot():
    env = ScriptedEnv(
        [0.0, 0.0], action_space=spaces.Discrete(2), infos=[{"action_mask": np.ones(2)}, {}, {}]
    )
    driver = driver_of(env)

    with pytest.raises(EnvContractError, match="missing for slot 0"):
        play(driver, [0], 1)


def test_mask_of_another_size_is_refused_with_both_sizes():
    with pytest.raises(EnvContractError, match=r"2 entries.*expected 3"):
        driver_of(masked_env([np.ones(2), np.ones(2)]))


# --------------------------------------------------------------- infos and metrics (case H22)


def deep_info(levels):
    return {"deep": deep_info(levels - 1)} if levels else {}


UGLY_INFO = {
    1: "a",
    (1, 2): 3,
    None: 0,
    "s": {1},
    "n": np.float32(2),
    "b": np.bool_(True),
    "big": 2**64,
    "arr": np.zeros(3),
    "d": datetime.date(2026, 1, 1),
    "bad": "\ud800",
    **deep_info(60),
    "sibling": 7,
}


class UglyEnv(CountingEnv):
    def _info(self):
        # Another shape at every step: what merges infos into arrays fails on it.
        return {**UGLY_INFO, "arr": np.zeros(self.steps + 1), "score": 0.5}


def run_episodes(driver, steps):
    server = FakeServer()
    loop = EnvLoop(
        [driver],
        make_hello([driver], client_name="x", env_id="x"),
        wants_to_leave=lambda: len(server.steps) > steps,
    )
    loop.converse(ServerTransport(server))
    return [record for step in server.steps for record in step.episodes]


def test_no_info_can_stop_a_run_and_well_formed_siblings_arrive(caplog):
    names = ["n", "b", "big", "arr", "d", "bad", "s", "sibling"]
    env = SyncVectorEnv(
        [lambda: InfoFilter(UglyEnv(10), None, names)] * 10, autoreset_mode=AutoresetMode.DISABLED
    )
    driver = driver_of(env, [mean_metric(name) for name in names])

    records = run_episodes(driver, 1000)  # 10,000 frames

    assert len(records) == 1000
    # big is 2**64, which is a number; the date, the text, the set and the array are none.
    expected = {"n": 2.0, "b": 1.0, "big": 2.0**64, "sibling": 7.0}
    assert all(record["metrics"] == expected for record in records)
    assert len(caplog.records) == 4  # one warning per metric that cannot travel


def test_undeclared_infos_do_not_travel():
    records = run_episodes(driver_of(UglyEnv(2)), 10)

    assert records[0]["metrics"] == {}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_metrics_of_a_vector_environment_come_from_the_step_that_ended_the_episode(mode):
    class Scored(CountingEnv):
        def _info(self):
            return {"score": float(self.steps)} if self.steps else {}

    env = SyncVectorEnv([lambda: Scored(2), lambda: Scored(3)], autoreset_mode=mode)
    driver = GymnasiumDriver(env, episode_metrics=[mean_metric("score")])

    records = run_episodes(driver, 8)

    assert {(r["row"], r["metrics"]["score"]) for r in records} == {(0, 2.0), (1, 3.0)}


def test_info_that_is_no_dict_is_taken_as_empty():
    class NoInfo(CountingEnv):
        def _info(self):
            return None

    assert len(run_episodes(driver_of(NoInfo(2)), 10)) == 5


# ------------------------------------------------------------------------------ other processes


def test_environments_in_processes_of_their_own_work_the_same_way():
    env = AsyncVectorEnv(
        [lambda: CountingEnv(1), lambda: CountingEnv(3)],
        autoreset_mode=AutoresetMode.DISABLED,
        context="spawn",
    )
    try:
        driver = driver_of(env)
        turns = play(driver, [1, 1], 3)
    finally:
        env.close()

    assert [turn.rewards.tolist() for turn in turns] == [[11.0, 11.0], [11.0, 21.0], [11.0, 31.0]]
    assert turns[2].final_observations[0].tolist() == [[1.0], [3.0]]


# ------------------------------------------------------------------------------------- hot path


def count_calls(num_envs, requests=50):
    """Python and C calls of loop, session and driver for a number of requests."""
    driver = GymnasiumDriver(CountingVectorEnv(num_envs))
    calls = 0

    def profile(frame, kind, _):
        nonlocal calls
        calls += kind in ("call", "c_call")

    def rule(server, step):
        if len(server.steps) == 10:
            gc.disable()  # test tools hang Python callbacks on the collector
            sys.setprofile(profile)
        if len(server.steps) == 10 + requests:
            sys.setprofile(None)
            gc.enable()
            return [server.session.stop("finished")]
        return [server.answer(step)]

    loop = EnvLoop([driver], make_hello([driver], client_name="x", env_id="x"))
    loop.converse(ServerTransport(FakeServer(rule)))
    return calls


def test_python_calls_per_request_do_not_depend_on_the_number_of_environments():
    assert count_calls(8) == count_calls(256) > 0


def test_nothing_is_logged_per_frame(caplog):
    caplog.set_level(logging.INFO)
    run_episodes(driver_of(CountingEnv(5)), 200)

    assert len(caplog.records) == 2  # what a resume could do, and joined
