"""Every order of messages, legal or not: nothing but a ``ProtocolError`` escapes (case H35)."""

from __future__ import annotations

from itertools import product

import pytest

from royale_client.session import Answered, ClientSession
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import State
from royale_client.wire.messages import (
    Action,
    Busy,
    Fault,
    Goodbye,
    Stop,
    encode_message,
)
from royale_client.wire.spaces import DiscreteSpec
from royale_server.endpoint.session import (
    GoodbyeReceived,
    HelloReceived,
    ServerSession,
    StepReceived,
)
from tests.wire.builders import make_hello, make_step, make_welcome, rows_of

HELLO = make_hello()
GARBAGE = b"\x05\x00\x00\x00nonsense"
LONGEST = 5

CLIENT_WORDS = ("hello", "step", "step out of order", "step unanswered", "goodbye", "garbage")
SERVER_WORDS = ("welcome", "answer", "answer out of order", "busy", "stop", "fault", "garbage")


class ScriptedClient:
    """Plays one sequence of words against a server session that answers whatever it may."""

    def __init__(self) -> None:
        self.server = ServerSession()
        self.sent = 0
        self.steps = 0
        self.failed = False

    def say(self, word: str) -> None:
        failed_before = self.failed
        try:
            events = self.server.receive(self.data(word))
        except ProtocolError as error:
            self.server.fault_of(error)
            self.failed = True
            events = []
        assert not (failed_before and events), "after a fault nothing is heard any more"
        for event in events:
            self.react(event, answer=word != "step unanswered")

    def react(self, event: object, *, answer: bool) -> None:
        if isinstance(event, HelloReceived):
            self.server.welcome(make_welcome(event.hello))
        if isinstance(event, StepReceived):
            self.steps += 1
            if answer:
                step = event.step
                self.server.action(0, step.request, 0, rows_of(DiscreteSpec(2), event.asking))

    def data(self, word: str) -> bytes:
        if word == "hello":
            return encode_message(HELLO)
        if word == "goodbye":
            return encode_message(Goodbye(reason="done"))
        if word == "garbage":
            return GARBAGE
        if word == "step out of order":
            return encode_message(make_step(HELLO, request=self.sent + 2))
        self.sent += 1
        return encode_message(make_step(HELLO, request=self.sent))


def legal_steps(words: tuple[str, ...]) -> int:
    """Count by hand: steps between hello and the first mistake, each after an answered one."""
    steps, greeted, answered = 0, False, True
    for word in words:
        if word == "hello" and not greeted:
            greeted = True
        elif word in ("step", "step unanswered") and greeted and answered:
            steps += 1
            answered = word == "step"
        else:
            return steps
    return steps


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_a_server_survives_every_order_and_takes_exactly_the_legal_steps(length: int) -> None:
    # The longest orders are played with every step answered; the shorter ones also without.
    alphabet = CLIENT_WORDS if length < LONGEST else (*CLIENT_WORDS[:3], *CLIENT_WORDS[4:])
    for words in product(alphabet, repeat=length):
        client = ScriptedClient()
        for word in words:
            client.say(word)
        assert client.steps == legal_steps(words), words


def test_a_goodbye_is_heard_at_every_moment_after_the_hello() -> None:
    for before in (("hello",), ("hello", "step"), ("hello", "step unanswered")):
        client = ScriptedClient()
        for word in before:
            client.say(word)
        (event,) = client.server.receive(client.data("goodbye"))
        assert isinstance(event, GoodbyeReceived)


class ScriptedServer:
    """Plays one sequence of words against a client session that steps whenever it may."""

    def __init__(self) -> None:
        self.client = ClientSession(HELLO)
        self.client.start()
        self.answers = 0
        self.failed = False

    def say(self, word: str) -> None:
        failed_before = self.failed
        try:
            events = self.client.receive(self.data(word))
        except ProtocolError:
            self.failed = True
            events = []
        assert not (failed_before and events), "a broken server is not listened to again"
        for event in events:
            self.answers += isinstance(event, Answered)
        if self.client.state is State.READY and self.client.outstanding(0) is None:
            step = make_step(HELLO, request=self.answers + 1)
            self.client.step(
                0,
                observations=step.observations,
                rewards=step.rewards,
                terminated=step.terminated,
                truncated=step.truncated,
            )

    def data(self, word: str) -> bytes:
        number = self.answers + (2 if word == "answer out of order" else 1)
        actions = rows_of(DiscreteSpec(2), 3)
        messages = {
            "welcome": make_welcome(HELLO),
            "answer": Action(group=0, request=number, policy_version=0, actions=actions),
            "answer out of order": Action(
                group=0, request=number, policy_version=0, actions=actions
            ),
            "busy": Busy(phase="learn", since_s=1.0),
            "stop": Stop(reason="finished"),
            "fault": Fault(code="internal", message="sorry"),
        }
        return GARBAGE if word == "garbage" else encode_message(messages[word])


def legal_answers(words: tuple[str, ...]) -> int:
    """Count by hand: answers between the welcome and the first mistake or ending."""
    answers, welcomed = 0, False
    for word in words:
        if word == "welcome" and not welcomed:
            welcomed = True
        elif word == "answer" and welcomed:
            answers += 1
        elif word != "busy":
            return answers
    return answers


@pytest.mark.parametrize("length", range(1, LONGEST))
def test_a_client_survives_every_order_and_takes_exactly_the_legal_answers(length: int) -> None:
    for words in product(SERVER_WORDS, repeat=length):
        server = ScriptedServer()
        for word in words:
            server.say(word)
        assert server.answers == legal_answers(words), words
