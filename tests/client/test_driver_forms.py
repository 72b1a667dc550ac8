"""However an environment hands over its results, the same turn comes of it.

Results that are already exactly what a turn holds are passed on as they are; all others are
converted. Both are played here on the same script, with an environment that overwrites its buffers
whenever Gymnasium allows it to.
"""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.driver import take_rows
from royale_client.driver_episodes import EpisodeTracker
from royale_client.driver_gymnasium import GymnasiumDriver
from royale_client.driver_leaves import ActionBuffer
from royale_client.driver_serial import SerialVectorEnv
from royale_client.timing import DurationWindow
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.client.fakes import CountingEnv, CountingVectorEnv

ROWS = 3
NOISE = 99


class ScriptedVectorEnv(VectorEnv):
    """Row i of step t rewards and ends as the script says and observes ``10 t + i``.

    A reset row observes the negative of that.

    Args:
        mode: Autoreset rule.
        script: Per step the rewards, terminated and truncated of the rows that act.
        form: «exact» returns new arrays of the final dtypes, «reused» the same arrays again and
            again, «loose» what has to be converted, and «noisy» the same arrays, with rewards and
            endings also for rows that are just being reset.
    """

    def __init__(self, mode, script, form):
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = ROWS
        self.single_observation_space = spaces.Box(-1000, 1000, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, ROWS
        )
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, ROWS)
        self._mode, self._script, self._form = mode, script, form
        self._time = 0
        self._to_reset = np.zeros(ROWS, np.bool_)
        self._observations = np.zeros((ROWS, 2), np.float32)
        self._rewards = np.zeros(ROWS)
        self._terminated = np.zeros(ROWS, np.bool_)
        self._truncated = np.zeros(ROWS, np.bool_)

    def reset(self, *, seed=None, options=None):
        rows = np.ones(ROWS, np.bool_) if options is None else options["reset_mask"]
        self._observe(rows, sign=-1)
        # Nothing of the step before is the environment's concern any more.
        self._rewards[rows] = NOISE
        self._terminated[rows] = self._truncated[rows] = False
        if self._form == "reused":
            self._rewards[:] = NOISE
        self._to_reset[rows] = False
        return self._given(self._observations), {}

    def step(self, actions):
        rewards, terminated, truncated = self._script[self._time]
        self._time += 1
        is_quiet = self._mode is AutoresetMode.NEXT_STEP and self._form != "noisy"
        silent = self._to_reset.copy() if is_quiet else False
        self._rewards[:] = np.where(silent, 0.0, rewards)
        self._terminated[:] = np.logical_and(terminated, ~np.asarray(silent))
        self._truncated[:] = np.logical_and(truncated, ~np.asarray(silent))
        self._observe(np.ones(ROWS, np.bool_), sign=1)
        ended = self._terminated | self._truncated
        infos = {}
        if self._mode is AutoresetMode.NEXT_STEP:
            self._observe(self._to_reset, sign=-1)
            self._to_reset = ended
        elif self._mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {"final_obs": self._observations.copy(), "_final_obs": ended}
            self._observe(ended, sign=-1)
        flags = self._given(self._terminated), self._given(self._truncated)
        return self._given(self._observations), self._given(self._rewards), *flags, infos

    def _observe(self, rows, sign):
        now = 10.0 * self._time + np.arange(ROWS)
        self._observations[rows] = sign * now[rows, None]

    def _given(self, values):
        if self._form in ("reused", "noisy"):
            return values
        if self._form == "exact":
            return values.copy()
        if values.ndim == 2:
            return np.asfortranarray(values.astype(np.float64))
        return values.tolist() if values.dtype == np.float64 else values.astype(np.int8)


