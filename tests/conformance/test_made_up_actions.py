"""What the scripted server answers is legal in every space, and another thing in every row."""

from __future__ import annotations

import numpy as np
import pytest

from royale_client.conformance.made_up_actions import made_up_actions
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    leaves,
    value_ranges,
)

SPACES = [
    DiscreteSpec(7, start=-3),
    MultiDiscreteSpec((3, 2, 5)),
    MultiBinarySpec((2, 3)),
    TextSpec(4, None),
    BoxSpec(-np.inf, np.inf, (3,), "float32"),
    BoxSpec([5.0, -9.0], [6.0, -8.0], (2,), "float64"),
    BoxSpec(0, 255, (2, 2), "uint8"),
    DictSpec((("a", DiscreteSpec(2)), ("b", BoxSpec(0.0, 1.0, (1,), "float32")))),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_actions_have_the_exact_types_and_lie_in_the_space(space):
    for salt in range(5):
        actions = made_up_actions(space, np.array([0, 2, 5]), salt, None)
        for array, leaf in zip(actions, leaves(space), strict=True):
            assert (array.dtype, array.shape) == (leaf.dtype, (3, *leaf.shape))
            legal = value_ranges(leaf) or (leaf.spec.low, leaf.spec.high)
            assert np.all((array >= legal[0]) & (array <= legal[1]))


def test_no_row_asks_makes_no_row():
    (actions,) = made_up_actions(DiscreteSpec(3), np.array([], np.int64), 1, None)
    assert actions.shape == (0,)


def test_neighbouring_rows_and_requests_get_other_actions():
    table = [
        made_up_actions(DiscreteSpec(7, start=2), np.arange(3), salt, None)[0].tolist()
        for salt in (0, 5)
    ]
    # 3 row + salt, modulo 7, from 2 on.
    assert table == [[2, 5, 8], [7, 3, 6]]


def test_masked_actions_are_legal_ones():
    masks = np.array([[0, 1, 0, 1], [1, 0, 0, 0]], bool)
    for salt in range(4):
        (actions,) = made_up_actions(DiscreteSpec(4, start=10), np.arange(2), salt, masks)
        assert masks[np.arange(2), actions - 10].all()


def test_each_choice_of_a_vector_keeps_to_its_own_part_of_the_mask():
    masks = np.array([[0, 1, 0, 0, 1]], bool)  # of three and two entries
    (actions,) = made_up_actions(MultiDiscreteSpec((3, 2)), np.array([4]), 9, masks)
    assert actions.tolist() == [[1, 1]]
