"""Reads what a peer sends, and says which clause it broke if it cannot be read.

The one door through which messages come into the suite; what they mean in a conversation is judged
elsewhere.
"""

from __future__ import annotations

from royale_client.conformance.scenario import LIMITS, ViolationError
from royale_client.wire.codec import parse
from royale_client.wire.errors import MessageDecodeError, ProtocolError
from royale_client.wire.messages import MESSAGE_TYPES, Message, message_of

BINARY = ("P3",)
FRAMING = ("P4", "P5", "P7", "P8", "P9", "P10")
TYPE = ("P6", "P42")

CLAUSES_OF_MESSAGE = {
    "hello": ("P19",),
    "welcome": ("P24",),
    "step": ("P25",),
    "action": ("P34",),
    "busy": ("P37",),
    "log": ("P41",),
    "stop": ("P43",),
    "goodbye": ("P44",),
    "fault": ("P45",),
    "snapshot": ("P53",),
    "snapshotted": ("P54",),
    "restore": ("P58",),
    "restored": ("P58",),
    "probe": ("P77",),
    "probed": ("P78",),
}
"""By type of message, the clause that says what is in it."""


def read(data: bytes | str) -> Message:
    """Read one message.

    Raises:
        ViolationError: It is none, or a field of it is missing or of another kind.
    """
    if isinstance(data, str):
        raise ViolationError(BINARY, f"a text message of {len(data)} characters: {data[:60]!r}")
    try:
        parsed = parse(data, LIMITS)
    except ProtocolError as error:
        raise ViolationError(FRAMING, f"bytes that are no message: {error}") from error
    kind = parsed.header.get("t")
    if kind not in MESSAGE_TYPES:
        raise ViolationError(TYPE, f"a message of the type {kind!r}")
    try:
        return message_of(parsed)
    except MessageDecodeError as error:
        raise ViolationError(("P6", *CLAUSES_OF_MESSAGE[kind]), str(error)) from error
    except ProtocolError as error:
        raise ViolationError(CLAUSES_OF_MESSAGE[kind], str(error)) from error


_HELLO_CLAUSES = {
    "groups": ("P19", "P48", "P49"),
    "environments": ("P21",),
    "seats": ("P21",),
    "masks": ("P22",),
    "episode_metrics": ("P40",),
    "role": ("P19",),
}


def clauses_of_hello(error: ProtocolError) -> tuple[str, ...]:
    """Return the clauses about the part of a hello that contradicts itself."""
    return _HELLO_CLAUSES.get(error.where.removeprefix("hello."), ("P19", "P23"))


_STEP_CLAUSES = {
    "rows": ("P25",),
    "masks": ("P29",),
    "rewards": ("P27",),
    "terminated": ("P27",),
    "final_observations": ("P30",),
    "step.episodes": ("P39",),
}


def clauses_of_step(error: ProtocolError) -> tuple[str, ...]:
    """Return the clauses about the part of a step that does not fit its hello."""
    part = error.where.rpartition(" of group ")[2].partition(", ")[2] or error.where
    found = (clauses for name, clauses in _STEP_CLAUSES.items() if part.startswith(name))
    return next(found, ("P32",))
