"""Spaces: descriptions, leaves, their form as data, and their differences (case H30)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.wire.codec import decode, encode
from royale_client.wire.dtypes import DTYPES
from royale_client.wire.errors import ConfigError, MessageDecodeError
from royale_client.wire.limits import Limits
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    differences,
    from_data,
    leaves,
    mask_size,
    to_data,
)

CAMERA = BoxSpec(0, 255, (2, 2, 3), "uint8")
UNEVEN = BoxSpec([-1.0, -2.0, -np.inf], [1.0, 2.0, np.inf], (3,), "float32")
ROBOT = DictSpec(
    (
        ("speed", BoxSpec(-np.inf, np.inf, (), "float64")),
        ("camera", DictSpec((("right", CAMERA), ("left", CAMERA)))),
        ("mode", TupleSpec((DiscreteSpec(3, start=-1), MultiBinarySpec((4,))))),
        ("goal", TextSpec(8, "ba")),
        ("arms", MultiDiscreteSpec((2, 3))),
        ("torque", UNEVEN),
    )
)


def test_leaves_come_depth_first_with_keys_sorted() -> None:
    assert [(leaf.path, leaf.shape, leaf.dtype.name) for leaf in leaves(ROBOT)] == [
        ("arms", (2,), "int64"),
        ("camera/left", (2, 2, 3), "uint8"),
        ("camera/right", (2, 2, 3), "uint8"),
        ("goal", (8,), "uint32"),
        ("mode/0", (), "int64"),
        ("mode/1", (4,), "int8"),
        ("speed", (), "float64"),
        ("torque", (3,), "float32"),
    ]


def test_a_bare_space_is_one_leaf_without_a_path() -> None:
    (leaf,) = leaves(CAMERA)
    assert (leaf.path, leaf.row_bytes, leaf.spec) == ("", 12, CAMERA)


def test_keys_with_slashes_give_distinct_paths() -> None:
    space = DictSpec((("a/b", CAMERA), ("a", DictSpec((("b", CAMERA),))), ("~1", CAMERA)))
    assert [leaf.path for leaf in leaves(space)] == ["a/b", "a~1b", "~01"]


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (DiscreteSpec(5, start=2), 5),
        (MultiDiscreteSpec((2, 3, 4)), 9),
        (UNEVEN, None),
        (MultiBinarySpec((3,)), None),
        (TupleSpec((DiscreteSpec(2),)), None),
    ],
)
def test_mask_size_counts_the_choices(space: SpaceSpec, size: int | None) -> None:
    assert mask_size(space) == size


def test_uniform_bounds_cost_one_element() -> None:
    full = np.zeros((480, 640, 3), dtype=np.uint8)
    space = BoxSpec(full, full + 255, (480, 640, 3), "uint8")
    assert not any(space.low.strides)
    assert space == BoxSpec(0, 255, (480, 640, 3), "uint8")
    assert to_data(space)["high"] == 255


def test_bounds_are_read_only_and_not_the_callers_memory() -> None:
    low = np.array([-1.0, -2.0], dtype=np.float32)
    space = BoxSpec(low, 3.0, (2,), "float32")
    low[0] = 9.0
    assert space.low.tolist() == [-1.0, -2.0]
    assert not space.low.flags.writeable
    assert not space.high.flags.writeable


def test_bounds_that_differ_make_unequal_boxes() -> None:
    assert BoxSpec(-1, 1, (3,), "float32") != BoxSpec(-1, 2, (3,), "float32")
    assert BoxSpec(-1, 1, (3,), "float32") != UNEVEN
    assert BoxSpec([[1], [2]], 3, (2, 2), "int8") == BoxSpec([[1, 1], [2, 2]], 3, (2, 2), "int8")


BAD_SPACES: dict[str, Any] = {
    "object Box": lambda: BoxSpec(0, 1, (2,), "O"),
    "complex Box": lambda: BoxSpec(0, 1, (2,), "complex64"),
    "unknown dtype": lambda: BoxSpec(0, 1, (2,), "float23"),
    "low above high": lambda: BoxSpec(1, 0, (2,), "float32"),
    "NaN bound": lambda: BoxSpec(np.nan, 1, (2,), "float32"),
    "bound beyond the type": lambda: BoxSpec(0, 1e300, (2,), "float32"),
    "negative bound of unsigned": lambda: BoxSpec(-1, 1, (2,), "uint8"),
    "fractional bound of integers": lambda: BoxSpec(0, 1.5, (2,), "int32"),
    "bounds of another shape": lambda: BoxSpec([0, 0, 0], 1, (2,), "float32"),
    "text bound": lambda: BoxSpec("0", 1, (2,), "float32"),
    "negative side": lambda: BoxSpec(0, 1, (-1,), "float32"),
    "seven dimensions": lambda: BoxSpec(0, 1, (1,) * 7, "float32"),
    "huge shape": lambda: BoxSpec(0, 1, (2**31, 2**31), "float32"),
    "fractional shape": lambda: BoxSpec(0, 1, (1.5,), "float32"),  # type: ignore[arg-type]
    "no choice": lambda: DiscreteSpec(0),
    "too many choices": lambda: DiscreteSpec(2**31 + 1),
    "boolean count": lambda: DiscreteSpec(True),
    "huge start": lambda: DiscreteSpec(2, start=2**63),
    "empty nvec": lambda: MultiDiscreteSpec(()),
    "zero in nvec": lambda: MultiDiscreteSpec((2, 0)),
    "long nvec": lambda: MultiDiscreteSpec((2,) * 5000),
    "text of no length": lambda: TextSpec(0),
    "charset that is no text": lambda: TextSpec(3, 5),  # type: ignore[arg-type]
    "empty Dict": lambda: DictSpec(()),
    "empty Tuple": lambda: TupleSpec(()),
    "repeated key": lambda: DictSpec((("a", CAMERA), ("a", CAMERA))),
    "numeric key": lambda: DictSpec(((1, CAMERA),)),  # type: ignore[arg-type]
    "unprintable key": lambda: DictSpec((("a\n", CAMERA),)),
    "257 leaves": lambda: TupleSpec((CAMERA,) * 257),
}


@pytest.mark.parametrize("name", BAD_SPACES)
def test_a_space_that_cannot_exist_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        BAD_SPACES[name]()


def nest(levels: int) -> SpaceSpec:
    space: SpaceSpec = CAMERA
    for _ in range(levels):
        space = TupleSpec((space,))
    return space


def test_sixteen_levels_are_allowed_and_seventeen_are_not() -> None:
    deepest = nest(16)
    header, arrays = decode(encode({"s": to_data(deepest)}, {}), Limits())
    assert from_data(header["s"], arrays) == deepest
    with pytest.raises(ConfigError, match="17 deep"):
        nest(17)


def test_a_deep_nest_as_data_is_refused_before_it_is_followed() -> None:
    data: dict[str, Any] = {"kind": "discrete", "n": 2}
    for _ in range(50_000):
        data = {"kind": "tuple", "items": [data]}
    with pytest.raises(MessageDecodeError, match="too deep"):
        from_data(data)


def test_a_flood_of_leaves_as_data_is_refused_before_they_are_read() -> None:
    leaf = {"kind": "discrete", "n": 0}  # reading one would be refused for its n
    flood = {"kind": "tuple", "items": [{"kind": "tuple", "items": [leaf] * 130}] * 2}
    with pytest.raises(MessageDecodeError, match="too many leaves"):
        from_data(flood)


def test_data_without_arrays_is_strict_json_and_reads_back() -> None:
    text = json.dumps(to_data(ROBOT), allow_nan=False)
    assert from_data(json.loads(text)) == ROBOT


def test_uneven_bounds_travel_as_arrays_and_read_back() -> None:
    arrays: dict[str, np.ndarray] = {}
    data = to_data(ROBOT, arrays)
    assert data["items"]["torque"]["low"] == {"array": "b0"}
    assert arrays["b1"].tolist() == [1.0, 2.0, np.inf]
    header, got = decode(encode({"s": data}, arrays), Limits())
    assert from_data(header["s"], got) == ROBOT


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, "(root)"),
        ([], "a map with a kind"),
        ({"kind": "graph"}, "graph"),
        ({"kind": ["box"]}, "box"),
        ({"kind": "discrete"}, "Discrete n"),
        ({"kind": "discrete", "n": "2"}, "Discrete n"),
        ({"kind": "discrete", "n": 2.0}, "Discrete n"),
        ({"kind": "multi_discrete", "nvec": [2, True]}, "nvec"),
        ({"kind": "multi_binary", "shape": 3}, "shape"),
        ({"kind": "multi_binary", "shape": [2**31, 2**31]}, "shape"),
        ({"kind": "text", "max_length": 2**40}, "max_length"),
        ({"kind": "tuple", "items": {}}, "items"),
        ({"kind": "dict", "items": []}, "items"),
        ({"kind": "dict", "items": {"cam": {"kind": "discrete", "n": 0}}}, "space cam"),
        ({"kind": "box", "dtype": "O", "shape": [1], "low": 0, "high": 1}, "dtype"),
        ({"kind": "box", "dtype": "f4", "shape": [1], "low": None, "high": 1}, "bound"),
        ({"kind": "box", "dtype": "f4", "shape": [2], "low": [0], "high": 1}, "1 numbers"),
        ({"kind": "box", "dtype": "f4", "shape": [1], "low": ["x"], "high": 1}, "bound"),
        ({"kind": "box", "dtype": "f4", "shape": [1], "low": {"array": "b9"}, "high": 1}, "b9"),
        ({"kind": "box", "dtype": "i8", "shape": [1], "low": [-(2**70)], "high": 1}, "low"),
        ({"kind": "box", "dtype": "f4", "shape": [2**40], "low": 0, "high": 1}, "shape"),
        ({"kind": "box", "dtype": "u1", "shape": [1], "low": 0, "high": "inf"}, "high"),
    ],
)
def test_nonsense_is_refused_with_the_place_named(data: Any, named: str) -> None:
    with pytest.raises(MessageDecodeError) as caught:
        from_data(data)
    assert named in caught.value.sentence


def vector(**changes: Any) -> BoxSpec:
    facts: dict[str, Any] = {"low": -1.0, "high": 1.0, "shape": (4,), "dtype": "float32"}
    return BoxSpec(**{**facts, **changes})


ONE_ULP = float(np.nextafter(np.float32(1), np.float32(2)))


@pytest.mark.parametrize(
    ("expected", "got", "lines"),
    [
        (vector(), vector(shape=(3,)), ["(root): shape is (3,), expected (4,)"]),
        (vector(), vector(dtype="float64"), ["(root): dtype is 'float64', expected 'float32'"]),
        (DiscreteSpec(2), DiscreteSpec(3), ["(root): n is 3, expected 2"]),
        (vector(), vector(high=2.0), ["(root): high is 2.0, expected 1.0"]),
        (
            DictSpec((("a", vector()),)),
            DictSpec((("a", vector()), ("b", DiscreteSpec(2)))),
            ["b: not expected, is Discrete"],
        ),
        (DiscreteSpec(2), DiscreteSpec(2, start=1), ["(root): start is 1, expected 0"]),
        (vector(), vector(high=ONE_ULP), []),
    ],
    ids=["shape", "float64", "one more action", "bounds", "extra key", "start", "one ulp"],
)
def test_a_difference_names_leaf_field_and_both_values(
    expected: SpaceSpec, got: SpaceSpec, lines: list[str]
) -> None:
    assert differences(expected, got) == lines


def test_differences_inside_a_nest_name_the_path() -> None:
    other = DictSpec(
        tuple(
            (key, TupleSpec((DiscreteSpec(4, -1), MultiBinarySpec((4,)))) if key == "mode" else s)
            for key, s in ROBOT.items
            if key != "goal"
        )
    )
    assert differences(ROBOT, other) == [
        "goal: missing, expected Text",
        "mode/0: n is 4, expected 3",
    ]
    assert differences(ROBOT, ROBOT) == []


def test_another_kind_is_one_difference() -> None:
    assert differences(vector(), DiscreteSpec(2)) == ["(root): kind is 'Discrete', expected 'Box'"]


def test_a_bound_that_differs_at_some_elements_names_the_first() -> None:
    high = [1.0, 1.0, 5.0, 6.0]
    assert differences(vector(), vector(high=high)) == [
        "(root): high[2] is 5.0, expected 1.0 (and 1 more)"
    ]
    assert differences(vector(high=high), vector(high=high)) == []


@pytest.mark.parametrize("value", [1e-30, 0.1, 1.0, 2.0, 3.4e38])
def test_float_bounds_one_float32_step_apart_are_equal_at_any_size(value: float) -> None:
    below = float(np.nextafter(np.float32(value), np.float32(0)))
    assert differences(vector(high=value), vector(high=below)) == []
    assert differences(vector(low=-value), vector(low=-value)) == []


def test_infinite_and_finite_bounds_differ_and_integer_bounds_are_exact() -> None:
    assert differences(vector(high=np.inf), vector(high=3.4e38))
    assert not differences(vector(high=np.inf), vector(high=np.inf))
    big = 2**60
    assert differences(BoxSpec(0, big, (2,), "int64"), BoxSpec(0, big + 1, (2,), "int64")) == [
        f"(root): high is {big + 1}, expected {big}"
    ]


def test_other_specs_name_their_fields() -> None:
    assert differences(MultiDiscreteSpec((2, 3)), MultiDiscreteSpec((2, 4))) == [
        "(root): nvec is (2, 4), expected (2, 3)"
    ]
    assert differences(TextSpec(3, "ab"), TextSpec(4, "ba")) == [
        "(root): max_length is 4, expected 3"
    ]
    assert differences(MultiBinarySpec((2,)), MultiBinarySpec((3,))) == [
        "(root): shape is (3,), expected (2,)"
    ]


def boxes() -> st.SearchStrategy[SpaceSpec]:
    def make(dtype: Any, shape: tuple[int, ...], low: int, width: int) -> SpaceSpec:
        return BoxSpec(low, low + width, shape, dtype)

    return st.builds(
        make,
        st.sampled_from([dtype for code, dtype in DTYPES.items() if code != "?"]),
        st.lists(st.integers(0, 3), max_size=4).map(tuple),
        st.integers(0, 60),
        st.integers(0, 60),
    )


flat_spaces = (
    boxes()
    | st.builds(DiscreteSpec, st.integers(1, 2**31), st.integers(-5, 5))
    | st.builds(MultiDiscreteSpec, st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    | st.builds(MultiBinarySpec, st.lists(st.integers(0, 3), max_size=2).map(tuple))
    | st.builds(TextSpec, st.integers(1, 9), st.none() | st.text(max_size=4))
)
keys = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=5)
any_space = st.recursive(
    flat_spaces,
    lambda inner: (
        st.builds(TupleSpec, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(
            DictSpec,
            st.dictionaries(keys, inner, min_size=1, max_size=3).map(lambda d: tuple(d.items())),
        )
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(any_space)
def test_any_space_survives_the_wire_and_json(space: SpaceSpec) -> None:
    arrays: dict[str, np.ndarray] = {}
    header, got = decode(encode({"s": to_data(space, arrays)}, arrays), Limits())
    assert from_data(header["s"], got) == space
    assert from_data(json.loads(json.dumps(to_data(space), allow_nan=False))) == space
    assert differences(space, from_data(header["s"], got)) == []
