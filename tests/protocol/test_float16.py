"""Observations in half precision between two sessions: agreed on both sides, or full on both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from royale_client.session import ClientSession
from royale_client.wire.errors import ContractError, ProtocolError
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Step, decode_message, encode_message
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec
from royale_server.endpoint.session import ServerSession, StepReceived
from tests.protocol.joined import Joined
from tests.wire.builders import VECTOR, make_hello, make_step, make_welcome, rows_of

SPACE = DictSpec(
    (
        ("card", DiscreteSpec(3)),
        ("deep", BoxSpec(-1, 1, (2,), "float64")),
        ("half", BoxSpec(-1, 1, (2,), "float16")),
        ("pose", VECTOR),
    )
)
LAST = np.array([False, False, True])


def joined(*, wants: bool, agrees: bool, **changes: Any) -> Joined:
    """A conversation past its handshake."""
    features = (FLOAT16,) if wants else ()
    pair = Joined(make_hello(**{"observation_space": SPACE, "features": features, **changes}))
    pair.greet()
    pair.admit(features=(FLOAT16,) if agrees else ())
    return pair


def with_final(pair: Joined, value: float) -> dict[str, Any]:
    """A step whose last row ended; every float is ``value``."""
    space = pair.hello.observation_space
    rows, finals = (
        tuple(
            np.full_like(leaf, value) if leaf.dtype.kind == "f" else leaf
            for leaf in rows_of(space, count)
        )
        for count in (3, 1)
    )
    return pair.content(observations=rows, terminated=LAST, final_observations=finals)


def test_a_session_that_agreed_sends_half_and_one_that_did_not_sends_in_full() -> None:
    full = ["int64", "float64", "float16", "float32"]
    half = ["int64", "float16", "float16", "float16"]
    for wants, agrees, dtypes in ((True, True, half), (True, False, full), (False, False, full)):
        pair = joined(wants=wants, agrees=agrees)
        pair.turn()
        for _ in range(4):  # the last ones by their forms
            step = pair.step(**with_final(pair, 0.1)).step
            pair.answer()
            assert [leaf.dtype.name for leaf in step.observations] == dtypes
            assert step.final_observations is not None
            assert [leaf.dtype.name for leaf in step.final_observations] == dtypes
            for leaf, dtype in zip(step.observations[1:], dtypes[1:], strict=True):
                assert (leaf == np.dtype(dtype).type(0.1)).all()


def test_a_server_that_does_not_take_it_is_spoken_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    joined(wants=True, agrees=False).turn()
    assert caplog.messages == ["the server takes no float16 observations; they are sent in full"]
    caplog.clear()
    joined(wants=True, agrees=True).turn()
    joined(wants=False, agrees=False).turn()
    assert caplog.messages == []


def test_a_welcome_that_names_it_to_a_client_without_it_is_refused_on_both_sides() -> None:
    hello = make_hello()
    welcome = make_welcome(hello, features=(FLOAT16,))
    server, client = ServerSession(), ClientSession(hello)
    server.receive(client.start())
    with pytest.raises(ContractError, match=r"welcome\.features.*got 'float16' among them"):
        server.welcome(welcome)
    with pytest.raises(ContractError, match=r"welcome\.features.*got 'float16' among them"):
        client.receive(encode_message(welcome))


def test_unknown_features_mean_nothing() -> None:
    pair = Joined(make_hello(features=("float8", "snapshot")))
    pair.greet()
    pair.admit(features=("snapshot",))
    assert pair.turn().step.observations[0].dtype == np.float32


@pytest.mark.parametrize("familiar", [False, True])
@pytest.mark.parametrize("agrees", [False, True])
@pytest.mark.parametrize("leaf", [1, 2, 3])
@pytest.mark.parametrize("part", ["observations", "final_observations"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_no_other_type_than_the_agreed_one_is_taken(
    familiar: bool, agrees: bool, leaf: int, part: str, dtype: str
) -> None:
    pair = joined(wants=agrees, agrees=agrees)
    pair.turn()
    for _ in range(4 if familiar else 1):
        legal = pair.step(**with_final(pair, 0.0)).step
        pair.answer()
    arrays = list(getattr(legal, part))
    is_legal = arrays[leaf].dtype == dtype
    arrays[leaf] = arrays[leaf].astype(dtype)
    data = encode_message(replace(legal, request=legal.request + 1, **{part: tuple(arrays)}))
    if is_legal:
        (event,) = pair.server.receive(data)
        assert isinstance(event, StepReceived)
        return
    expected = "float16" if agrees or leaf == 2 else SPACE.items[leaf][1].dtype
    with pytest.raises(ProtocolError, match=rf"got {dtype} of shape .*, expected {expected} of"):
        pair.server.receive(data)


@pytest.mark.parametrize("rows", [1, 16])
def test_a_large_observation_takes_half_the_bytes_and_as_double_a_quarter(rows: int) -> None:
    sizes = {}
    for dtype in ("float32", "float64"):
        for agrees in (False, True):
            space = BoxSpec(-1, 1, (84 * 84,), dtype)
            pair = joined(wants=agrees, agrees=agrees, groups=(rows,), observation_space=space)
            pair.turn()
            sizes[dtype, agrees] = pair.step().num_bytes
    # 7056 numbers a row, of 4, 8 or 2 bytes; all else is the same but for some offsets.
    others = sizes["float32", False] - rows * 7056 * 4
    assert 0 < others < 400 + 16 * rows
    for (dtype, agrees), size in sizes.items():
        width = 2 if agrees else {"float32": 4, "float64": 8}[dtype]
        assert abs(size - rows * 7056 * width - others) <= 8


@pytest.mark.parametrize("agrees", [False, True])
def test_all_turns_but_the_first_ones_take_the_short_way(agrees: bool) -> None:
    pair = joined(wants=agrees, agrees=agrees)
    for _ in range(3):
        pair.turn()
    forms = pair.client._step_forms, pair.server._step_forms
    assert None not in forms
    assert [len(kept) for kept in forms if kept is not None] == [1, 1]
    for value in (0.25, np.nan, np.inf, 1e-8, 65504.0):
        rows = tuple(
            np.full_like(leaf, value) if leaf.dtype.kind == "f" else leaf
            for leaf in rows_of(SPACE, 3)
        )
        content = pair.content(observations=rows)
        data = pair.client.step(0, **content)
        assert pair.server._step_forms is not None
        assert pair.server._step_forms.read(data) is not None
        assert encode_message(decode_message(data, Limits())) == data
        pair.server.receive(data)
        pair.answer()
    assert [len(kept) for kept in forms if kept is not None] == [1, 1]


@pytest.mark.parametrize("familiar", [False, True])
@pytest.mark.parametrize("part", ["observations", "final observations"])
def test_a_number_too_large_is_named_nothing_is_sent_and_the_turn_can_be_corrected(
    familiar: bool, part: str
) -> None:
    pair = joined(wants=True, agrees=True)
    pair.turn()
    for _ in range(4 if familiar else 0):
        pair.step(**with_final(pair, 0.5))
        pair.answer()
    content = with_final(pair, 0.5)
    key = part.replace(" ", "_")
    content[key][3][-1, 2] = 65520.0
    row = 2 if part == "observations" else 0
    for _ in range(2):
        with pytest.raises(
            ContractError,
            match=rf"^{part}, leaf pose, row {row}, element \[2\]: .* float16; got 65520\.0, "
            r"expected at most 65504 in size; .*--float16-observations$",
        ):
            pair.client.step(0, **content)
        assert pair.client.outstanding(0) is None
    content[key][3][-1, 2] = 65519.0
    assert pair.step(**content).asking == 3


@pytest.mark.parametrize("agrees", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_travels_as_it_is(agrees: bool, value: float) -> None:
    pair = joined(wants=agrees, agrees=agrees)
    pair.turn()
    for _ in range(4):
        step = pair.step(**with_final(pair, value)).step
        pair.answer()
        for leaf in (*step.observations[1:], *(step.final_observations or ())[1:]):
            np.testing.assert_array_equal(leaf, np.full_like(leaf, value))


def test_a_number_that_is_rounded_beyond_its_bound_is_taken() -> None:
    value = np.float32(0.3)  # the nearest float16 is 0.300048828125
    space = BoxSpec(0.0, value, (1,), "float32")
    pair = joined(wants=True, agrees=True, observation_space=space)
    for _ in range(4):
        rows = (np.full((3, 1), value, np.float32),)
        (sent,) = pair.step(observations=rows).step.observations
        pair.answer()
        assert (sent > value).all()


def test_a_caller_that_narrows_by_itself_is_told_what_the_hello_declared() -> None:
    pair = joined(wants=True, agrees=True, observation_space=VECTOR)
    with pytest.raises(ContractError, match="got float16, expected float32"):
        pair.client.step(0, observations=(np.zeros((3, 4), np.float16),))


def test_wrong_shapes_and_counts_are_refused_as_ever() -> None:
    pair = joined(wants=True, agrees=True, observation_space=VECTOR)
    with pytest.raises(ContractError, match="got 2 leaves, expected 1 leaves"):
        pair.client.step(0, observations=rows_of(VECTOR, 3) * 2)
    for shape in ((3, 5), (2, 4), (3,), ()):
        with pytest.raises(ContractError, match="step 1 of group 0, "):
            pair.client.step(0, observations=(np.zeros(shape, np.float32),))


def test_a_client_may_choose_otherwise_in_its_next_session() -> None:
    for agrees in (False, True, False):
        step = joined(wants=agrees, agrees=agrees, observation_space=VECTOR).turn().step
        assert step.observations[0].dtype == (np.float16 if agrees else np.float32)


def test_steps_before_a_welcome_are_refused_whatever_the_hello_wants() -> None:
    hello = make_hello(features=(FLOAT16,))
    server, client = ServerSession(), ClientSession(hello)
    with pytest.raises(ProtocolError, match="not allowed now"):
        client.step(0, observations=rows_of(VECTOR, 3))
    server.receive(client.start())
    step: Step = make_step(hello)
    with pytest.raises(ProtocolError, match="not allowed now"):
        server.receive(encode_message(step))
