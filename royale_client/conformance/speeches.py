"""What the suite says to a server that must refuse it: changes of messages that were sound.

A `Speech` is made from a conversation that has come as far as the offence needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from royale_client.conformance.raw_messages import assemble, packed, table_of, with_table
from royale_client.conformance.scripted_group import ScriptedGroup
from royale_client.conformance.server_talk import ServerTalk
from royale_client.wire.codec import encode
from royale_client.wire.messages import Message, Step, encode_message

Speech: TypeAlias = Callable[[ServerTalk], bytes | str]


def of_hello(change: Callable[[Message], bytes]) -> Speech:
    """Change the hello."""
    return lambda talk: change(talk.hello)


def of_step(change: Callable[[Step], bytes]) -> Speech:
    """Change the next step of the first group."""
    return lambda talk: change(talk.groups[0].next_step())


def of_ended_step(change: Callable[[Step], bytes]) -> Speech:
    """Change a step in which row 0 ended and nothing else."""
    return lambda talk: change(talk.groups[0].next_step(terminated=(0,), records=True))


def fixed(data: bytes | str) -> Speech:
    """Say the same whatever was said before."""
    return lambda _talk: data


def of_message(message: Message) -> Speech:
    """Say a message that is sound, at a moment when it is not."""
    return fixed(encode_message(message))


def nested(depth: int) -> bytes:
    """Return a header entry of lists in lists, so many."""
    return b"\xa1z" + b"\x91" * depth + b"\xc0"


def with_record(step: Step, **changes: Any) -> bytes:  # noqa: ANN401 - any header value
    """Write a step with one episode record, other entries in the record."""
    (record,) = step.episodes
    return encode_message(replace(step, episodes=(record | changes,)))


def other_request(talk: ServerTalk, by: int) -> bytes:
    """Write the next step of the first group under another number."""
    step = talk.groups[0].next_step()
    return encode_message(replace(step, request=step.request + by))


def changed(step: Step, **changes: Any) -> bytes:  # noqa: ANN401 - any field of a step
    """Write a step with other fields."""
    return encode_message(replace(step, **changes))


def all_false(step: Step) -> bytes:
    """Write a step in which row 1 has no legal action."""
    assert step.masks is not None
    masks = step.masks.copy()
    masks[1] = False
    return encode_message(replace(step, masks=masks))


def wrong_boolean(step: Step) -> bytes:
    """Write a step with a boolean that is 2."""
    header, arrays = step.to_wire()
    (code, dims, offset) = table_of(encode(header, arrays))["truncated"]
    wrong = np.array([2, 0, 0], np.uint8)
    return with_table(step, "truncated", [code, dims, offset], truncated=wrong)


def fewer_rows(_talk: ServerTalk) -> bytes:
    """Write the second step of a group of two rows, where the hello has three."""
    group = ScriptedGroup(0, rows=2)
    group.next_step()
    return encode_message(group.next_step())


def observed(step: Step, change: Callable[[Any], Any]) -> bytes:
    """Write a step with other observations."""
    return encode_message(replace(step, observations=(change(step.observations[0]),)))


def future(_talk: ServerTalk) -> bytes:
    """Write a hello of which only what every version keeps can be read."""
    return assemble(packed({"t": "hello", "protocol": [7, 9], "everything": "else is new"}))


def hello_of(**changes: Any) -> Speech:  # noqa: ANN401
    """Say a hello with other fields."""
    return lambda talk: encode_message(replace(talk.hello, **changes))