def played(mode, script, form):
    """Return every turn as plain data, read as soon as it is there."""
    driver = GymnasiumDriver(ScriptedVectorEnv(mode, script, form), clock=lambda: 0.0)
    turn = driver.reset(np.zeros(ROWS, np.uint64))
    plain = []
    for _ in script:
        asking = ROWS if turn.asks is None else int(turn.asks.sum())
        turn = driver.step((np.zeros(asking, np.int64),))
        assert turn.rewards.dtype == np.float64
        assert turn.terminated.dtype == turn.truncated.dtype == np.bool_
        plain.append([plain_value(value) for value in turn])
        plain.append([plain_value(value) for value in driver.last_turn()])
    return plain


def plain_value(value):
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return [plain_value(leaf) for leaf in value]
    return value


per_row = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)
rewards = st.lists(st.sampled_from([0.0, 1.0, -2.5]), min_size=ROWS, max_size=ROWS)
scripts = st.lists(st.tuples(rewards, per_row, per_row), min_size=1, max_size=6)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@settings(max_examples=40)
@given(script=scripts)
def test_a_turn_does_not_depend_on_the_form_of_the_results(mode, script):
    exact = played(mode, script, "exact")

    assert played(mode, script, "reused") == exact
    assert played(mode, script, "loose") == exact


def test_a_reset_that_overwrites_all_buffers_leaves_what_was_reported_alone():
    """Row 1 ends in the first step, and the reset then fills the rewards with 99."""
    script = [([1.0, 2.0, 3.0], [False, True, False], [False] * 3)]

    (turn, _) = played(AutoresetMode.DISABLED, script, "reused")

    # Step 1 observes 10 + row; row 1 is reset at once and shows the negative.
    assert turn[1] == [("<f4", [[10.0, 10.0], [-11.0, -11.0], [12.0, 12.0]])]
    assert turn[3:6] == [
        ("<f8", [1.0, 2.0, 3.0]),
        ("|b1", [False, True, False]),
        ("|b1", [False, False, False]),
    ]
    assert turn[6] == [("<f4", [[11.0, 11.0]])]


def test_what_a_row_reports_while_it_is_reset_belongs_to_no_episode():
    """Row 0 ends in the first step and is reset by the second, whose script names it too."""
    script = [
        ([1.0, 1.0, 1.0], [True, False, False], [False] * 3),
        ([5.0, 6.0, 7.0], [False, True, False], [True, False, False]),
        ([5.0, 6.0, 7.0], [False] * 3, [True, False, False]),
    ]

    _, _, second, _, third, _ = played(AutoresetMode.NEXT_STEP, script, "noisy")

    assert second[0] == ("|b1", [False, False, True])
    assert second[3:6] == [
        ("<f8", [0.0, 6.0, 7.0]),
        ("|b1", [False, True, False]),
        ("|b1", [False, False, False]),
    ]
    assert second[6] == [("<f4", [[21.0, 21.0]])]  # step 2 observes 20 + row
    assert third[3:6] == [
        ("<f8", [0.0, 0.0, 7.0]),
        ("|b1", [False, False, False]),
        ("|b1", [False, False, False]),
    ]
    assert third[6] is None


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True, False])])
def test_rows_are_copied_by_index_or_mask_from_any_layout(rows):
    leaf = np.arange(24).reshape(4, 2, 3)
    expected = [leaf[row] for row in rows] if rows.dtype != np.bool_ else [leaf[0], leaf[2]]

    for given_leaf in (leaf, np.asfortranarray(leaf), leaf[:, ::-1][:, ::-1]):
        (taken,) = take_rows((given_leaf,), rows)
        assert taken.tolist() == np.stack(expected).tolist()
        assert not np.shares_memory(taken, given_leaf)


def test_percentiles_are_of_the_newest_durations_only():
    window = DurationWindow(size=3)
    assert window.percentiles_ms() is None

    for duration_s in (9.0, 9.0, 0.001, 0.002, 0.003):
        window.add(duration_s)

    # Of 1, 2 and 3 ms the median is 2; 95 % lie at 2.9 and 99 % at 2.98 between the last two.
    assert window.percentiles_ms() == pytest.approx((2.0, 2.9, 2.98))


