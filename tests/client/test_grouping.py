"""How a client splits its environments into groups, by number and by measured times."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from royale_client.driver import Turn
from royale_client.grouping import group_sizes, make_drivers, random_actions
from royale_client.wire.space_specs import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
)


class TimedDriver:
    """A driver whose steps are said to take what a test says."""

    def __init__(self, size: int, step_s: float, action_space: SpaceSpec | None = None) -> None:
        self.num_slots = size
        self.num_seats = 1
        self.action_space = action_space or DiscreteSpec(3)
        self.step_s = step_s
        self.steps = 0
        self.is_closed = False

    def reset(self, seeds: np.ndarray) -> Turn:
        assert seeds.shape == (self.num_slots,)
        return Turn.first((np.zeros((self.num_slots, 1), np.float32),), None)

    def step(self, actions: tuple[np.ndarray, ...]) -> Turn:
        assert len(actions[0]) == self.num_slots
        self.steps += 1
        return Turn.first((np.zeros((self.num_slots, 1), np.float32),), None, self.step_s)

    def close(self) -> None:
        self.is_closed = True


class Maker:
    """Makes drivers, and knows all it made."""

    def __init__(self, seconds: dict[int, float], failing: int | None = None) -> None:
        self.seconds = seconds
        self.failing = failing
        self.made: list[TimedDriver] = []

    def __call__(self, size: int) -> TimedDriver:
        if len(self.made) == self.failing:
            raise RuntimeError("no room for another")
        self.made.append(TimedDriver(size, self.seconds[size]))
        return self.made[-1]


def test_two_groups_split_the_environments_and_the_first_takes_the_odd_one():
    assert group_sizes(2, 5) == (3, 2)
    assert group_sizes(1, 5) == (5,)
    make = Maker({3: 1.0, 2: 1.0})
    assert [d.num_slots for d in make_drivers(2, 5, make)] == [3, 2]
    assert [d.steps for d in make.made] == [0, 0]


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        ({16: 0.010, 8: 0.005}, [8, 8]),  # one after the other: half takes half
        ({16: 0.010, 8: 0.0075}, [8, 8]),
        ({16: 0.010, 8: 0.010}, [16]),  # all at once: half takes as long as all
        ({16: 0.010, 8: 0.0076}, [16]),
        ({16: 0.0019, 8: 0.0001}, [16]),  # nothing to hide
    ],
)
def test_auto_splits_slow_environments_of_which_half_take_clearly_less(seconds, sizes, caplog):
    caplog.set_level(logging.INFO)
    make = Maker(seconds)
    chosen = make_drivers("auto", 16, make)
    assert [d.num_slots for d in chosen] == sizes
    assert all(d.is_closed == (d not in chosen) for d in make.made)
    assert f"--groups {len(sizes)}" in caplog.text
    assert "16 environments" in caplog.text


def test_auto_does_not_split_a_single_environment():
    make = Maker({1: 5.0})
    assert make_drivers("auto", 1, make) == make.made


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("groups", ["auto", 2])
def test_environments_that_cannot_be_made_leave_none_open(failing, groups):
    make = Maker({4: 1.0, 2: 0.5}, failing)
    if groups == 2 and failing == 2:
        return  # it makes no third driver
    with pytest.raises(RuntimeError, match="no room"):
        make_drivers(groups, 4, make)
    assert all(d.is_closed for d in make.made)


def test_random_actions_are_legal_values_of_every_kind_of_leaf():
    space = DictSpec(
        (
            ("bounded", BoxSpec(-2.0, 3.0, (2,), "float32")),
            ("free", BoxSpec(-np.inf, np.inf, (2,), "float64")),
            ("half", BoxSpec(5.0, np.inf, (1,), "float32")),
            ("bits", MultiBinarySpec((3,))),
            ("text", TextSpec(4)),
            ("two", MultiDiscreteSpec((2, 5))),
            ("whole", DiscreteSpec(3, start=7)),
            ("wide", BoxSpec(np.finfo("f8").min, np.finfo("f8").max, (1,), "float64")),
        )
    )
    driver = TimedDriver(500, 0.0, space)
    turn = driver.reset(np.zeros(500, np.uint64))
    bits, bounded, free, half, text, two, whole, wide = random_actions(
        driver, turn, np.random.default_rng(1)
    )
    assert bounded.min() >= -2
    assert bounded.max() <= 3
    assert (bounded.dtype, free.dtype) == (np.float32, np.float64)
    assert np.isfinite(free).all()
    assert half.min() >= 5
    assert set(np.unique(bits)) == {0, 1}
    assert text.shape == (500, 4)
    assert [set(np.unique(two[:, i])) for i in (0, 1)] == [{0, 1}, {0, 1, 2, 3, 4}]
    assert set(np.unique(whole)) == {7, 8, 9}
    assert np.isfinite(wide).all()
    assert len(np.unique(wide)) == 500


def test_random_actions_keep_to_the_masks_and_to_the_rows_that_ask():
    driver = TimedDriver(4, 0.0, MultiDiscreteSpec((2, 3)))
    masks = np.array([[1, 0, 0, 0, 1], [0, 1, 1, 0, 1]], np.bool_)
    turn = Turn.first((np.zeros((2, 1), np.float32),), masks)._replace(
        asks=np.array([True, False, False, True])
    )
    generator = np.random.default_rng(1)
    seen = np.stack([random_actions(driver, turn, generator)[0] for _ in range(200)])
    assert seen.shape == (200, 2, 2)
    assert np.unique(seen[:, 0], axis=0).tolist() == [[0, 2]]
    assert np.unique(seen[:, 1], axis=0).tolist() == [[1, 0], [1, 2]]
