"""Every message of the protocol, and messages to and from bytes. The one import for everybody else.

Which message may be sent when is not known here; that stands in ``grammar``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from royale_client.wire.codec import Parsed, encode, parse
from royale_client.wire.dtypes import Array
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import MessageDecodeError, brief
from royale_client.wire.handshake import Hello, Welcome
from royale_client.wire.hello_rules import check_hello
from royale_client.wire.limits import Limits
from royale_client.wire.notices import Busy, Fault, Goodbye, Log, Stop
from royale_client.wire.probes import Probe, Probed
from royale_client.wire.snapshots import Restore, Restored, Snapshot, Snapshotted
from royale_client.wire.turns import Action, Step

__all__ = [
    "MESSAGE_TYPES",
    "Action",
    "Busy",
    "EpisodeMetric",
    "Fault",
    "Goodbye",
    "Hello",
    "Log",
    "Message",
    "Probe",
    "Probed",
    "Restore",
    "Restored",
    "Snapshot",
    "Snapshotted",
    "Step",
    "Stop",
    "Welcome",
    "check_hello",
    "decode_message",
    "encode_message",
    "message_of",
    "message_type",
]

Message: TypeAlias = (
    Hello
    | Probe
    | Probed
    | Welcome
    | Restore
    | Restored
    | Step
    | Action
    | Snapshot
    | Snapshotted
    | Busy
    | Stop
    | Goodbye
    | Fault
    | Log
)

_READERS: dict[str, Callable[[dict[str, Any], Mapping[str, Array]], Message]] = {
    kind.TYPE: kind.from_wire
    for kind in (
        Hello,
        Probe,
        Probed,
        Welcome,
        Restore,
        Restored,
        Step,
        Action,
        Snapshot,
        Snapshotted,
        Busy,
        Stop,
        Goodbye,
        Fault,
        Log,
    )
}

MESSAGE_TYPES = tuple(_READERS)
"""Every value of the header key ``t``."""


def encode_message(message: Message) -> bytes:
    """Write a message.

    Raises:
        ContractError: It holds an array or a value that cannot travel.
    """
    header, arrays = message.to_wire()
    return encode(header, arrays)


def decode_message(data: bytes | bytearray | memoryview, limits: Limits) -> Message:
    """Read a message of any type.

    Raises:
        ProtocolError: It is none, or a field of it is wrong.
    """
    return message_of(parse(data, limits))


def message_of(parsed: Parsed) -> Message:
    """Read a message whose header and array table are read already.

    Raises:
        ProtocolError: It is none, or a field of it is wrong.
    """
    arrays = parsed.arrays()
    return _READERS[message_type(parsed.header)](parsed.header, arrays)


def message_type(header: dict[str, Any]) -> str:
    """Read the type of a message from its header.

    Raises:
        MessageDecodeError: It is missing or unknown.
    """
    kind = header.get("t")
    if type(kind) is not str or kind not in _READERS:
        raise MessageDecodeError(
            "the message has no known type",
            where="header key t",
            got=brief(kind) if "t" in header else "nothing",
            expected=f"one of {', '.join(_READERS)}",
        )
    return kind
