"""Values, shapes and types survive the codec exactly, or are refused at the sender (case H23)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from royale_client.wire.codec import decode, encode
from royale_client.wire.dtypes import CODES, DTYPES
from royale_client.wire.errors import ContractError
from royale_client.wire.limits import Limits

LIMITS = Limits()


def round_trip(array: np.ndarray) -> np.ndarray:
    return decode(encode({"t": "x"}, {"a0": array}), LIMITS)[1]["a0"]


ARRAYS = {
    "big-endian float": np.array([1.0, -2.5], dtype=">f4"),
    "big-endian integer": np.array([1], dtype=">i4"),
    "Fortran order": np.asfortranarray([[1, 2], [3, 4]]),
    "every second element": np.arange(6)[::2],
    "reversed": np.arange(4)[::-1],
    "broadcast": np.broadcast_to(np.array([1.5, 2.5]), (3, 2)),
    "transposed": np.arange(6, dtype=np.uint8).reshape(2, 3).T,
    "zero dimensions": np.array(2.5),
    "zero dimensions, big-endian": np.array(2.5, dtype=">f8"),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "empty in the middle": np.zeros((2, 0, 3), dtype=np.int16),
    "eight dimensions": np.ones((1, 2, 1, 2, 1, 2, 1, 2), dtype=np.int8),
    "extreme integers": np.array([0, 2**64 - 1], dtype=np.uint64),
    "subnormal": np.array([5e-324, -5e-324]),
    "infinite": np.array([np.inf, -np.inf], dtype=np.float16),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_values_shape_and_type_survive(name: str) -> None:
    sent = ARRAYS[name]
    got = round_trip(sent)
    assert got.shape == sent.shape
    assert got.dtype == sent.dtype.newbyteorder("<")
    np.testing.assert_array_equal(got, sent)


@pytest.mark.parametrize("code", DTYPES)
def test_every_type_of_the_table_survives(code: str) -> None:
    sent = np.array([0, 1, 1], dtype=DTYPES[code])
    got = round_trip(sent)
    assert CODES[got.dtype] == code
    np.testing.assert_array_equal(got, sent)


def test_the_sign_of_zero_and_the_bits_of_nan_survive() -> None:
    bits = np.array([0x80000000, 0x7FC00001, 0xFFA00000], dtype=np.uint32)
    np.testing.assert_array_equal(round_trip(bits.view(np.float32)).view(np.uint32), bits)


@pytest.mark.parametrize(
    "refused",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.zeros(2, dtype=[("x", "f4"), ("y", "i2")]),
        np.array(["2026-11-30"], dtype="datetime64[D]"),
        np.zeros(1, dtype=np.complex64),
        np.zeros(1, dtype=np.longdouble),
        np.zeros((1,) * 9),
    ],
    ids=["object", "text", "bytes", "structured", "time", "complex", "long double", "9 dims"],
)
def test_other_types_are_refused_by_name_at_the_sender(refused: np.ndarray) -> None:
    with pytest.raises(ContractError, match="camera") as caught:
        encode({}, {"camera": refused})
    assert str(refused.dtype) in caught.value.sentence


@pytest.mark.parametrize("value", [{1, 2}, 2**64, "\ud800", np.float32(1), object()])
def test_header_values_that_msgpack_cannot_write_are_refused_at_the_sender(value: object) -> None:
    with pytest.raises(ContractError, match="header of 'log'"):
        encode({"t": "log", "value": value}, {})


def test_a_deep_header_is_refused_at_the_sender() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ContractError):
        encode({"t": "log", "deep": deep}, {})


def test_decoded_arrays_are_read_only_views_of_the_message() -> None:
    data = encode({}, {"a0": np.arange(1000), "a1": np.arange(3, dtype=np.uint8)})
    message = np.frombuffer(data, dtype=np.uint8)
    for array in decode(data, LIMITS)[1].values():
        assert np.shares_memory(array, message)
        assert not array.flags.writeable


def test_arrays_over_a_writable_buffer_are_read_only_too() -> None:
    data = bytearray(encode({}, {"a0": np.arange(3)}))
    assert not decode(data, LIMITS)[1]["a0"].flags.writeable
    assert not decode(memoryview(data), LIMITS)[1]["a0"].flags.writeable


def test_the_callers_header_is_not_changed() -> None:
    header = {"t": "x"}
    encode(header, {"a0": np.zeros(1)})
    assert header == {"t": "x"}


def test_messages_above_one_mebibyte_survive() -> None:
    # Case H20: two 640 x 480 colour cameras are 2 * 921,600 bytes.
    cameras = np.arange(2 * 921_600, dtype=np.uint32).astype(np.uint8).reshape(2, 480, 640, 3)
    np.testing.assert_array_equal(round_trip(cameras), cameras)


def test_float64_rewards_keep_their_digits() -> None:
    # Case H24: in float32 the sum would be 0.
    assert round_trip(np.array([1e8, 1.0, -1e8])).sum() == 1.0


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
)
headers = st.dictionaries(
    st.text(max_size=8).filter(lambda key: key != "a"),
    st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=5,
)
arrays = st.dictionaries(
    st.text(max_size=6),
    npst.arrays(
        dtype=st.sampled_from(list(DTYPES.values())),
        shape=npst.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=3),
    ),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(header=headers, given_arrays=arrays)
def test_any_header_with_any_arrays_survives(
    header: dict[str, object], given_arrays: dict[str, np.ndarray]
) -> None:
    got_header, got_arrays = decode(encode(header, given_arrays), LIMITS)
    assert got_header == header
    assert list(got_arrays) == list(given_arrays)
    for name, array in given_arrays.items():
        assert got_arrays[name].dtype == array.dtype
        assert got_arrays[name].shape == array.shape
        assert got_arrays[name].tobytes() == array.tobytes()
