"""Values of a space become one array per leaf, and back, without changing (case H24)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_client.wire.errors import ContractError
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    flatten_batch,
    flatten_one,
    leaves,
    unflatten_batch,
    unflatten_one,
    value_ranges,
)

SPACE = DictSpec(
    (
        ("say", TextSpec(4)),
        ("move", TupleSpec((DiscreteSpec(3, start=1), MultiDiscreteSpec((2, 2))))),
        ("pose", BoxSpec(-1, 1, (2,), "float32")),
    )
)


def batch() -> dict[str, Any]:
    return {
        "pose": np.array([[0.5, -0.5], [1.0, 0.0]], dtype=np.float32),
        "move": (np.array([1, 3]), np.array([[0, 1], [1, 1]])),
        "say": ("hi", "æ"),
    }


def test_a_batch_becomes_one_array_per_leaf_in_leaf_order() -> None:
    start, vector, pose, text = flatten_batch(SPACE, batch())
    assert start.tolist() == [1, 3]
    assert vector.tolist() == [[0, 1], [1, 1]]
    assert pose.dtype == np.float32
    assert text.tolist() == [[104, 105, 0, 0], [230, 0, 0, 0]]
    assert text.dtype == np.uint32


def test_a_batch_reads_back() -> None:
    got = unflatten_batch(SPACE, flatten_batch(SPACE, batch()))
    assert got["say"] == ("hi", "æ")
    assert got["move"][0].tolist() == [1, 3]
    assert got["pose"].tolist() == [[0.5, -0.5], [1.0, 0.0]]


def test_one_value_reads_back_in_the_types_an_environment_expects() -> None:
    value = {"pose": np.array([0.5, -0.5]), "move": (2, [0, 1]), "say": "go"}
    arrays = flatten_one(SPACE, value)
    assert [array.shape for array in arrays] == [leaf.shape for leaf in leaves(SPACE)]
    got = unflatten_one(SPACE, arrays)
    assert got["say"] == "go"
    assert type(got["move"][0]) is np.int64
    assert got["move"][0] == 2
    assert got["move"][1].dtype == np.int64
    assert got["pose"].dtype == np.float32


def test_one_value_from_a_read_only_view_is_writable() -> None:
    frozen = np.zeros(2, dtype=np.float32)
    frozen.setflags(write=False)
    value = unflatten_one(BoxSpec(-1, 1, (2,), "float32"), (frozen,))
    value[0] = 1.0
    assert frozen[0] == 0.0


def test_a_batch_in_the_right_type_is_not_copied() -> None:
    space = BoxSpec(-1, 1, (2,), "float32")
    rows = np.zeros((5, 2), dtype=np.float32)
    assert flatten_batch(space, rows)[0] is rows


@pytest.mark.parametrize(
    ("space", "value", "dtype"),
    [
        (BoxSpec(-1, 1, (), "float32"), np.array([0.1]), "float32"),
        (BoxSpec(0, 255, (), "uint8"), np.array([255], dtype=np.int64), "uint8"),
        (BoxSpec(0, 9, (), "float64"), np.array([3], dtype=np.int32), "float64"),
        (DiscreteSpec(3), np.array([2], dtype=np.int32), "int64"),
        (DiscreteSpec(3), [2], "int64"),
        (MultiBinarySpec((2,)), np.array([[True, False]]), "int8"),
    ],
)
def test_values_are_cast_once_to_the_declared_type(
    space: SpaceSpec, value: Any, dtype: str
) -> None:
    (array,) = flatten_batch(space, value)
    assert array.dtype == dtype
    np.testing.assert_allclose(array, value, rtol=1e-7)


def test_a_float64_beyond_float32_becomes_infinite_for_the_check_of_finite_values() -> None:
    (array,) = flatten_batch(BoxSpec(-np.inf, np.inf, (), "float32"), np.array([1e300]))
    assert np.isinf(array).all()


@pytest.mark.parametrize(
    ("space", "value", "named"),
    [
        (BoxSpec(0, 255, (), "uint8"), np.array([256]), "uint8"),
        (BoxSpec(0, 255, (), "uint8"), np.array([-1]), "uint8"),
        (BoxSpec(0, 255, (), "uint8"), np.array([1.0]), "float64"),
        (DiscreteSpec(3), np.array(["a"]), "dtype"),
        (DiscreteSpec(3), np.array([[1]]), "shape"),
        (DiscreteSpec(3), 1, "rows"),
        (BoxSpec(-1, 1, (2,), "float32"), [[1.0, 2.0], [3.0]], "array"),
        (BoxSpec(-1, 1, (2,), "float32"), np.zeros((4, 3), np.float32), "(4, 3)"),
        (TextSpec(3), ("four",), "at most 3"),
        (TextSpec(3), (7,), "at most 3"),
        (SPACE, {"pose": np.zeros((1, 2))}, "keys"),
        (SPACE, np.zeros(3), "keys"),
        (TupleSpec((DiscreteSpec(2),)), (), "1 parts"),
    ],
)
def test_a_value_that_would_change_is_refused(space: SpaceSpec, value: Any, named: str) -> None:
    with pytest.raises(ContractError) as caught:
        flatten_batch(space, value)
    assert named in caught.value.sentence


def test_a_refusal_names_the_leaf() -> None:
    wrong = {**batch(), "move": (np.array([1, 3]), np.zeros((2, 3), dtype=np.int64))}
    with pytest.raises(ContractError, match="leaf move/1"):
        flatten_batch(SPACE, wrong)


def test_leaves_with_different_rows_are_refused() -> None:
    with pytest.raises(ContractError, match="numbers of rows"):
        flatten_batch(SPACE, {**batch(), "say": ("hi",)})


def test_one_value_of_another_shape_is_refused() -> None:
    with pytest.raises(ContractError, match="shape"):
        flatten_one(DiscreteSpec(2), np.array([1]))


def test_a_text_leaf_with_no_code_point_is_refused() -> None:
    row = np.array([0x110000, 0, 0], dtype=np.uint32)
    with pytest.raises(ContractError, match="code point"):
        unflatten_one(TextSpec(3), (row,))


@pytest.mark.parametrize(
    ("space", "low", "high"),
    [
        (DiscreteSpec(3, start=-1), -1, 1),
        (MultiDiscreteSpec((2, 5)), 0, [1, 4]),
        (MultiBinarySpec((3,)), 0, 1),
        (TextSpec(3), 0, 0x10FFFF),
    ],
)
def test_choices_have_a_range(space: SpaceSpec, low: Any, high: Any) -> None:
    legal = value_ranges(leaves(space)[0])
    assert legal is not None
    assert legal[0] == low
    np.testing.assert_array_equal(legal[1], high)


def test_a_box_has_no_enforced_range() -> None:
    assert value_ranges(leaves(BoxSpec(-1, 1, (2,), "float32"))[0]) is None
