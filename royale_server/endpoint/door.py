"""The first to read what a new connection sends: refuses it at little cost, or hands it on.

A refusal takes one read and one write, and neither a task nor a WebSocket, so that a flood of wrong
tokens costs the sessions nothing that they would notice. What is let in goes to the library byte by
byte as it came; the library's own reading of it is judged once more, by the same rules. Opens
no WebSocket and reads nothing behind the opening request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from royale_client.wire.errors import one_line
from royale_server.endpoint.complaints import Complaints, host_of
from royale_server.endpoint.entry import EntryRules, Refusal
from royale_server.endpoint.handshake import ObservedConnection, address_of

logger = logging.getLogger(__name__)

MOST_WAITING = 256
"""Connections that have not sent a whole request; the oldest makes room for the next."""
MAX_HEAD_BYTES = 16 * 1024
"""Of an opening request; ours have 400."""
REQUEST_TIMEOUT_S = 4.0

_START = b"GET "
_END = b"\r\n\r\n"


class Doorkeeper:
    """Makes a `Door` for every new connection; stands in for the library's own constructor.

    Args:
        rules: Who may come in.
    """

    def __init__(self, rules: EntryRules) -> None:
        self.rules = rules
        self._complaints = Complaints()
        self._waiting: OrderedDict[Door, None] = OrderedDict()

    def __call__(self, *arguments: Any, **settings: Any) -> Door:  # noqa: ANN401 - the library's
        """Return what the transport of a new connection talks to first."""
        make = partial(ObservedConnection, *arguments, **settings)
        return Door(self, make)

    def judge(self, head: bytes) -> Refusal | None:
        """Judge the head of an opening request, without its last blank line."""
        return self.rules.refusal(_values(head))

    def came(self, door: Door) -> None:
        """Take note of a connection that has not said anything."""
        self._waiting[door] = None
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            oldest.give_up("others came while it said nothing")

    def went(self, door: Door) -> None:
        """A connection was handed on, refused or lost."""
        self._waiting.pop(door, None)

    def say(self, address: str, text: str) -> None:
        """Log what a stranger did, unless it has been said often enough."""
        swallowed = self._complaints.may_say(host_of(address), time.monotonic())
        if swallowed is None:
            return
        more = f" ({swallowed:,} more like it were not logged)" if swallowed else ""
        logger.warning("%s%s", one_line(text), more)  # the library may quote the stranger

    def close(self) -> None:
        """Let nobody wait any longer."""
        for door in list(self._waiting):
            door.give_up(None)


class Door(asyncio.Protocol):
    """A connection until its opening request is there."""

    def __init__(self, keeper: Doorkeeper, make: Callable[[], ObservedConnection]) -> None:
        self._keeper = keeper
        self._make = make
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.address = "nowhere yet"
        """Where the peer is, for messages."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, for a while."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.address = address_of(transport)
        late = partial(self.give_up, "it said nothing in time")
        self._timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, late)
        self._keeper.came(self)

    def data_received(self, data: bytes) -> None:
        """Judge the request once its head is there."""
        if self._transport is None:
            return  # refused, and it goes on talking
        self._head += data
        head, end, _ = self._head.partition(_END)
        if not end and self._head[: len(_START)] == _START[: len(self._head)]:
            if len(self._head) > MAX_HEAD_BYTES:
                self.give_up("its request is too long")
            return
        refusal = self._keeper.judge(head) if end else None
        if refusal is None:
            self._hand_on(self._transport)
        else:
            self._refuse(self._transport, refusal)

    def eof_received(self) -> bool:
        """End the connection: whoever asks for nothing gets nothing."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that a connection came to nothing."""
        if self._transport is not None:
            self._leave()
            self._keeper.say(self.address, self._closed("it left before it had said anything"))

    def give_up(self, why: str | None) -> None:
        """End a connection that has said nothing of use; say why, if there is a reason."""
        transport = self._transport
        if transport is None:
            return
        self._leave()
        transport.abort()
        if why is not None:
            self._keeper.say(self.address, self._closed(why))

    def _hand_on(self, transport: asyncio.Transport) -> None:
        """Let the library go on as if it had been there from the start."""
        self._leave()
        connection = self._make()
        connection.say = self._keeper.say
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(self._head)

    def _refuse(self, transport: asyncio.Transport, refusal: Refusal) -> None:
        self._leave()
        transport.write(_response(refusal))
        transport.close()
        self._keeper.say(self.address, f"client at {self.address}: {refusal.why}")

    def _leave(self) -> None:
        self._keeper.went(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _closed(self, why: str) -> str:
        return f"a connection from {self.address} was closed: {why}"


def _values(head: bytes) -> Callable[[str], Sequence[str]]:
    """Read the headers of a request, as far as they can be; the library is stricter."""
    found: dict[str, list[str]] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        found.setdefault(name.lower(), []).append(value.strip(" \t"))
    return lambda name: found.get(name, ())


def _response(refusal: Refusal) -> bytes:
    body = refusal.text.encode()
    head = (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
        f"Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
