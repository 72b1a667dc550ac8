"""What is read or written by a known form is what the full way reads or writes, or it is left.

The full way of a received message is taken by handing it over as a ``bytearray``, which has no
forms; that of a written one by the encoder itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.session import Answered
from royale_client.wire.codec import decode, encode, parse
from royale_client.wire.contract import StepContract
from royale_client.wire.errors import ProtocolError
from royale_client.wire.forms import MAX_FORM_BYTES, MAX_FORMS
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    Action,
    EpisodeMetric,
    Hello,
    Step,
    decode_message,
    encode_message,
)
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
)
from royale_client.wire.turn_forms import ActionForms, StepForms
from royale_server.endpoint.session import StepReceived
from tests.protocol.joined import Joined, ready
from tests.wire.builders import VECTOR, make_hello, make_step, rows_of
from tests.wire.test_messages import assert_same

LIMITS = Limits()
PLAIN = make_hello(groups=(3, 2))
CHOICES = DictSpec(
    (
        ("bits", MultiBinarySpec((2,))),
        ("card", DiscreteSpec(3, start=1)),
        ("plan", MultiDiscreteSpec((2, 4))),
        ("pose", VECTOR),
    )
)
MASKED = make_hello(
    observation_space=CHOICES,
    action_space=MultiDiscreteSpec((2, 3)),
    masks=True,
    episode_metrics=(EpisodeMetric("won", "1", "battles", "mean"),),
)
RECORD = {"row": 2, "return": 1.5, "length": 3, "time_s": 0.5, "metrics": {}}
LAST = np.array([False, False, True])


def choices(count: int) -> tuple[np.ndarray, ...]:
    bits, card, plan, pose = rows_of(CHOICES, count)
    return bits, card + 1, plan, pose


def ended(rows: tuple[np.ndarray, ...], **record: Any) -> dict[str, Any]:
    return {
        "terminated": LAST,
        "final_observations": rows,
        "episodes": ({**RECORD, **record},),
    }


KINDS: dict[str, tuple[Hello, dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "second group": (PLAIN, {"group": 1}),
    "one row ended": (PLAIN, ended(rows_of(VECTOR, 1))),
    "ended without a record": (PLAIN, {**ended(rows_of(VECTOR, 1)), "episodes": ()}),
    "two rows ask": (PLAIN, {"asks": ~LAST, "observations": rows_of(VECTOR, 2)}),
    "masks and choices": (MASKED, {"observations": choices(3)}),
    "everything": (
        MASKED,
        {
            **ended(choices(1), metrics={"won": 1.0}),
            "asks": ~LAST,
            "observations": choices(2),
            "masks": np.ones((2, 5), dtype=bool),
        },
    ),
}


def step_of(name: str, **changes: Any) -> Step:
    hello, content = KINDS[name]
    step = make_step(hello, **{"request": 200, "env_time_s": 0.25, **content})
    return replace(step, **changes)


class Known:
    """Forms that have learnt the steps of some kinds, and the full way next to them."""

    def __init__(self, *names: str) -> None:
        self.contract = StepContract(KINDS[names[0]][0], LIMITS)
        self.forms = StepForms(self.contract, LIMITS)
        for name in names * 2:
            step = step_of(name)
            data = encode_message(step)
            asking = self.contract.check(step, first=False)
            self.forms.learn(parse(data, LIMITS), step, asking)
            self.forms.learn_written(data, step, asking)

    def read_in_full(self, data: bytes) -> tuple[Step, int]:
        step = decode_message(data, LIMITS)
        assert isinstance(step, Step)
        if not 0 <= step.group < 2:
            raise ProtocolError("no such group")
        return step, self.contract.check(step, first=False)

    def agrees(self, data: bytes) -> bool:
        """Read in both ways; tell whether a form was at work."""
        found = None
        with suppress(ProtocolError):
            found = self.forms.read(data)
        if found is not None:
            step, asking = self.read_in_full(data)  # raises what the form let through
            assert_same(found[0], step)
            assert found[1] == asking
        return found is not None


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# --- reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1])
def test_a_step_like_an_earlier_one_is_read_by_its_form(kind: str, number: int) -> None:
    known = Known(kind)
    step = step_of(kind, request=number, env_time_s=1e-3)
    found = known.forms.read(encode_message(step))
    assert found is not None
    assert_same(found[0], step)


def test_steps_of_several_kinds_and_groups_are_told_apart() -> None:
    names = ["plain", "second group", "one row ended", "ended without a record", "two rows ask"]
    known = Known(*names)
    assert all(known.agrees(encode_message(step_of(name))) for name in names)
    assert all(writes(known, step_of(name)) for name in names)


def test_groups_of_one_size_are_told_apart() -> None:
    twins = make_hello(groups=(3, 3))
    contract = StepContract(twins, LIMITS)
    forms = StepForms(contract, LIMITS)
    steps = [make_step(twins, request=9, group=group) for group in (0, 1)]
    for step in steps * 2:
        data = encode_message(step)
        forms.learn(parse(data, LIMITS), step, 3)
        forms.learn_written(data, step, 3)
    for step in steps:
        data = encode_message(step)
        assert forms.write(step) == (data, 3)
        found = forms.read(data)
        assert found is not None
        assert found[0].group == step.group


@pytest.mark.parametrize("time_s", [0, 1, 2**33])
def test_a_step_with_its_time_in_another_form_is_no_form(time_s: int) -> None:
    contract = StepContract(PLAIN, LIMITS)
    forms = StepForms(contract, LIMITS)
    step = step_of("plain", env_time_s=time_s)
    for _ in range(3):
        forms.learn(parse(encode_message(step), LIMITS), step, 3)
    assert len(forms) == 0


def test_numbers_in_unusual_but_legal_forms_are_read_alike() -> None:
    known = Known("plain")
    data = encode_message(step_of("plain", request=5))
    long = data.replace(b"\xa7request\x05", b"\xa7request\xcd\x00\x05")
    long = (int.from_bytes(data[:4], "little") + 2).to_bytes(4, "little") + long[4:]
    header_end = 4 + int.from_bytes(long[:4], "little")
    tail = data[(header_end - 2 + 7) & -8 :]
    long = long[:header_end] + bytes(-header_end & 7) + tail
    assert known.agrees(long)
    assert not known.agrees(encode_message(step_of("plain", request=2**32)))
    assert not known.agrees(encode_message(step_of("plain", env_time_s=0)))


def test_a_form_lets_no_changed_byte_through_that_the_full_way_would_not(kind: str) -> None:
    known = Known(kind)
    good = encode_message(step_of(kind, request=3))
    read = 0
    for position in range(len(good)):
        bad = bytearray(good)
        for value in (0, 1, 2, 0x7F, 0x80, 0xC0, 0xC2, 0xC3, 0xCB, 0xCC, 0xCF, 0xFF):
            bad[position] = value
            read += known.agrees(bytes(bad))
    assert read > 0  # most changes of values are legal


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_form_lets_no_damaged_message_through_that_the_full_way_would_not(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    bad = bytearray(encode_message(step_of(kind, request=data.draw(st.integers(1, 2**33)))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bad) - 1))
        what = data.draw(st.sampled_from(["set", "insert", "delete", "cut"]))
        if what == "set":
            bad[at] = data.draw(st.integers(0, 255))
        elif what == "insert":
            bad[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        elif what == "delete":
            del bad[at : at + data.draw(st.integers(1, 9))]
        else:
            del bad[at:]
        bad = bad or bytearray(1)
    LEARNT[kind].agrees(bytes(bad))


LEARNT = {name: Known(name) for name in KINDS}


def reframed(kind: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A step whose header was changed before it was packed."""
    header, arrays = step_of(kind).to_wire()
    change(header)
    return encode(header, arrays)


