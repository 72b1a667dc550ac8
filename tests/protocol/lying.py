"""Peers that may say anything, each with the session that listens to it and what must hold then."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random

from royale_client.session import Answered, ClientSession
from royale_client.wire.errors import FAULT_CODES, ProtocolError
from royale_client.wire.grammar import State
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    Action,
    Busy,
    Fault,
    Goodbye,
    Hello,
    Log,
    Message,
    Snapshotted,
    Stop,
    decode_message,
    encode_message,
)
from royale_client.wire.snapshots import SNAPSHOT
from royale_server.endpoint.session import HelloReceived, ServerSession, StepReceived
from tests.hostile import hostile
from tests.wire.builders import make_hello, make_step, make_welcome, rows_of

LIMITS = Limits()
HELLOS = (
    make_hello(features=(SNAPSHOT,)),
    make_hello(groups=(2, 1), masks=True),
)
RECORD = {"time_s": 0.0, "level": "info", "logger": "l", "message": "m"}


class LyingClient:
    """A server session whose client may say anything; checks what it believes.

    Args:
        hello: What the client says of itself.
    """

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self._which: int | None = HELLOS.index(hello)  # none of them once a changed one is believed
        self.server = ServerSession(LIMITS)
        self.taken = [0] * len(hello.groups)
        self.is_over = False

    def say(self, data: bytes) -> None:
        """Have the server take a message, and answer as a server does."""
        try:
            events = self.server.receive(data)
        except ProtocolError as error:
            self._fault(error)
            return
        assert not (self.is_over and events)
        for event in events:
            if isinstance(event, HelloReceived):
                if data != self.good("hello"):
                    self.hello, self._which = event.hello, None
                self.taken = [0] * len(event.hello.groups)
                self.server.welcome(make_welcome(event.hello))
            elif isinstance(event, StepReceived):
                self._took(event)

    def _fault(self, error: ProtocolError) -> None:
        """The error can be told in a sentence, and ends the session once."""
        assert not self.is_over, "who has been ended is not listened to again"
        self.is_over = True
        assert error.code in FAULT_CODES
        fault = decode_message(self.server.fault_of(error), LIMITS)
        assert isinstance(fault, Fault)
        assert fault.message == error.sentence != ""

    def _took(self, event: StepReceived) -> None:
        """Every number comes once, in order, and only after the answer to the one before."""
        group, number = event.step.group, event.step.request
        assert number == self.taken[group] + 1
        self.taken[group] = number
        rows = self.hello.groups[group]
        assert 0 <= event.asking <= rows
        assert len(event.step.observations[0]) == event.asking

    def answer(self, group: int) -> None:
        """Answer what is open."""
        if self.server.state is not State.READY:
            return
        number = self.server.outstanding(group)
        if number is not None:
            asking = self.server._asking[group]
            self.server.action(group, number, 1, rows_of(self.hello.action_space, asking))

    def good(self, kind: str, group: int = 0) -> bytes:
        """A message that a client of this hello may send at some time."""
        number = self.taken[group] + 1 if group < len(self.taken) else 1
        if self._which is None:
            return _good(self.hello, kind, group, number)
        return _good_of(self._which, kind, group, number)


@lru_cache(maxsize=256)
def _good_of(which: int, kind: str, group: int, number: int) -> bytes:
    return _good(HELLOS[which], kind, group, number)


def _good(hello: Hello, kind: str, group: int, number: int) -> bytes:
    messages: dict[str, Callable[[], Message]] = {
        "hello": lambda: hello,
        "step": lambda: make_step(hello, request=number, group=group),
        "log": lambda: Log(records=(RECORD,), dropped=1),
        "snapshotted": lambda: Snapshotted(number=1, failure="no"),
        "goodbye": lambda: Goodbye(reason="done"),
    }
    return encode_message(messages[kind]())


class LyingServer:
    """A client session whose server may say anything."""

    def __init__(self) -> None:
        self.client = ClientSession(HELLOS[0])
        self.client.start()
        self.answers = 0
        self.is_over = False

    def say(self, data: bytes) -> None:
        """Have the client take a message, and step whenever it may."""
        try:
            events = self.client.receive(data)
        except ProtocolError:
            self.is_over = True
            return
        assert not (self.is_over and events)
        for event in events:
            if isinstance(event, Answered):
                self.answers += 1
                (action,) = event.actions
                assert action.dtype == "int64"
                assert action.shape == (3,)
        if self.client.state is State.READY and self.client.outstanding(0) is None:
            step = make_step(HELLOS[0], request=self.answers + 1)
            self.client.step(
                0,
                observations=step.observations,
                rewards=step.rewards,
                terminated=step.terminated,
                truncated=step.truncated,
            )

    def good(self, kind: str) -> bytes:
        """A message that a server may send at some time."""
        actions = rows_of(HELLOS[0].action_space, 3)
        number = self.answers + 1
        messages = {
            "welcome": make_welcome(HELLOS[0]),
            "action": Action(group=0, request=number, policy_version=0, actions=actions),
            "busy": Busy(phase="learn", since_s=1.0),
            "stop": Stop(reason="finished"),
            "fault": Fault(code="internal", message="sorry"),
        }
        return encode_message(messages[kind])


def bombard(messages: int, seed: int) -> int:
    """Send hostile messages through server sessions in every state; return how many were taken."""
    random = Random(seed)
    client, taken = LyingClient(HELLOS[0]), 0
    for _ in range(messages):
        if client.is_over or client.server.state in (State.LEFT, State.FAULTED):
            taken += sum(client.taken)
            client = LyingClient(random.choice(HELLOS))
            for kind in ("hello", *["step"] * random.randint(0, 3))[: random.randint(0, 4)]:
                client.say(client.good(kind))
                client.answer(0)
        kind = random.choice(("hello", "step", "step", "step", "log", "snapshotted", "goodbye"))
        if client.server.state is State.OPENED:
            kind = "hello"
        group = random.randrange(len(client.hello.groups))
        client.say(hostile(random, client.good(kind, group)))
        if random.random() < 0.5:
            client.answer(group if group < len(client.taken) else 0)
    return taken
