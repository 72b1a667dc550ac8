"""Stepping single environments one after the other: the same as Gymnasium's own, step for step."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from royale_client.driver_serial import SerialVectorEnv

ROWS, STEPS = 3, 40
SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (4,), np.float32),
    "image": spaces.Box(0, 255, (2, 3, 3), np.uint8),
    "scalar box": spaces.Box(-1, 1, (), np.float32),
    "empty box": spaces.Box(-1, 1, (0,), np.float32),
    "discrete": spaces.Discrete(5),
    "dict": spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)}),
    "tuple": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 1, (1,)))),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "dict": spaces.Dict({"x": spaces.Discrete(2), "y": spaces.Box(0, 1, (1,))}),
}


class Whimsical(gymnasium.Env[Any, Any]):
    """Observes at random, ends at random, and has infos now and then."""

    def __init__(self, space: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = actions
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {"reset": True}

    def step(self, action: Any):
        self.taken.append(action)
        draw = self.np_random.random()
        info = {"draw": draw, "mask": np.ones(2, np.bool_)} if draw < 0.5 else {}
        return self.observation_space.sample(), draw, draw < 0.1, draw > 0.9, info


def equal(left: Any, right: Any) -> bool:
    """Whether two nested values are the same, dtypes and shapes included."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, np.ndarray):
        same_kind = left.dtype == right.dtype and left.shape == right.shape
        return same_kind and np.array_equal(left, right)
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("observations", SPACES)
def test_it_is_gymnasiums_own_only_faster(observations: str, actions: str):
    def make() -> Whimsical:
        return Whimsical(copy.deepcopy(SPACES[observations]), ACTIONS[actions])

    own = SerialVectorEnv([make] * ROWS)
    theirs = SyncVectorEnv([make] * ROWS, copy=False, autoreset_mode=AutoresetMode.DISABLED)
    assert equal(own.reset(seed=[5, 6, 7]), theirs.reset(seed=[5, 6, 7]))
    own.action_space.seed(1)
    ended = 0
    for _ in range(STEPS):
        action = own.action_space.sample()
        got, expected = own.step(action), theirs.step(action)
        assert equal(got, expected)
        over = got[2] | got[3]
        if over.any():
            ended += 1
            kept = got[2].copy()
            again = [env.reset(options={"reset_mask": over.copy()}) for env in (own, theirs)]
            assert equal(*again)
            assert np.array_equal(got[2], kept), "what was returned is not written to"
    assert ended
    for mine, other in zip(own.envs, theirs.envs, strict=True):
        assert equal(mine.taken, other.taken)


def test_rows_of_another_shape_are_refused_as_by_gymnasium():
    """Laid end to end they would fill the batch all the same: 3 + 5 = 2 x 4."""
    env = SerialVectorEnv([lambda: Whimsical(SPACES["vector"], ACTIONS["discrete"])] * 2)
    env.reset(seed=1)
    for size, part in zip((3, 5), env.envs, strict=True):
        part.step = lambda action, size=size: (np.zeros(size, np.float32), 0.0, False, False, {})
    with pytest.raises(ValueError, match="same shape"):
        env.step(np.zeros(2, np.int64))


def test_an_ended_row_must_be_reset_before_the_next_step():
    env = SerialVectorEnv([lambda: Whimsical(SPACES["vector"], ACTIONS["discrete"])])
    env.reset(seed=1)
    env.envs[0].step = lambda action: (np.zeros(4, np.float32), 0.0, True, False, {})
    env.step(np.zeros(1, np.int64))
    with pytest.raises(AssertionError, match="was not reset"):
        env.step(np.zeros(1, np.int64))