@pytest.mark.parametrize(
    "episodes",
    [
        [],
        5,
        None,
        "x",
        {},
        [3],
        [RECORD, RECORD],
        [RECORD] * 4,
        [{**RECORD, "row": 1}],
        [{**RECORD, "row": True}],
        [{**RECORD, "return": float("nan")}],
        [{**RECORD, "length": -1}],
        [{**RECORD, "time_s": -1.0}],
        [{**RECORD, "metrics": {"lost": 1.0}}],
        [{**RECORD, "surprise": [[[[0]]]]}],
    ],
    ids=repr,
)
def test_records_are_judged_by_a_form_as_they_always_are(episodes: Any) -> None:
    known = Known("one row ended")
    legal = known.agrees(reframed("one row ended", lambda h: h.update(episodes=episodes)))
    assert legal == (episodes in ([], [{**RECORD, "surprise": [[[[0]]]]}]))


def nested(levels: int) -> Any:
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]
    return deep


def test_records_nested_too_deep_or_with_repeated_keys_are_left_to_the_full_way() -> None:
    known = Known("one row ended")
    # Header, list and record are three levels of the 40 that may be.
    for levels, legal in ((37, True), (38, False), (200, False)):
        record = {**RECORD, "deep": nested(levels)}
        data = reframed("one row ended", lambda h, r=record: h.update(episodes=[r]))
        assert known.agrees(data) == legal
    twice = msgpack.packb(RECORD)
    twice = bytes([twice[0] + 1]) + twice[1:] + b"\xa3row\x02"
    data = encode_message(step_of("one row ended"))
    header_end = 4 + int.from_bytes(data[:4], "little")
    header = data[4:header_end].replace(msgpack.packb(RECORD), twice)
    front = len(header).to_bytes(4, "little") + header
    tail = data[(header_end + 7) & -8 :]
    assert not known.agrees(front + bytes(-len(front) & 7) + tail)


