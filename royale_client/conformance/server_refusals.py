"""What a server must refuse: one message each, the fault that must come, and the clause for it.

A refusal ends that conversation with a fault and a close, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from royale_client.conformance.raw_messages import (
    assemble,
    packed,
    with_arrays,
    with_entry,
    with_header,
    with_table,
    with_tail,
)
from royale_client.conformance.scenario import Scenario, ViolationError
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.conformance.speeches import (
    Speech,
    all_false,
    changed,
    fewer_rows,
    fixed,
    future,
    hello_of,
    nested,
    observed,
    of_ended_step,
    of_hello,
    of_message,
    of_step,
    other_request,
    with_record,
    wrong_boolean,
)
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    Action,
    Log,
    Probed,
    Restored,
    Snapshotted,
    encode_message,
)
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, MultiBinarySpec

When = Literal["at first", "when ready", "in the second turn"]
MALFORMED, UNEXPECTED, CONTRACT = ("malformed",), ("unexpected",), ("contract",)
UNREADABLE = ("malformed", "contract", "limit")
"""Where the protocol does not say which of them."""
MOST = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """One message that must be refused."""

    name: str
    clauses: tuple[str, ...]
    codes: tuple[str, ...]
    """Fault codes of which one must come."""
    what: str
    """What is sent."""
    when: When
    speech: Speech
    """Makes the message, from a conversation that has come so far."""


def _commit(server: ServerUnderTest, offence: Offence) -> None:
    with server.talk() as talk:
        if offence.when != "at first":
            talk.greet()
        if offence.when == "in the second turn":
            talk.turn(talk.groups[0].next_step())
        talk.send_raw(offence.speech(talk))
        fault = talk.expect_fault(offence.codes, offence.clauses, offence.what)
        if fault.code == "version" and not any(map(str.isdigit, fault.message)):
            text = f"a fault about versions that names none: {fault.message}"
            raise ViolationError(("P20",), text)


_BOX = BoxSpec([-1.0, -2.0, -3.0, -4.0], [1.0, 2.0, 3.0, 4.0], (4,), "float32")
_LONG = "n" * (MOST.max_name_length + 1)
_SPACES = ("spaces",)
_SEATED = np.zeros(3, np.int64)
_STEP = b"\xa1t\xa4step"

# name, clauses, codes, what is sent, how
_Row = tuple[str, tuple[str, ...], tuple[str, ...], str, Speech]

# fmt: off
_AT_FIRST: tuple[_Row, ...] = (
    ("text-hello", ("P3",), MALFORMED, "a text message", fixed("hello")),
    ("no-bytes", ("P4",), MALFORMED, "an empty message", fixed(b"")),
    ("announced-4-gib", ("P4", "P11"), MALFORMED, "a header length of 4 GiB",
     fixed(b"\xff\xff\xff\xff" + bytes(12))),
    ("announced-list", ("P5", "P11"), MALFORMED, "a list of 2³¹ entries in 5 bytes",
     fixed(assemble(b"\xdd\x7f\xff\xff\xff"))),
    ("step-first", ("P19", "P42"), UNEXPECTED, "a step before the hello",
     of_step(encode_message)),
    ("version-too-new", ("P20",), ("version",), "the protocol range [7, 9]",
     of_hello(partial(with_header, protocol=[7, 9]))),
    ("version-too-old", ("P20",), ("version",), "the protocol range [0, 0]",
     of_hello(partial(with_header, protocol=[0, 0]))),
    ("version-missing", ("P20",), ("version",), "no protocol range",
     of_hello(partial(with_header, protocol=...))),
    ("hello-of-tomorrow", ("P20",), ("version",), "a hello of which only t and protocol are known",
     future),
    ("key-missing", ("P6", "P19"), UNREADABLE, "a hello without groups",
     of_hello(partial(with_header, groups=...))),
    ("no-groups", ("P19",), UNREADABLE, "no group", of_hello(partial(with_header, groups=[]))),
    ("empty-group", ("P19",), UNREADABLE, "a group of 0 slots",
     of_hello(partial(with_header, groups=[3, 0]))),
    ("three-groups", ("P19", "P48"), UNREADABLE, "three groups",
     of_hello(partial(with_header, groups=[1, 1, 1]))),
    ("too-many-slots", ("P48",), ("limit",), "more slots than allowed",
     hello_of(groups=(MOST.max_slots_per_session, 1))),
    ("too-large-requests", ("P49",), ("limit", "spaces"), "slots whose requests fit no message",
     hello_of(groups=(64,), observation_space=BoxSpec(0, 1, (1024, 1024), "float32"))),
    ("shared-seat", ("P21",), CONTRACT, "three slots in one seat",
     hello_of(environments=_SEATED, seats=_SEATED)),
    ("split-environment", ("P21",), CONTRACT, "an environment in both groups",
     hello_of(groups=(2, 1), environments=_SEATED, seats=np.arange(3))),
    ("masked-box", ("P22",), ("contract", "spaces"), "masks for a box of actions",
     hello_of(action_space=_BOX)),
    ("empty-name", ("P23",), UNREADABLE, "an empty client_name", hello_of(client_name="")),
    ("long-name", ("P23",), UNREADABLE, "a client_name of 129 characters",
     of_hello(partial(with_header, client_name=_LONG))),
    ("unprintable-name", ("P23",), UNREADABLE, "a client_name with a line break",
     hello_of(client_name="a\nb")),
    ("unknown-role", ("P19",), UNREADABLE, "the role judge",
     of_hello(partial(with_header, role="judge"))),
    ("senseless-space", ("P17",), (*UNREADABLE, "spaces"), "a discrete space of 0 values",
     of_hello(partial(with_header, action_space={"kind": "discrete", "n": 0, "start": 0}))),
    ("unknown-space", ("P13",), (*UNREADABLE, "spaces"), "a space of an unknown kind",
     of_hello(partial(with_header, action_space={"kind": "sphere"}))),
    ("missing-bounds", ("P14",), (*UNREADABLE, "spaces"), "bounds in an array that is not there",
     of_hello(partial(with_arrays, b0=None))),
    ("unknown-aggregation", ("P40",), UNREADABLE, "a metric that is aggregated by luck",
     of_hello(partial(with_header, episode_metrics=[["a", "1", "all", "luck"]]))),
    ("other-spaces-shape", ("P18",), _SPACES, "observations of another shape",
     hello_of(observation_space=BoxSpec(-1.0, 1.0, (5,), "float32"))),
    ("other-spaces-dtype", ("P18",), _SPACES, "observations of another type",
     hello_of(observation_space=BoxSpec(_BOX.low, _BOX.high, (4,), "float64"))),
    ("other-spaces-bounds", ("P18",), _SPACES, "another bound of one number",
     hello_of(observation_space=BoxSpec(_BOX.low, [1.0, 2.0, 3.0, 5.0], (4,), "float32"))),
    ("other-spaces-kind", ("P18",), _SPACES, "observations of another kind",
     hello_of(observation_space=MultiBinarySpec((4,)))),
    ("other-spaces-n", ("P18",), _SPACES, "one action more",
     hello_of(action_space=DiscreteSpec(12, start=5))),
    ("other-spaces-start", ("P18",), _SPACES, "actions from another number on",
     hello_of(action_space=DiscreteSpec(11, start=4))),
    ("other-spaces-masks", ("P18",), _SPACES, "no masks, where others have them",
     hello_of(masks=False)),
)

_WHEN_READY: tuple[_Row, ...] = (
    ("text-message", ("P3",), MALFORMED, "a text message", fixed("step")),
    ("short-message", ("P4",), MALFORMED, "three bytes", fixed(b"\x05\x00\x00")),
    ("header-beyond-message", ("P4",), MALFORMED, "a header longer than the message",
     fixed(assemble(packed({"t": "log"}), length=900))),
    ("header-no-map", ("P5",), MALFORMED, "a header that is a list",
     fixed(assemble(packed(["t", "step"])))),
    ("header-too-short", ("P5",), MALFORMED, "a map of two entries with one",
     fixed(assemble(b"\x82" + _STEP))),
    ("header-trailing-bytes", ("P5",), MALFORMED, "a byte after the header's map",
     fixed(assemble(packed({"t": "log", "records": [], "dropped": 0}) + b"\xc0"))),
    ("repeated-key", ("P5",), MALFORMED, "a key that occurs twice",
     of_step(lambda step: with_entry(step, b"\xa5group", b"\x00"))),
    ("integer-key", ("P5",), MALFORMED, "a key that is a number",
     of_step(lambda step: with_entry(step, b"\x01", b"\x00"))),
    ("binary-value", ("P5",), MALFORMED, "a binary value",
     of_step(lambda step: with_entry(step, b"\xa1z", b"\xc4\x01\x00"))),
    ("extension-value", ("P5",), MALFORMED, "a value of an extension type",
     of_step(lambda step: with_entry(step, b"\xa1z", b"\xd4\x05\x00"))),
    ("time-stamp", ("P5",), MALFORMED, "a time stamp",
     of_step(lambda step: with_entry(step, b"\xa1z", b"\xd6\xff\x00\x00\x00\x00"))),
    ("invalid-utf-8", ("P5",), MALFORMED, "a text that is no UTF-8",
     of_step(lambda step: with_entry(step, b"\xa1z", b"\xa2\xc3\x28"))),
    ("nested-too-deep", ("P5", "P48"), MALFORMED, "lists nested 60 deep",
     of_step(lambda step: with_entry(step, b"\xa1z", nested(60)))),
    ("nested-endlessly", ("P5", "P11"), MALFORMED, "lists nested 100000 deep",
     of_step(lambda step: with_entry(step, b"\xa1z", nested(100_000)))),
    ("unknown-type", ("P6", "P42"), ("malformed", "unexpected"), "a message of the type sing",
     fixed(assemble(packed({"t": "sing"})))),
    ("no-type", ("P6",), MALFORMED, "a message without a type",
     fixed(assemble(packed({"group": 0})))),
    ("step-key-missing", ("P6", "P25"), UNREADABLE, "a step without its number",
     of_step(partial(with_header, request=...))),
    ("object-dtype", ("P8",), MALFORMED, "an array of objects",
     of_step(lambda step: with_table(step, "o0", ["|O", [3, 4], 0]))),
    ("big-endian-dtype", ("P8",), MALFORMED, "an array of the type >f4",
     of_step(lambda step: with_table(step, "o0", [">f4", [3, 4], 0]))),
    ("nine-dims", ("P9",), MALFORMED, "an array of nine dims",
     of_step(lambda step: with_table(step, "o0", ["f4", [3, 4, *[1] * 7], 0]))),
    ("negative-dim", ("P9",), MALFORMED, "an array with the dim −3",
     of_step(lambda step: with_table(step, "o0", ["f4", [-3, -4], 0]))),
    ("overflowing-dims", ("P9", "P11"), MALFORMED, "dims whose product is beyond 64 bits",
     of_step(lambda step: with_table(step, "o0", ["f4", [2**33, 2**33], 0]))),
    ("huge-array", ("P10", "P11"), MALFORMED, "an array of 16 GiB in a small message",
     of_step(lambda step: with_table(step, "o0", ["f4", [2**30, 4], 0]))),
    ("skewed-offset", ("P10",), MALFORMED, "an array at byte 4",
     of_step(lambda step: with_table(step, "o0", ["f4", [3, 4], 4]))),
    ("overlapping-arrays", ("P10",), MALFORMED, "two arrays in one place",
     of_step(lambda step: with_table(step, "masks", ["u1", [3, 2], 0]))),
    ("array-outside", ("P10",), MALFORMED, "an array behind the end",
     of_step(lambda step: with_table(step, "masks", ["u1", [3, 2], 4096]))),
    ("bytes-left-over", ("P10",), MALFORMED, "bytes after the last array",
     of_step(lambda step: with_tail(step, bytes(8)))),
    ("unknown-array", ("P12",), CONTRACT, "an array that no clause names",
     of_step(partial(with_arrays, x9=np.zeros(3)))),
    ("skipped-leaf", ("P12", "P32"), CONTRACT, "leaf o1 instead of o0",
     of_step(lambda step: with_arrays(step, o0=None, o1=step.observations[0]))),
    ("second-hello", ("P42",), UNEXPECTED, "a second hello",
     lambda talk: encode_message(talk.hello)),
    ("message-of-servers", ("P42",), UNEXPECTED, "an action, sent by the client",
     of_message(Action(group=0, request=1, policy_version=0, actions=(np.zeros(3, np.int64),)))),
    ("unasked-snapshotted", ("P54",), ("unexpected", "contract"), "an answer to no snapshot",
     of_message(Snapshotted(number=1, failure="nobody asked"))),
    ("unasked-probed", ("P42", "P77"), UNEXPECTED, "an answer to no probe",
     of_message(Probed(number=1, failure="nobody asked"))),
    ("unasked-restored", ("P42", "P57"), UNEXPECTED, "an answer to no restore",
     of_message(Restored(failure=None))),
    ("too-many-log-records", ("P41", "P48"), (*UNREADABLE, "unexpected"), "257 log records",
     of_message(Log(records=({"time_s": 0.0, "level": "", "logger": "", "message": ""},) * 257))),
    ("first-number-2", ("P33",), UNEXPECTED, "2 as the first number",
     partial(other_request, by=1)),
    ("first-number-0", ("P33",), ("unexpected", "malformed"), "0 as the first number",
     partial(other_request, by=-1)),
    ("no-such-group", ("P19", "P25"), ("unexpected", "contract"), "a step of group 2",
     of_step(partial(changed, group=2))),
)

_IN_TURN: tuple[_Row, ...] = (
    ("number-again", ("P33",), UNEXPECTED, "a number that was answered",
     partial(other_request, by=-1)),
    ("number-left-out", ("P33",), UNEXPECTED, "a number two more than the last",
     partial(other_request, by=1)),
    ("other-rows", ("P25",), UNREADABLE, "a step of two rows of a group of three",
     fewer_rows),
    ("wrong-row-count", ("P25",), UNREADABLE, "a row count that the arrays contradict",
     of_step(partial(with_header, rows=4))),
    ("wrong-dtype", ("P32",), CONTRACT, "observations of another type",
     of_step(lambda step: observed(step, lambda array: array.astype(np.float64)))),
    ("wrong-shape", ("P32",), CONTRACT, "observations of another shape",
     of_step(lambda step: observed(step, lambda array: array[:, :3]))),
    ("row-missing", ("P32",), CONTRACT, "observations of one row too few",
     of_step(lambda step: observed(step, lambda array: array[:2]))),
    ("observation-of-silent-row", ("P25", "P28"), CONTRACT, "an observation of a silent row",
     lambda talk: changed(
         talk.groups[0].next_step(), asks=np.array([True, False, True]))),
    ("wrong-asks", ("P25", "P26"), UNREADABLE, "two bytes of asks for three rows",
     of_step(partial(with_arrays, asks=np.array([255, 255], np.uint8)))),
    ("no-masks", ("P29",), CONTRACT, "no masks, where they were declared",
     of_step(lambda step: with_header(replace(step, masks=None)))),
    ("short-masks", ("P29",), UNREADABLE, "masks of another size",
     of_step(partial(with_header, mask_size=3))),
    ("no-legal-action", ("P29",), CONTRACT, "a row without a legal action", of_step(all_false)),
    ("no-rewards", ("P27",), CONTRACT, "no rewards in the second request",
     of_step(partial(changed, rewards=None, terminated=None, truncated=None))),
    ("half-an-outcome", ("P27",), CONTRACT, "rewards without terminated",
     of_step(partial(with_arrays, terminated=None))),
    ("narrow-rewards", ("P25",), CONTRACT, "rewards of 4 bytes",
     of_step(partial(with_arrays, rewards=np.ones(3, np.float32)))),
    ("wrong-boolean", ("P8",), MALFORMED, "a boolean that is 2",
     of_step(wrong_boolean)),
    ("no-final-observation", ("P30",), CONTRACT, "an end without a final observation",
     of_ended_step(partial(with_arrays, f0=None))),
    ("final-observation-of-nobody", ("P25", "P30"), CONTRACT, "a final observation and no end",
     of_step(lambda step: changed(step, final_observations=(step.observations[0][:1],)))),
    ("record-of-running-row", ("P39",), CONTRACT, "a record of a row that did not end",
     of_ended_step(partial(with_record, row=1))),
    ("infinite-return", ("P39",), UNREADABLE, "an infinite return",
     of_ended_step(lambda step: with_record(step, **{"return": float("inf")}))),
    ("negative-length", ("P39",), UNREADABLE, "a length of −1",
     of_ended_step(partial(with_record, length=-1))),
    ("undeclared-metric", ("P39",), CONTRACT, "a metric that was not declared",
     of_ended_step(partial(with_record, metrics={"luck": 1.0}))),
)
# fmt: on


def _scenario(when: When, row: _Row) -> Scenario[ServerUnderTest]:
    name, clauses, codes, what, speech = row
    offence = Offence(name=name, clauses=clauses, codes=codes, what=what, when=when, speech=speech)
    return Scenario(
        name=name,
        clauses=(*clauses, "P45", "P47"),
        title=f"refuses {what} ({' or '.join(codes)})",
        play=partial(_commit, offence=offence),
    )


REFUSALS: tuple[Scenario[ServerUnderTest], ...] = (
    *(_scenario("at first", row) for row in _AT_FIRST),
    *(_scenario("when ready", row) for row in _WHEN_READY),
    *(_scenario("in the second turn", row) for row in _IN_TURN),
)
"""All of them."""
