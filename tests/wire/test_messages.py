"""Every message survives its bytes, and bytes of a wrong one name the field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.wire.codec import decode, encode
from royale_client.wire.errors import ContractError, MessageDecodeError, ProtocolError
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    MESSAGE_TYPES,
    Action,
    Busy,
    EpisodeMetric,
    Fault,
    Goodbye,
    Hello,
    Log,
    Message,
    Probe,
    Probed,
    Restore,
    Restored,
    Snapshot,
    Snapshotted,
    Step,
    Stop,
    Welcome,
    decode_message,
    encode_message,
)
from royale_client.wire.probes import ProbeAnswer
from royale_client.wire.snapshots import as_states
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec
from tests.wire.builders import make_hello, make_step, make_welcome

LIMITS = Limits()
STATES = (np.array([7], dtype=np.uint8), np.arange(200, dtype=np.uint8))

RICH_HELLO = make_hello(
    resume_token="s-0",
    role="eval",
    env_digest="abc",
    observation_space=DictSpec(
        (("a", BoxSpec([0.0, 1.0], 2.0, (2,), "float32")), ("b", DiscreteSpec(3)))
    ),
    groups=(2, 4),
    environments=np.array([0, 0, 1, 1, 2, 2]),
    seats=np.array([0, 1, 0, 1, 0, 1]),
    masks=True,
    episode_metrics=(EpisodeMetric("won", "1", "battles", "mean"),),
    features=("snapshot",),
    host="box-3",
    pid=4242,
    versions={"numpy": "2.4.6"},
)

RICH_STEP = make_step(
    make_hello(masks=True, action_space=DiscreteSpec(11)),
    request=7,
    asks=np.array([True, False, True]),
    observations=(np.arange(8, dtype=np.float32).reshape(2, 4),),
    masks=np.array([[True] * 10 + [False], [False] * 10 + [True]]),
    terminated=np.array([True, False, False]),
    truncated=np.array([True, False, True]),
    final_observations=(np.ones((2, 4), dtype=np.float32),),
    episodes=({"row": 0, "return": 1.5, "length": 3, "time_s": 0.1, "metrics": {"won": 1.0}},),
    env_time_s=0.25,
)

MESSAGES: dict[str, Message] = {
    "hello": make_hello(),
    "rich hello": RICH_HELLO,
    "welcome": make_welcome(make_hello()),
    "rich welcome": make_welcome(
        RICH_HELLO,
        last_requests=(3, 4),
        limits=LIMITS.to_data(),
        timeouts={"feedback_wait_s": 60.0},
        assignments=({"slot": 0, "opponent": "r-1/40"},),
        features=("snapshot",),
        restores=True,
    ),
    "first step": make_step(make_hello()),
    "later step": make_step(make_hello(), request=2),
    "rich step": RICH_STEP,
    "step in which nobody asks": make_step(
        make_hello(),
        request=2,
        asks=np.zeros(3, dtype=bool),
        observations=(np.zeros((0, 4), dtype=np.float32),),
    ),
    "action": Action(group=1, request=9, policy_version=4, actions=(np.arange(3),)),
    "action with assignments": Action(
        group=0, request=1, policy_version=0, actions=(np.arange(3),), assignments=({"slot": 2},)
    ),
    "action with a discount": Action(
        group=0, request=1, policy_version=0, actions=(np.arange(3),), discount=0.997
    ),
    "snapshot": Snapshot(number=12),
    "snapshotted": Snapshotted(number=12, states=STATES),
    "snapshotted with failure": Snapshotted(number=0, failure="the motor is running"),
    "probe": Probe(number=3, question="legality"),
    "probed": Probed(
        number=3,
        answer=ProbeAnswer(
            states=("seat 0", "seat 1"),
            masks=np.array([[True, False], [False, True]]),
            verdicts=np.array([[True, True], [False, True]]),
        ),
    ),
    "probed layout": Probed(
        number=0, answer=ProbeAnswer(columns=("slot",), layout=np.array([[-1], [0]]))
    ),
    "probed with failure": Probed(number=1, failure="the rules are gone"),
    "restore": Restore(states=STATES),
    "restore without states": Restore(),
    "restored": Restored(),
    "restored with failure": Restored(failure="another environment"),
    "busy": Busy(phase="learn", since_s=3.5, expected_s=60.0, waiting_for="the learn step"),
    "busy without end": Busy(phase="collect", since_s=0.0),
    "stop": Stop(reason="finished", message="The run is complete."),
    "goodbye": Goodbye(reason="done"),
    "goodbye with exception": Goodbye(reason="failed", exception="ValueError: 3"),
    "fault": Fault(code="contract", message="step 3: …"),
    "log": Log(
        records=({"time_s": 1.5, "level": "INFO", "logger": "env", "message": "hi"},), dropped=2
    ),
}


CLOSED = (Probe, Probed, Step, Action, Snapshot, Snapshotted, Restore, Restored)
"""Messages that are refused with arrays nobody named."""


def assert_same(got: Any, sent: Any) -> None:
    assert type(got) is type(sent)
    for field in fields(sent):
        wanted, given = getattr(sent, field.name), getattr(got, field.name)
        if isinstance(wanted, tuple) and wanted and isinstance(wanted[0], np.ndarray):
            assert len(given) == len(wanted)
            for one, other in zip(given, wanted, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
        elif isinstance(wanted, ProbeAnswer):
            assert_same(given, wanted)
        elif isinstance(wanted, np.ndarray):
            assert given.dtype == wanted.dtype, field.name
            np.testing.assert_array_equal(given, wanted, err_msg=field.name)
        else:
            assert given == wanted, field.name


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_survives_its_bytes(name: str) -> None:
    sent = MESSAGES[name]
    assert_same(decode_message(encode_message(sent), LIMITS), sent)


def test_there_is_an_example_of_every_type() -> None:
    assert {message.TYPE for message in MESSAGES.values()} == set(MESSAGE_TYPES)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_without_a_field_or_with_another_kind_of_it_names_that_field(name: str) -> None:
    header, arrays = MESSAGES[name].to_wire()
    optional = {
        *("resume_token", "expected_s", "exception", "episodes", "assignments"),
        *("failure", "restores", "continues", "discount"),
    }
    for key in header:
        if key in ("t", *optional):
            continue
        for broken in (
            {k: v for k, v in header.items() if k != key},
            {**header, key: {"surprise": ["party"]}},
        ):
            with pytest.raises(ProtocolError) as caught:
                decode_message(encode(broken, arrays), LIMITS)
            assert f".{key}" in caught.value.where


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_an_array_too_many_is_refused(name: str) -> None:
    if isinstance(MESSAGES[name], CLOSED):
        header, arrays = MESSAGES[name].to_wire()
        with pytest.raises(ContractError, match="arrays it should not"):
            decode_message(encode(header, {**arrays, "reward": np.zeros(3)}), LIMITS)


@pytest.mark.parametrize("header", [{}, {"t": "feedback"}, {"t": 5}, {"t": ["step"]}])
def test_a_message_of_no_known_type_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(MessageDecodeError, match="no known type"):
        decode_message(encode(header, {}), LIMITS)


def test_unknown_header_keys_are_ignored() -> None:
    header, arrays = make_hello().to_wire()
    got = decode_message(encode({**header, "shoe_size": 43}, arrays), LIMITS)
    assert_same(got, make_hello())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env_time_s", float("nan")),
        ("env_time_s", float("inf")),
        ("env_time_s", -1.0),
        ("env_time_s", True),
        ("request", 0),
        ("request", -1),
        ("request", 2**64 - 1),
        ("group", True),
        ("rows", 0),
        ("rows", 4),
        ("rows", 2**40),
        ("mask_size", 17),
        ("episodes", [3]),
        ("episodes", [{}] * 4),
    ],
)
def test_a_header_value_out_of_range_is_refused(key: str, value: Any) -> None:
    header, arrays = RICH_STEP.to_wire()
    with pytest.raises(ProtocolError, match="step"):
        decode_message(encode({**header, key: value}, arrays), LIMITS)


def test_packed_rows_must_have_exactly_their_bytes() -> None:
    header, arrays = RICH_STEP.to_wire()
    for name, wrong in (
        ("asks", np.zeros(2, np.uint8)),
        ("asks", np.zeros((1, 1), np.uint8)),
        ("asks", np.zeros(1, np.int8)),
        ("masks", np.zeros((2, 1), np.uint8)),
        ("masks", np.zeros(4, np.uint8)),
    ):
        with pytest.raises(ContractError, match=name):
            decode_message(encode(header, {**arrays, name: wrong}), LIMITS)


def test_bits_are_packed_with_the_first_row_in_the_highest_bit() -> None:
    _, arrays = RICH_STEP.to_wire()
    assert arrays["asks"].tolist() == [0b10100000]
    assert arrays["masks"].tolist() == [[0b11111111, 0b11000000], [0b00000000, 0b00100000]]


def test_a_step_is_decoded_to_views_of_the_message() -> None:
    data = encode_message(make_step(make_hello(), request=2))
    step = decode_message(data, LIMITS)
    assert isinstance(step, Step)
    message = np.frombuffer(data, dtype=np.uint8)
    for array in (*step.observations, step.rewards, step.terminated, step.truncated):
        assert array is not None
        assert np.shares_memory(array, message)


def test_texts_that_cannot_be_encoded_or_are_too_long_are_cleaned_when_sent() -> None:
    long = "x" * 10_000
    for message in (
        Goodbye(reason="bad \ud800 text", exception=long),
        Fault(code="internal", message="\ud800" + long),
        Stop(reason="halted", message=long),
        Snapshotted(number=1, failure="\ud800" + long),
        Restored(failure=long),
        Busy(phase="\udfff", since_s=1.0, waiting_for=long),
        Log(records=({"time_s": 0.0, "level": "\ud800", "logger": "x", "message": long},)),
    ):
        decode_message(encode_message(message), LIMITS)


def test_unknown_stop_reasons_and_fault_codes_are_refused() -> None:
    with pytest.raises(ContractError, match=r"stop\.reason"):
        decode_message(encode({"t": "stop", "reason": "bored", "message": ""}, {}), LIMITS)
    with pytest.raises(ContractError, match=r"fault\.code"):
        decode_message(encode({"t": "fault", "code": "oops", "message": ""}, {}), LIMITS)


def test_a_welcome_of_an_older_server_promises_no_restore_and_continues_nothing() -> None:
    header, arrays = make_welcome(make_hello()).to_wire()
    del header["restores"], header["continues"]
    welcome = decode_message(encode(header, arrays), LIMITS)
    assert isinstance(welcome, Welcome)
    assert welcome.restores is False
    assert welcome.continues is False


def test_optional_fields_of_another_kind_are_refused_by_name() -> None:
    for name, key in (
        ("welcome", "restores"),
        ("welcome", "continues"),
        ("snapshotted with failure", "failure"),
        ("restored with failure", "failure"),
    ):
        header, arrays = MESSAGES[name].to_wire()
        with pytest.raises(MessageDecodeError, match=key):
            decode_message(encode({**header, key: 3}, arrays), LIMITS)


def test_a_snapshot_has_either_states_or_a_failure() -> None:
    header, arrays = MESSAGES["snapshotted"].to_wire()
    for broken, blocks in (({**header, "failure": "late"}, arrays), (header, {})):
        with pytest.raises(ContractError, match="either states or a failure"):
            decode_message(encode(broken, blocks), LIMITS)


@pytest.mark.parametrize("name", ["snapshotted", "restore"])
@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"s0": np.zeros(0, np.uint8)}, "s0"),
        ({"s0": np.zeros(4, np.int8)}, "s0"),
        ({"s0": np.zeros((2, 2), np.uint8)}, "s0"),
        ({"s1": np.zeros(4, np.uint8)}, "s1"),
        ({"s0": np.zeros(4, np.uint8), "s2": np.zeros(4, np.uint8)}, "s2"),
    ],
    ids=["empty", "another type", "two dims", "a gap", "too many"],
)
def test_states_are_blocks_of_bytes_numbered_from_zero(
    name: str, arrays: dict[str, np.ndarray], named: str
) -> None:
    header, _ = MESSAGES[name].to_wire()
    with pytest.raises(ContractError, match=named):
        decode_message(encode(header, arrays), LIMITS)


def test_states_of_any_kind_of_bytes_travel_without_a_copy() -> None:
    block = bytearray(b"env")
    for either in (bytes(block), block, memoryview(block), np.frombuffer(block, np.uint8)):
        (state,) = as_states([either])
        assert state.tobytes() == b"env"
        assert np.shares_memory(state, np.frombuffer(either, np.uint8))
    with pytest.raises(ContractError, match="state of group 1"):
        as_states([b"env", b""])


@settings(max_examples=100, deadline=None)
@given(
    blocks=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=2),
    number=st.integers(0, 2**63 - 1),
)
def test_any_states_survive(blocks: list[bytes], number: int) -> None:
    sent = Snapshotted(number=number, states=as_states(blocks))
    got = decode_message(encode_message(sent), LIMITS)
    assert isinstance(got, Snapshotted)
    assert (got.number, got.failure) == (number, None)
    assert [state.tobytes() for state in got.states] == blocks


def test_states_are_decoded_to_views_of_the_message() -> None:
    data = encode_message(MESSAGES["restore"])
    restore = decode_message(data, LIMITS)
    assert isinstance(restore, Restore)
    assert all(np.shares_memory(s, np.frombuffer(data, np.uint8)) for s in restore.states)


def test_a_flood_of_log_records_is_refused() -> None:
    record = {"time_s": 0.0, "level": "INFO", "logger": "x", "message": "y"}
    with pytest.raises(MessageDecodeError, match=r"log\.records"):
        decode_message(encode({"t": "log", "records": [record] * 257, "dropped": 0}, {}), LIMITS)


def test_an_empty_welcome_still_says_what_is_missing() -> None:
    with pytest.raises(MessageDecodeError, match=r"welcome\."):
        Welcome.from_wire({"t": "welcome"}, {})


def test_a_hello_reads_its_bounds_from_arrays() -> None:
    header, arrays = decode(encode_message(RICH_HELLO), LIMITS)
    assert header["observation_space"]["items"]["a"]["low"] == {"array": "b0"}
    got = Hello.from_wire(header, arrays)
    assert got.observation_space == RICH_HELLO.observation_space