@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf"), -float("inf"), -5e-324])
def test_a_time_that_is_none_is_left_to_the_full_way(time_s: float) -> None:
    assert not Known("plain").agrees(encode_message(step_of("plain", env_time_s=time_s)))


def test_headers_in_another_order_are_read_alike() -> None:
    header, arrays = step_of("everything").to_wire()
    known = Known("everything")
    for turn in range(len(header)):
        keys = list(header)[turn:] + list(header)[:turn]
        other = encode({key: header[key] for key in keys}, arrays)
        step, asking = known.read_in_full(other)
        for _ in range(3):
            known.agrees(other)
            known.forms.learn(parse(other, LIMITS), step, asking)


def test_arrays_in_another_order_are_read_alike() -> None:
    header, arrays = step_of("everything").to_wire()
    known = Known("everything")
    for names in (sorted(arrays), sorted(arrays, reverse=True)):
        other = encode(header, {name: arrays[name] for name in names})
        step, asking = known.read_in_full(other)
        for _ in range(3):
            known.agrees(other)
            known.forms.learn(parse(other, LIMITS), step, asking)


VALUES: dict[str, dict[str, Any]] = {
    "a row more asks": {"asks": np.array([True, True, True])},
    "another row asks": {"asks": np.array([False, True, True])},
    "another row ended": {
        "terminated": np.array([True, False, False]),
        "episodes": ({**RECORD, "row": 0},),
    },
    "a row more ended": {"truncated": np.array([True, False, False])},
    "no row ended": {"terminated": ~np.ones(3, dtype=bool)},
    "a record of another row": {"episodes": ({**RECORD, "row": 1},)},
    "a row without a legal action": {"masks": np.array([[1] * 5, [0, 0, 1, 1, 1]], dtype=bool)},
    "one legal action each": {"masks": np.array([[1, 0, 1, 0, 0]] * 2, dtype=bool)},
    "a bit of 2": {"observations": (np.full((2, 2), 2, np.int8), *choices(2)[1:])},
    "a bit of -1": {"observations": (np.full((2, 2), -1, np.int8), *choices(2)[1:])},
    "a card of 0": {"observations": (choices(2)[0], np.zeros(2, int), *choices(2)[2:])},
    "a card of 4": {"final_observations": (choices(1)[0], np.full(1, 4), *choices(1)[2:])},
    "a plan of (1, 3)": {"observations": (*choices(2)[:2], np.array([[1, 3]] * 2), choices(2)[3])},
    "a plan of (2, 0)": {"observations": (*choices(2)[:2], np.array([[2, 0]] * 2), choices(2)[3])},
    "a pose that is not finite": {
        "observations": (*choices(2)[:3], np.full((2, 4), np.nan, np.float32))
    },
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_judged_by_a_form_as_they_always_are(name: str) -> None:
    known = Known("everything")
    step = step_of("everything", **VALUES[name])
    legal = True
    try:
        known.contract.check(step, first=False)
    except ProtocolError:
        legal = False
    assert known.agrees(encode_message(step)) == legal
    assert writes(known, step) == legal


def test_a_boolean_of_two_is_left_to_the_full_way() -> None:
    data = bytearray(encode_message(step_of("plain")))
    assert data[-3:] == bytes(3)  # the endings by truncation of three rows
    data[-1] = 2
    assert not Known("plain").agrees(bytes(data))


def test_views_of_a_step_read_by_its_form_are_views_of_the_message() -> None:
    data = encode_message(step_of("plain"))
    found = Known("plain").forms.read(data)
    assert found is not None
    step = found[0]
    for array in (*step.observations, step.rewards, step.terminated, step.truncated):
        assert array is not None
        assert np.shares_memory(array, np.frombuffer(data, np.uint8))
        assert not array.flags.writeable


# --- writing ----------------------------------------------------------------------------


def writes(known: Known, step: Step) -> bool:
    """Write in both ways; tell whether a form was at work."""
    found = None
    with suppress(ProtocolError):
        found = known.forms.write(step)
    if found is not None:
        asking = known.contract.check(step, first=False)
        assert found == (encode_message(step), asking)
    return found is not None


@pytest.mark.parametrize("number", [1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1])
def test_a_step_like_an_earlier_one_is_written_by_its_form_to_the_same_bytes(
    kind: str, number: int
) -> None:
    assert writes(Known(kind), step_of(kind, request=number, env_time_s=1e-3))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_a_form_writes_is_what_the_encoder_writes(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    known = LEARNT[kind]
    number = data.draw(st.integers(1, 2**40))
    time_s: Any = data.draw(st.one_of(st.floats(), st.integers(0, 2**40), st.booleans()))
    step = step_of(kind, request=number, env_time_s=time_s)
    assert writes(known, step) == (number < 2**32 and type(time_s) is float)


UNUSUAL: dict[str, dict[str, Any]] = {
    "observations in another order of memory": {"observations": (np.zeros((4, 3), np.float32).T,)},
    "every second row": {"observations": (np.zeros((6, 4), np.float32)[::2],)},
    "big-endian": {"observations": (np.zeros((3, 4), ">f4"),)},
    "doubles": {"observations": (np.zeros((3, 4)),)},
    "integers": {"observations": (np.zeros((3, 4), np.int32),)},
    "rewards of every second": {"rewards": np.zeros(6)[::2]},
    "rewards of one too many": {"rewards": np.zeros(4)},
    "endings as numbers": {"terminated": np.zeros(3)},
    "endings as bytes": {"truncated": np.zeros(3, np.uint8)},
    "asks as numbers": {"asks": np.ones(3)},
    "asks as bytes": {"asks": np.ones(3, np.uint8)},
    "masks where there are none": {"masks": np.ones((3, 2), bool)},
    "two leaves": {"observations": rows_of(VECTOR, 3) * 2},
    "no leaf": {"observations": ()},
    "no endings": {"terminated": None},
    "nothing": {"rewards": None, "terminated": None, "truncated": None},
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_does_not_lie_in_memory_as_it_travels_is_left_to_the_encoder(name: str) -> None:
    assert not writes(Known("plain"), step_of("plain", **UNUSUAL[name]))


def test_a_record_that_msgpack_cannot_write_is_left_to_the_encoder() -> None:
    known = Known("one row ended")
    for record in ({**RECORD, "note": object()}, {**RECORD, "length": 2**70}):
        assert not writes(known, step_of("one row ended", episodes=(record,)))


# --- actions ----------------------------------------------------------------------------

ACTIONS: dict[str, Action] = {
    "choice": Action(group=0, request=7, policy_version=3, actions=(np.array([1, 0, 1]),)),
    "second group": Action(group=1, request=7, policy_version=3, actions=(np.array([1, 0]),)),
    "two leaves": Action(
        group=0,
        request=7,
        policy_version=3,
        actions=(np.zeros((3, 2), np.float32), np.zeros(3, np.int64)),
    ),
    "no row": Action(group=0, request=7, policy_version=3, actions=(np.zeros(0, np.int64),)),
}


def known_actions(*names: str) -> ActionForms:
    forms = ActionForms(LIMITS)
    for name in names * 2:
        action = ACTIONS[name]
        data = encode_message(action)
        forms.learn(parse(data, LIMITS), action, len(action.actions[0]))
        forms.learn_written(data, action, len(action.actions[0]))
    return forms


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_like_an_earlier_one_is_read_and_written_by_its_form(name: str) -> None:
    forms = known_actions(name)
    for request, version in ((1, 0), (127, 128), (255, 256), (65535, 65536), (2**32 - 1, 9)):
        action = replace(ACTIONS[name], request=request, policy_version=version)
        data = encode_message(action)
        count = len(action.actions[0])
        content = (action.group, request, version, action.actions)
        assert forms.write(*content, count) == data
        assert forms.write(*content, count + 1) is None
        found = forms.read(data)
        assert found is not None
        assert_same(found[0], action)
        assert found[1] == count


def test_actions_that_do_not_travel_as_they_lie_are_left_to_the_encoder() -> None:
    forms = known_actions("choice")
    content = {"group": 0, "request": 7, "policy_version": 3, "actions": (np.zeros(3, int),)}
    assert forms.write(**content, count=3) is not None
    for changes in (
        {"group": 1},
        {"actions": (np.zeros(6, np.int64)[::2],)},
        {"actions": (np.zeros(3, np.int32),)},
        {"actions": (np.zeros(3, ">i8"),)},
        {"actions": (np.zeros((3, 1), np.int64),)},
        {"policy_version": 2**32},
        {"request": 2**32},
        {"policy_version": True},
    ):
        assert forms.write(**{**content, **changes}, count=3) is None


@pytest.mark.parametrize("name", ACTIONS)
def test_no_changed_byte_of_an_action_gets_through_a_form_only(name: str) -> None:
    forms = known_actions(*ACTIONS)
    good = encode_message(ACTIONS[name])
    for position in range(len(good)):
        bad = bytearray(good)
        for value in (0, 1, 2, 0x7F, 0x80, 0xC0, 0xC2, 0xC3, 0xCB, 0xCC, 0xCF, 0xFF):
            bad[position] = value
            found = None
            with suppress(ProtocolError):
                found = forms.read(bytes(bad))
            if found is not None:
                assert_same(found[0], decode_message(bytes(bad), LIMITS))


# --- sessions ---------------------------------------------------------------------------


def warm(hello: Hello = PLAIN) -> Joined:
    """A conversation whose turns are familiar by now."""
    joined = ready(hello)
    for _ in range(4):
        for group in range(len(hello.groups)):
            joined.turn(group)
    return joined


def outcome(receive: Callable[[Any], list[Any]], data: Any) -> Any:
    try:
        (event,) = receive(data)
    except ProtocolError as error:
        return type(error), error.sentence
    return event


REQUEST_NUMBERS = (1, 4, 5, 6, 7, 200, 2**32 - 1, 2**32, 2**63 - 1)


@pytest.mark.parametrize("number", REQUEST_NUMBERS)
@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("is_open", [False, True])
def test_both_ways_judge_the_number_of_a_request_alike(
    number: int, group: int, is_open: bool
) -> None:
    joined = warm()
    if is_open:
        joined.step(group)
    data = encode_message(make_step(PLAIN, request=number, group=group))
    other = copy.deepcopy(joined.server)
    left, right = outcome(joined.server.receive, data), outcome(other.receive, bytearray(data))
    if isinstance(left, StepReceived):
        assert number == 5
        assert not is_open
        assert_same(left.step, right.step)
        assert (left.asking, left.first, left.num_bytes) == (3 - group, False, len(data))
        assert (right.asking, right.first, right.num_bytes) == (3 - group, False, len(data))
        assert joined.server.outstanding(group) == other.outstanding(group) == 5
    else:
        assert left == right


@pytest.mark.parametrize("number", REQUEST_NUMBERS)
@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("is_open", [False, True])
def test_both_ways_judge_an_answer_alike(number: int, rows: int, is_open: bool) -> None:
    joined = warm()
    if is_open:
        joined.step(0)
    answer = Action(group=0, request=number, policy_version=1, actions=(np.zeros(rows, np.int64),))
    data = encode_message(answer)
    other = copy.deepcopy(joined.client)
    left, right = outcome(joined.client.receive, data), outcome(other.receive, bytearray(data))
    if isinstance(left, Answered):
        assert (number, rows, is_open) == (5, 3, True)
        assert_same(left, right)
    else:
        assert left == right


def test_an_answer_of_a_known_form_for_another_number_of_rows_is_refused_by_name() -> None:
    joined = warm()
    joined.step(0, asks=~LAST, observations=rows_of(VECTOR, 2))
    with pytest.raises(ProtocolError, match=r"expected int64 of shape \(2,\)"):
        joined.server.action(0, 5, 0, rows_of(PLAIN.action_space, 3))
    joined.server.action(0, 5, 0, rows_of(PLAIN.action_space, 2))


def test_turns_in_which_other_numbers_of_rows_ask_follow_each_other() -> None:
    joined = ready(PLAIN)
    joined.turn()
    fewer = {"asks": ~LAST, "observations": rows_of(VECTOR, 2)}
    for _ in range(4):
        assert joined.turn().asking == 3
        assert joined.step(**fewer).asking == 2
        joined.answer(actions=rows_of(PLAIN.action_space, 2))
    joined.step(**fewer)
    with pytest.raises(ProtocolError, match=r"expected int64 of shape \(2,\)"):
        joined.server.action(0, 10, 0, rows_of(PLAIN.action_space, 3))
    wrong = Action(group=0, request=10, policy_version=0, actions=rows_of(PLAIN.action_space, 3))
    with pytest.raises(ProtocolError, match=r"expected int64 of shape \(2,\)"):
        joined.client.receive(encode_message(wrong))


def test_a_familiar_answer_is_neither_sent_nor_taken_after_a_stop() -> None:
    joined = warm()
    joined.step(0)
    answer = joined.server.action(0, 5, 0, rows_of(PLAIN.action_space, 3))
    joined.step(1)
    joined.client.receive(joined.server.stop("stopping"))
    with pytest.raises(ProtocolError, match="action is not allowed now"):
        joined.server.action(1, 5, 0, rows_of(PLAIN.action_space, 2))
    with pytest.raises(ProtocolError, match="action is not allowed now"):
        joined.client.receive(answer)


def test_a_familiar_answer_is_sent_once_and_to_its_request_only() -> None:
    joined = warm()
    actions = rows_of(PLAIN.action_space, 3)
    for request in (4, 5, 6):
        with pytest.raises(ProtocolError, match="not open"):
            joined.server.action(0, request, 0, actions)
    joined.step(0)
    for group, request in ((0, 4), (0, 6), (1, 5)):
        with pytest.raises(ProtocolError, match="not open"):
            joined.server.action(group, request, 0, actions)
    joined.server.action(0, 5, 0, actions)
    with pytest.raises(ProtocolError, match="not open"):
        joined.server.action(0, 5, 0, actions)
    for group in (-1, 2):
        with pytest.raises(ProtocolError, match="no such group"):
            joined.server.action(group, 5, 0, actions)


def test_a_familiar_step_is_not_taken_when_no_step_may_come() -> None:
    joined = warm()
    data = encode_message(make_step(PLAIN, request=5))
    joined.server.receive(joined.client.goodbye("done"))
    with pytest.raises(ProtocolError, match="step is not allowed now"):
        joined.server.receive(data)


def test_a_familiar_step_after_a_stop_is_taken_and_not_answered() -> None:
    joined = warm()
    data = encode_message(make_step(PLAIN, request=5))
    joined.server.stop("stopping")
    assert isinstance(outcome(joined.server.receive, data), StepReceived)


def test_a_familiar_message_larger_than_allowed_is_left_to_the_full_way() -> None:
    step = step_of("plain")
    data = encode_message(step)
    header_bytes = int.from_bytes(data[:4], "little")
    for less, legal in ((0, True), (1, False)):
        for limits in (
            Limits(max_message_bytes=len(data) - less),
            Limits(max_header_bytes=header_bytes - less),
        ):
            forms = StepForms(StepContract(PLAIN, limits), limits)
            for _ in range(2):
                forms.learn(parse(data, LIMITS), step, 3)
            assert (forms.read(data) is not None) == legal


def test_forms_are_few_and_small() -> None:
    hello = make_hello(groups=(300,))
    known = StepForms(StepContract(hello, LIMITS), LIMITS)
    for count in range(1, 2 * MAX_FORMS):
        asks = np.arange(300) < count
        step = make_step(hello, request=2, asks=asks, observations=rows_of(VECTOR, count))
        for _ in range(2):
            known.learn(parse(encode_message(step), LIMITS), step, count)
    assert len(known) == MAX_FORMS
    assert known.read(encode_message(step)) is not None

    many = DictSpec(tuple((f"{index:03}", BoxSpec(0, 1, (1,), "float32")) for index in range(256)))
    wide = make_hello(observation_space=many)
    forms = StepForms(StepContract(wide, LIMITS), LIMITS)
    step = make_step(wide, request=2)
    data = encode_message(step)
    assert int.from_bytes(data[:4], "little") > MAX_FORM_BYTES
    for _ in range(3):
        forms.learn(parse(data, LIMITS), step, 3)
    assert len(forms) == 0


def test_a_form_that_comes_once_is_not_kept() -> None:
    known = StepForms(StepContract(PLAIN, LIMITS), LIMITS)
    step = step_of("plain")
    known.learn(parse(encode_message(step), LIMITS), step, 3)
    assert len(known) == 0


def test_a_first_request_without_rewards_is_never_a_form() -> None:
    joined = ready(PLAIN)
    data = encode_message(make_step(PLAIN, request=1))
    assert decode(data, LIMITS)[0]["request"] == 1
    known = StepForms(StepContract(PLAIN, LIMITS), LIMITS)
    step = make_step(PLAIN, request=1)
    for _ in range(3):
        known.learn(parse(data, LIMITS), step, 3)
    assert len(known) == 0
    joined.turn()
