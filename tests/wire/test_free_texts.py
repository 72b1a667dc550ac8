"""Texts for people cannot steer a terminal or pass for other lines, whoever says them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from royale_client.wire.codec import encode
from royale_client.wire.contract import check_welcome
from royale_client.wire.errors import ProtocolError
from royale_client.wire.hello_rules import check_hello
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello, Welcome, decode_message
from royale_client.wire.seating import read_assignments
from tests.wire.builders import make_hello
from tests.wire.test_messages import MESSAGES

LIMITS = Limits()
HOSTILE = "\x1b]0;owned\x07\x9b2J\r\n12:00:00 INFO all is well\u202e\u2028\x00"
"""Sequences of two kinds, other lines of a log, a change of direction, and a nought."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a header holds a text, but for the name of its type."""
    if isinstance(value, str) and path != ("t",):
        yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list | tuple) else items
    for key, inner in items:
        yield from places(inner, (*path, key))


def with_text(header: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    """The header with another text in one place."""
    plain = copy.deepcopy(as_lists(header))
    inner = plain
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return plain


def as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_lists(inner) for key, inner in value.items()}
    return [as_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def texts(value: Any) -> Iterator[str]:
    """Every text that a decoded message holds."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(key)
            yield from texts(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from texts(inner)


def read(data: bytes) -> Any:
    """Take a message as a session takes it, up to where something could be shown."""
    message = decode_message(data, LIMITS)
    if isinstance(message, Hello):
        check_hello(message, LIMITS)
    if isinstance(message, Welcome):
        check_welcome(message, make_hello())
        read_assignments(message.assignments, 3)
    return message


CASES = [
    (name, path)
    for name, message in MESSAGES.items()
    for path in places(message.to_wire()[0])
    if path[0] != "episodes"  # by declared names, of which only numbers are kept
]


def test_there_are_such_texts_in_every_message_for_people() -> None:
    assert {name.split()[0] for name, _ in CASES} >= {
        *("hello", "welcome", "busy", "stop", "goodbye", "fault", "log", "probe", "probed"),
        *("snapshotted", "restored"),
    }


@pytest.mark.parametrize(("name", "path"), CASES)
def test_no_text_of_a_peer_holds_anything_but_what_can_be_printed(name, path) -> None:
    header, arrays = MESSAGES[name].to_wire()
    data = encode(with_text(header, path, HOSTILE), arrays)
    shown: list[str] = []
    try:
        shown += texts(read(data))
    except ProtocolError as error:
        shown.append(str(error))
    assert [text for text in shown if not text.isprintable()] == []


def test_what_can_be_printed_arrives_as_it_was_said() -> None:
    said = r"größer als 3: C:\path — «x»"
    header, arrays = MESSAGES["fault"].to_wire()
    assert decode_message(encode({**header, "message": said}, arrays), LIMITS).message == said
