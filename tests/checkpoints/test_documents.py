"""Documents come back from JSON with the same values and the same types."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.documents import DocumentError, decode, encode

KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
DOCUMENTS = st.recursive(
    KEYS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS | st.tuples(KEYS), inner)
    ),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    """Equal in value and in every type inside; 1, 1.0 and True are three values here."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right and (left != 0 or str(left) == str(right))


@given(DOCUMENTS)
def test_a_document_comes_back_with_the_same_types(document):
    assert same(decode(encode(document)), document)


@given(DOCUMENTS)
def test_the_text_is_strict_json_for_any_reader(document):
    def refuse(name):
        raise AssertionError(name)

    json.loads(encode(document), parse_constant=refuse)


def test_integers_beyond_the_range_of_a_double_are_exact():
    assert decode(encode({"step": 2**53 + 1, "pcg64": 2**127 + 3})) == {
        "step": 9007199254740993,
        "pcg64": 2**127 + 3,
    }


def test_non_finite_numbers_are_written_as_text_and_come_back_as_numbers():
    text = encode({"best": -math.inf, "limit": math.inf, "gap": math.nan})
    assert b"NaN" not in text
    assert b"Infinity" not in text
    document = decode(text)
    assert document["best"] == -math.inf
    assert document["limit"] == math.inf
    assert math.isnan(document["gap"])


def test_a_key_that_looks_like_a_tag_is_only_a_key():
    document = {"$tuple": [1, 2], "$float": "nan", 3: {"$map": []}}
    assert same(decode(encode(document)), document)


def test_numpy_scalars_count_as_the_number_they_hold():
    assert decode(encode([np.int64(3), np.float32(0.5), np.bool_(True)])) == [3, 0.5, True]


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", np.zeros(2), object(), 1j, range(3)])
def test_what_has_no_json_form_is_refused_with_its_place(value):
    with pytest.raises(DocumentError, match=r"document\.a\[1\]: a \w+ has no JSON form"):
        encode({"a": [0, value]})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[NaN]",
        b"[Infinity]",
        b'{"a": 1, "a": 2}',
        b"\xff",
        b'{"$float": "1e9"}',
        b'{"$pickle": "gASV"}',
        b'{"$tuple": 3}',
        b'{"$map": [[1]]}',
        b'{"$map": [[[1], 2]]}',
        b'{"$tuple": [], "b": 1}',
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_anything_but_a_strict_document_is_refused(data):
    with pytest.raises(DocumentError):
        decode(data)
