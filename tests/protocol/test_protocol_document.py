"""``docs/protocol.md`` says what the code does: examples, tables, numbers of clauses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from royale_client.wire.codec import decode
from royale_client.wire.dtypes import DTYPES
from royale_client.wire.errors import FAULT_CODES
from royale_client.wire.grammar import (
    CLOSE_CODES,
    TRANSITIONS,
    Side,
    State,
    after_welcome,
    next_state,
)
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    MESSAGE_TYPES,
    Action,
    Hello,
    Message,
    Step,
    decode_message,
    encode_message,
)
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from royale_client.wire.version import PROTOCOL_MAX, SUBPROTOCOL
from tests.wire.test_messages import MESSAGES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")

EXAMPLES: dict[str, Message] = {
    "hello": Hello(
        client_name="arm-7",
        process_id="p1",
        env_id="CartPole-v1",
        observation_space=BoxSpec([-4.8, -1.0], [4.8, 1.0], (2,), "float32"),
        action_space=DiscreteSpec(2),
        groups=(2,),
    ),
    "step": Step(
        group=0,
        request=2,
        asks=np.array([False, True]),
        observations=(np.array([[0.5, -0.25]], dtype=np.float32),),
        rewards=np.array([1.0, 0.5]),
        terminated=np.array([True, False]),
        truncated=np.array([False, False]),
        final_observations=(np.array([[2.0, -1.0]], dtype=np.float32),),
        episodes=({"row": 0, "return": 7.0, "length": 7, "time_s": 0.5, "metrics": {}},),
        env_time_s=0.25,
    ),
    "action": Action(group=0, request=2, policy_version=3, actions=(np.array([1]),)),
}


def example(name: str) -> bytes:
    block = re.search(rf"```hex {name}\n(.*?)```", DOCUMENT, re.S)
    assert block is not None
    lines = (line.split("#")[0] for line in block[1].splitlines())
    return bytes.fromhex(" ".join(lines))


def rows(first_column: str) -> dict[str, list[str]]:
    """Read the table whose head begins with ``first_column``: first cell to the others."""
    table = re.search(rf"\| {re.escape(first_column)} \|.*\n *\|[ -|]*\n((?: *\|.*\n)+)", DOCUMENT)
    assert table is not None
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in table[1].splitlines()
    ]
    return {row[0].strip("`"): row[1:] for row in cells}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bytes_of_the_examples_are_what_they_are_said_to_be(name: str) -> None:
    data = example(name)
    assert encode_message(EXAMPLES[name]) == data
    assert name == decode_message(data, Limits()).TYPE


def test_the_annotations_of_the_examples_name_the_header_keys() -> None:
    for name in EXAMPLES:
        header, arrays = decode(example(name), Limits())
        block = re.search(rf"```hex {name}\n(.*?)```", DOCUMENT, re.S)
        assert block is not None
        for key in (*header, *arrays):
            assert f'# "{key}":' in block[1] or f'#   "{key}":' in block[1]


def test_clauses_are_numbered_without_gaps_or_repeats() -> None:
    numbers = [int(number) for number in re.findall(r"^- \*\*P(\d+)\*\*", DOCUMENT, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
    cited = {int(number) for number in re.findall(r"P(\d+)\b", DOCUMENT)}
    assert cited <= set(numbers)


def test_the_table_of_fault_codes_is_that_of_the_code() -> None:
    documented = {code: (cells[0] == "yes", cells[1]) for code, cells in rows("fault code").items()}
    assert documented == {code: (entry.retry, entry.meaning) for code, entry in FAULT_CODES.items()}


def test_the_table_of_limits_is_that_of_the_code() -> None:
    assert {name: int(cells[0]) for name, cells in rows("limit").items()} == Limits().to_data()


def test_the_table_of_states_is_that_of_the_code() -> None:
    documented = {
        name: [set(re.findall(r"`(\w+)`", cell)) for cell in cells[1:]]
        for name, cells in rows("state").items()
    }
    assert documented == {
        state.value: [set(TRANSITIONS[side][state]) for side in (Side.CLIENT, Side.SERVER)]
        for state in State
    }


def conversations() -> list[list[tuple[Side, str, str]]]:
    """Read the example conversations: sender, message and what is said about it."""
    blocks = re.findall(r"```\n((?:(?:client|server)  .*\n)+)```", DOCUMENT)
    lines = [re.findall(r"^(client|server) +(\w+) *(.*)$", block, re.M) for block in blocks]
    return [[(Side(side), message, facts) for side, message, facts in block] for block in lines]


def test_the_example_conversations_follow_the_grammar() -> None:
    whole, other_end, cut = conversations()
    # The second is what follows the restore of the first.
    restored = [message for _, message, _ in whole].index("restored")
    for conversation in (whole, whole[:restored] + other_end):
        state = State.OPENED
        for side, message, facts in conversation:
            state = next_state(side, state, message)
            if message == "welcome":
                state = after_welcome(restores="restores true" in facts)
        assert state is State.READY
    again = [message for _, message, _ in cut].index("hello")
    for begin, conversation in ((State.READY, cut[:again]), (State.OPENED, cut[again:])):
        state = begin
        for side, message, _ in conversation:
            state = next_state(side, state, message)
        assert state is State.READY


def test_every_header_key_array_and_dtype_code_is_documented() -> None:
    words = set(re.findall(r"[\w?]+", " ".join(re.findall(r"`([^`]*)`", DOCUMENT))))
    for message in MESSAGES.values():
        header, arrays = message.to_wire()
        assert set(header) - {"t"} <= words, message.TYPE
        assert {name for name in arrays if not re.fullmatch("b[0-9]+", name)} <= words
    assert set(DTYPES) <= words
    assert set(MESSAGE_TYPES) <= words


def test_versions_and_close_codes_are_those_of_the_code() -> None:
    assert f"# The wire protocol `{SUBPROTOCOL}`" in DOCUMENT
    assert f"Protocol version now: {PROTOCOL_MAX}." in DOCUMENT
    clause = re.search(r"\*\*P47\*\*(.*?)\n\n", DOCUMENT, re.S)
    assert clause is not None
    codes = {int(code) for code in re.findall(r"\b1\d{3}\b", clause[1])}
    assert codes == set(CLOSE_CODES.values())
