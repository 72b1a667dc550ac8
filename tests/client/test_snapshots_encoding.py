"""Plain data to bytes and back: what went in comes out, and nothing else is let in."""

from __future__ import annotations

import random
from collections import deque
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.driver import SnapshotError
from royale_client.snapshots.encoding import obstacle, pack, unpack

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_plain_data_comes_back_with_its_types(value):
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**128 - 1, -(2**200)])
def test_integers_of_any_size_come_back(number):
    assert unpack(pack(number)) == number


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, -0.0, np.inf], np.float32),
        np.zeros((0, 3), np.bool_),
        np.array(7, np.int8),
        np.arange(12, dtype=np.uint64).reshape(3, 4)[::2, 1:],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=["not numbers", "empty", "no dimension", "every other row", "by columns"],
)
def test_arrays_come_back_bit_for_bit(array):
    back = unpack(pack({"array": array}))["array"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable
    assert back.flags.f_contiguous == (array.flags.f_contiguous or array.size == 0)


def test_numpy_scalars_keep_their_type():
    back = unpack(pack([np.float32(1.5), np.float64(2.5), np.bool_(True)]))
    assert [type(value) for value in back] == [np.float32, np.float64, np.bool_]
    assert back == [1.5, 2.5, True]


def test_one_array_in_two_places_is_one_array_again():
    array = np.zeros(3)
    first, second = unpack(pack([array, array]))
    assert first is second


def test_deques_keep_their_bound():
    back = unpack(pack(deque([1, 2, 3], maxlen=5)))
    assert (list(back), back.maxlen) == ([1, 2, 3], 5)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_generators_go_on_where_they_were_and_so_do_their_children(kind):
    generator = np.random.Generator(getattr(np.random, kind)(5))
    # Half of a 64-bit draw stays behind in the generator.
    generator.integers(9, size=3, dtype=np.int32)
    generator.spawn(1)
    back = unpack(pack(generator))
    assert generator.integers(2**31, size=9, dtype=np.int32).tolist() == (
        back.integers(2**31, size=9, dtype=np.int32).tolist()
    )
    assert generator.spawn(1)[0].random() == back.spawn(1)[0].random()


def test_older_generators_go_on_where_they_were():
    legacy, plain = np.random.RandomState(3), random.Random(3)
    # A second normal number is drawn with the first and kept.
    legacy.normal(), plain.gauss(0, 1)
    legacy_back, plain_back = unpack(pack((legacy, plain)))
    assert legacy.normal(size=3).tolist() == legacy_back.normal(size=3).tolist()
    assert [plain.gauss(0, 1) for _ in range(3)] == [plain_back.gauss(0, 1) for _ in range(3)]


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": [1, {"b": {2}}]}, "a / entry 1 / b is a set"),
        (object(), "the value is a object"),
        ([Colour.RED], "entry 0 is a "),
        (np.array(["x"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.array([1j]), "dtype complex128"),
        (np.ma.masked_array([1.0], [True]), "MaskedArray"),
    ],
    ids=["set", "object", "enum", "texts", "objects", "complex", "masked"],
)
def test_anything_else_is_refused_by_its_place_and_type(value, sentence):
    with pytest.raises(SnapshotError, match=sentence):
        pack(value)
    assert sentence in (obstacle(value) or "")


def test_what_contains_itself_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(SnapshotError, match="levels deep"):
        pack(loop)


def test_texts_that_are_no_unicode_are_refused():
    with pytest.raises(SnapshotError, match="cannot be written"):
        pack("\ud800")