def test_lengths_count_the_steps_of_the_rows_that_acted_since_their_episode_began():
    """Four steps; row 1 does not act in the second, and row 2 ends with the third."""
    episodes = EpisodeTracker(ROWS, clock=lambda: 0.0)
    for acted in (None, np.array([True, False, True]), None):
        episodes.add(np.ones(ROWS), acted)
    (record,) = episodes.finish(np.array([2]), [{}])
    episodes.add(np.ones(ROWS), None)

    assert record == {"row": 2, "return": 3.0, "length": 3, "time_s": 0.0, "metrics": {}}
    assert episodes.lengths.tolist() == [4, 3, 1]

    later = EpisodeTracker(ROWS, clock=lambda: 0.0)
    later.add(np.ones(ROWS), None)
    later.restore(episodes.snapshot())
    later.add(np.ones(ROWS), None)
    assert later.lengths.tolist() == [5, 4, 2]


def test_only_scalars_of_an_action_are_handed_on_without_a_copy():
    """Rows that stay silent keep their last action, whoever owns it."""
    actions = np.array([1, 0, 1])
    actions.setflags(write=False)
    sharing, copying = (
        ActionBuffer(DiscreteSpec(2), ROWS, [np.dtype(np.int64)], hands_out_rows=hands_out_rows)
        for hands_out_rows in (True, False)
    )
    for buffer in (sharing, copying):
        buffer.put(None, (actions,))
        assert buffer.value().tolist() == [1, 0, 1]
    assert sharing.value() is actions
    assert not np.shares_memory(copying.value(), actions)

    sharing.put(np.array([False, True, False]), (np.array([1]),))

    assert sharing.value().tolist() == [1, 1, 1]
    assert actions.tolist() == [1, 0, 1]


def test_vectors_and_other_dtypes_are_always_copied():
    vectors = ActionBuffer(
        BoxSpec(-1, 1, (2,), np.float32), ROWS, [np.dtype(np.float32)], hands_out_rows=True
    )
    narrow = ActionBuffer(DiscreteSpec(2), ROWS, [np.dtype(np.int32)], hands_out_rows=True)
    floats, numbers = np.ones((ROWS, 2), np.float32), np.ones(ROWS, np.int64)

    vectors.put(None, (floats,))
    narrow.put(None, (numbers,))

    assert not np.shares_memory(vectors.value(), floats)
    assert narrow.value().dtype == np.int32


def test_only_plain_vector_envs_hand_out_rows():
    class Curious(SyncVectorEnv):
        """Might do anything with the batch."""

    plain, serial, curious = (
        GymnasiumDriver(env)
        for env in (
            SyncVectorEnv([CountingEnv], autoreset_mode=AutoresetMode.DISABLED),
            SerialVectorEnv([CountingEnv]),
            Curious([CountingEnv], autoreset_mode=AutoresetMode.DISABLED),
        )
    )
    actions = np.array([1])
    for driver in (plain, serial, curious):
        driver.reset(np.zeros(1, np.uint64))
        driver.step((actions,))

    assert np.shares_memory(plain._actions.value(), actions)
    assert np.shares_memory(serial._actions.value(), actions)
    assert not np.shares_memory(curious._actions.value(), actions)


def test_a_step_whose_results_are_in_form_enters_few_functions():
    """What a turn costs is the number of functions it enters; 31 when this was written."""
    driver = GymnasiumDriver(CountingVectorEnv(8))
    actions = (np.zeros(8, np.int64),)
    driver.reset(np.zeros(8, np.uint64))
    driver.step(actions)
    entered = []

    sys.setprofile(lambda frame, kind, _: entered.append(kind))
    try:
        driver.step(actions)
    finally:
        sys.setprofile(None)

    assert len([kind for kind in entered if kind in ("call", "c_call")]) <= 36
