"""Which rows hold numbers that must not be trained on: the cheap proof and the full look agree."""

from __future__ import annotations

import numpy as np
import pytest

from royale_client.wire.messages import Step
from royale_server.endpoint.finiteness import FEW, MAX_MAGNITUDE, find_nonfinite

ODD = (np.nan, np.inf, -np.inf, 1e16, -1e16, 1e30, 3e38, MAX_MAGNITUDE, -MAX_MAGNITUDE, 1e14, 0.0)


def is_bad(number: float) -> bool:
    return not abs(number) <= MAX_MAGNITUDE


def step_of(observations: np.ndarray, rewards: np.ndarray, finals: np.ndarray) -> Step:
    return Step(
        group=0,
        request=2,
        observations=(np.zeros((len(observations), 1), np.int64), observations),
        rewards=rewards,
        terminated=np.ones(len(rewards), np.bool_),
        truncated=np.zeros(len(rewards), np.bool_),
        final_observations=(np.zeros((len(finals), 1), np.int64), finals),
    )


@pytest.mark.parametrize("width", [3, FEW])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("where", ["observation", "final", "reward"])
def test_a_row_is_bad_exactly_if_a_number_of_it_is(width, dtype, odd, where):
    rows = 3
    with np.errstate(over="ignore"):
        value = dtype(odd)
    observations, finals = np.ones((rows, width), dtype), np.ones((rows, width), dtype)
    rewards = np.ones(rows)
    if where == "reward":
        value = np.float64(odd)
        rewards[1] = value
    else:
        (observations if where == "observation" else finals)[1, -1] = value
    everyone = np.ones(rows, np.bool_)
    found = find_nonfinite(step_of(observations, rewards, finals), everyone, everyone)
    assert (found is not None) == is_bad(float(value))
    if found is not None:
        assert found.rows() == [1]
        assert (found.observation is not None) == (where == "observation")
        assert (found.feedback is not None) == (where != "observation")


def test_many_large_numbers_within_bounds_are_not_bad():
    """The sum of their squares is beyond what proves it."""
    observations = np.full((4, 50), MAX_MAGNITUDE, np.float32)
    everyone = np.ones(4, np.bool_)
    step = step_of(observations, np.full(4, -MAX_MAGNITUDE), observations)
    assert find_nonfinite(step, everyone, everyone) is None
