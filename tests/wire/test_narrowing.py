"""Floats become float16 within half a unit of the last place, or are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_client.wire.errors import ContractError
from royale_client.wire.narrowing import Narrowing, has_wider_floats, leaves_as_sent
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    leaves,
)
from tests.wire.builders import rows_of

WIDE = ("float32", "float64")
OTHERS: dict[str, SpaceSpec] = {
    "half": BoxSpec(0, 1, (2,), "float16"),
    "image": BoxSpec(0, 255, (2, 2), "uint8"),
    "choice": DiscreteSpec(3),
    "bits": MultiBinarySpec((2,)),
    "plan": MultiDiscreteSpec((2, 3)),
    "word": TextSpec(4),
}
MIXED = DictSpec(
    (
        *OTHERS.items(),
        ("single", BoxSpec(-1, 1, (3,), "float32")),
        ("double", BoxSpec(-1, 1, (), "float64")),
    )
)


def box(dtype: str, shape: tuple[int, ...] = (1,)) -> BoxSpec:
    return BoxSpec(-np.inf, np.inf, shape, dtype)


def narrowed(values: Any, dtype: str = "float32") -> np.ndarray:
    array = np.asarray(values, dtype).reshape(-1, 1)
    (half,) = Narrowing(box(dtype)).narrow((array,), "observations")
    assert half.dtype == np.float16
    assert half.shape == array.shape
    return half[:, 0]


@pytest.mark.parametrize("dtype", WIDE)
@given(values=st.lists(st.floats(-65519, 65519, width=32), min_size=1, max_size=40))
def test_a_number_is_off_by_half_a_unit_of_its_last_place_at_most(
    dtype: str, values: list[float]
) -> None:
    exact = np.asarray(values, dtype).astype(np.float64)
    off = np.abs(narrowed(values, dtype).astype(np.float64) - exact)
    # 11 significant bits; below 2**-14 the places are 2**-24 apart.
    assert (off <= np.maximum(2.0**-11 * np.abs(exact), 2.0**-25)).all()


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (0.1, 0.0999755859375),  # 1638 / 2**14 is nearer than 1639 / 2**14
        (2049.0, 2048.0),  # ties to even
        (2051.0, 2052.0),
        (65504.0, 65504.0),
        (65519.0, 65504.0),  # the next number would be 65536
        (-65519.0, -65504.0),
        (1e-9, 0.0),
        (np.inf, np.inf),
        (-np.inf, -np.inf),
    ],
)
def test_what_is_sent_of_a_number(dtype: str, given: float, sent: float) -> None:
    assert narrowed([given, 1.0], dtype).tolist() == [sent, 1.0]


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", [0x7F800000, 0x7FC00000, 0xFFFFFFFF]), ("float64", [2047 << 52])],
)
def test_nan_stays_nan_whatever_it_carries(dtype: str, bits: list[int]) -> None:
    unsigned = {"float32": np.uint32, "float64": np.uint64}[dtype]
    values = np.array(bits, unsigned) | unsigned(1)
    assert np.isnan(narrowed(values.view(dtype), dtype)).all()


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("value", [65520.0, -65520.0, 1e6, 3e38, -3e38])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_finite_number_that_would_become_infinite_is_named(
    dtype: str, value: float, rows: int
) -> None:
    values = np.zeros((rows, 2, 3), dtype)
    values[0, 0, 0] = np.inf  # the environment's own: no fault
    values[-1, 1, 2] = value
    number = str(values[-1, 1, 2])
    with pytest.raises(ContractError) as error:
        Narrowing(box(dtype, (2, 3))).narrow((values,), "observations")
    assert error.value.sentence == (
        f"observations, leaf (root), row {rows - 1}, element [1, 2]: a number is too large for "
        f"float16; got {number}, expected at most 65504 in size; let the environment scale its "
        "observations, or leave out --float16-observations"
    )


def test_the_leaf_is_named_and_a_single_number_has_no_element() -> None:
    arrays = list(rows_of(MIXED, 2))
    place = [leaf.path for leaf in leaves(MIXED)].index("double")
    arrays[place] = np.array([0.0, -7e4])
    with pytest.raises(ContractError, match=r"final observations, leaf double, row 1\b(?!, elem)"):
        Narrowing(MIXED).narrow(arrays, "final observations")


def test_only_floats_of_a_box_that_are_wider_are_touched() -> None:
    arrays = rows_of(MIXED, 3)
    sent = Narrowing(MIXED).narrow(arrays, "observations")
    expected = leaves_as_sent(MIXED, float16=True)
    for leaf, before, after, as_sent in zip(leaves(MIXED), arrays, sent, expected, strict=True):
        assert after.dtype == as_sent.dtype
        assert after.shape == (3, *as_sent.shape)
        if leaf.path in ("single", "double"):
            assert after.dtype == np.float16
        else:
            assert after is before


def test_without_the_feature_leaves_travel_as_the_space_says() -> None:
    assert leaves_as_sent(MIXED, float16=False) == leaves(MIXED)


@pytest.mark.parametrize("name", OTHERS)
def test_spaces_without_wider_floats_are_known(name: str) -> None:
    assert not has_wider_floats(OTHERS[name])
    assert has_wider_floats(MIXED)


@pytest.mark.parametrize("dtype", WIDE)
def test_whatever_the_order_in_memory_what_is_sent_lies_in_order(dtype: str) -> None:
    columns = np.asfortranarray(np.arange(12, dtype=dtype).reshape(4, 3))
    for array in (columns, columns[::2], columns[:, ::-1]):
        spec = box(dtype, array.shape[1:])
        (half,) = Narrowing(spec).narrow((array,), "observations")
        assert half.flags.c_contiguous
        assert half.tolist() == array.tolist()
        assert not np.shares_memory(half, array)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_an_array_of_another_type_than_its_leaf_is_refused_by_name(dtype: str) -> None:
    array = np.zeros((2, 1), dtype)
    with pytest.raises(ContractError, match=rf"got {dtype}, expected float32"):
        Narrowing(box("float32")).narrow((array,), "observations")


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_leaves_is_left_to_the_contract(count: int) -> None:
    arrays = (np.zeros((2, 1), np.float32),) * count
    assert Narrowing(box("float32")).narrow(arrays, "observations") == arrays
