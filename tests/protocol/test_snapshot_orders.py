"""Every order of messages about saved environments; nothing but a ``ProtocolError`` escapes."""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.session import Answered, ClientSession, RestoreAsked, SnapshotAsked, Welcomed
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import Side, State, may_send
from royale_client.wire.messages import (
    Action,
    Busy,
    Goodbye,
    Log,
    Restore,
    Restored,
    Snapshot,
    Snapshotted,
    Stop,
    encode_message,
)
from royale_client.wire.snapshots import as_states
from royale_client.wire.spaces import DiscreteSpec
from royale_server.endpoint.session import (
    HelloReceived,
    RestoredReceived,
    ServerSession,
    StepReceived,
)
from tests.wire.builders import VECTOR, make_hello, make_step, make_welcome, rows_of

HELLO = make_hello(features=("snapshot", "restart"))
LAST = 41
STATES = as_states([b"state"])
LONGEST = 4

CLIENT_WORDS = ("restored", "restored failed", "step", "snapshotted", "log", "goodbye")
SERVER_WORDS = ("restore", "restore nothing", "snapshot", "answer", "busy", "stop")


class ScriptedClient:
    """Plays words against a server that waits for a restored client.

    The server asks for a snapshot at every step, if none is outstanding, and then answers.
    """

    def __init__(self) -> None:
        self.server = ServerSession()
        self.server.receive(encode_message(HELLO))
        self.server.welcome(make_welcome(HELLO, last_requests=(LAST,), restores=True))
        self.server.restore(STATES)
        self.heard = 0
        self.steps = 0
        self.asked = False

    def say(self, word: str) -> None:
        try:
            events = self.server.receive(self.data(word))
        except ProtocolError as error:
            self.server.fault_of(error)
            events = []
        self.heard += len(events)
        for event in events:
            self.react(event)
        self.asked = self.asked and word != "snapshotted"

    def react(self, event: object) -> None:
        if isinstance(event, RestoredReceived) and event.to_adopt:
            self.server.adopt((3,))
            self.server.action(0, LAST, 0, rows_of(DiscreteSpec(2), 3))
        if isinstance(event, StepReceived):
            if not self.asked:
                self.server.snapshot(5)
                self.asked = True
            self.server.action(0, event.step.request, 0, rows_of(DiscreteSpec(2), 3))

    def data(self, word: str) -> bytes:
        self.steps += word == "step"
        messages: dict[str, Any] = {
            "restored": Restored(),
            "restored failed": Restored(failure="no disk"),
            "step": make_step(HELLO, request=LAST + self.steps),
            "snapshotted": Snapshotted(number=5, states=STATES),
            "log": Log(records=()),
            "goodbye": Goodbye(reason="done"),
        }
        return encode_message(messages[word])


def legal_from_the_client(words: tuple[str, ...]) -> int:
    """Count by hand the messages before the first mistake; a step makes the server ask."""
    is_restored = asked = False
    for heard, word in enumerate(words):
        if word.startswith("restored") and not is_restored:
            is_restored = True
        elif word == "step" and is_restored:
            asked = True
        elif word == "snapshotted" and asked:
            asked = False
        elif word == "goodbye":
            return heard + 1
        elif word != "log":
            return heard
    return len(words)


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_a_server_takes_exactly_what_a_restoring_client_may_send(length: int) -> None:
    for words in product(CLIENT_WORDS, repeat=length):
        client = ScriptedClient()
        for word in words:
            client.say(word)
        assert client.heard == legal_from_the_client(words), words


class ScriptedServer:
    """Plays words against a client that was promised a restore and answers whatever comes."""

    def __init__(self) -> None:
        self.client = ClientSession(HELLO)
        self.client.start()
        welcome = make_welcome(HELLO, last_requests=(LAST,), restores=True)
        self.client.receive(encode_message(welcome))
        self.heard = 0

    def say(self, word: str) -> None:
        number = self.client.outstanding(0) or 1
        try:
            events = self.client.receive(self.data(word, number))
        except ProtocolError:
            events = []
        self.heard += len(events)
        for event in events:
            self.react(event)

    def react(self, event: object) -> None:
        if isinstance(event, SnapshotAsked):
            self.client.snapshotted(event.number, STATES)
        if isinstance(event, RestoreAsked):
            self.client.restored(asking=(3,) if event.states else None)
        if isinstance(event, RestoreAsked | Answered) and self.client.outstanding(0) is None:
            step = make_step(HELLO, request=2)
            self.client.step(
                0,
                observations=step.observations,
                rewards=step.rewards,
                terminated=step.terminated,
                truncated=step.truncated,
            )

    def data(self, word: str, number: int) -> bytes:
        actions = rows_of(DiscreteSpec(2), 3)
        messages: dict[str, Any] = {
            "restore": Restore(states=STATES),
            "restore nothing": Restore(),
            "snapshot": Snapshot(number=5),
            "answer": Action(group=0, request=number, policy_version=0, actions=actions),
            "busy": Busy(phase="restore", since_s=1.0),
            "stop": Stop(reason="finished"),
        }
        return encode_message(messages[word])


def legal_from_the_server(words: tuple[str, ...]) -> int:
    """Count by hand the messages before the first mistake or with the stop."""
    restores = 0
    for heard, word in enumerate(words):
        if word.startswith("restore"):
            restores += 1
            if restores == 2:
                return heard
        elif word == "stop":
            return heard + 1
        elif word != "busy" and restores == 0:
            return heard
    return len(words)


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_a_client_takes_exactly_what_a_restoring_server_may_send(length: int) -> None:
    for words in product(SERVER_WORDS, repeat=length):
        server = ScriptedServer()
        for word in words:
            server.say(word)
        assert server.heard == legal_from_the_server(words), words


MOVES = (*range(9), *range(9), *range(9), 9)
"""Moves of a `Crossing`; a stop is rare, since little can follow it."""


class Crossing:
    """Two groups, both sessions and both directions of a line on which messages cross."""

    def __init__(self, *, restores: bool) -> None:
        self.hello = make_hello(groups=(3, 2), features=("snapshot", "restart"))
        self.client = ClientSession(self.hello)
        self.server = ServerSession()
        self.restores = restores
        self.to_server = deque([self.client.start()])
        self.to_client: deque[bytes] = deque()
        self.asked = 0
        self.taken = 0
        self.acted = [False, False]

    def play(self, move: int) -> None:
        """Make one move of one side, if the rules it knows allow it."""
        match move:
            case 0 | 1:
                self.hear_client()
            case 2 | 3:
                self.hear_server()
            case 4 | 5:
                self.answer(move - 4)
            case 6:
                self.ask()
            case 7 | 8:
                self.restore(as_states([b"one", b"two"]) if move == 7 else ())
            case 9:
                if may_send(Side.SERVER, self.server.state, "stop"):
                    self.to_client.append(self.server.stop("stopping"))

    def hear_client(self) -> None:
        for event in self.server.receive(self.to_server.popleft()) if self.to_server else ():
            match event:
                case HelloReceived():
                    last = (LAST, 7) if self.restores else (0, 0)
                    welcome = make_welcome(self.hello, last_requests=last, restores=self.restores)
                    self.to_client.append(self.server.welcome(welcome))
                case RestoredReceived(to_adopt=True):
                    self.server.adopt((3, 2))

    def hear_server(self) -> None:
        for event in self.client.receive(self.to_client.popleft()) if self.to_client else ():
            match event:
                case Welcomed(welcome=welcome):
                    if not welcome.restores:
                        self.step(0, 1)
                case RestoreAsked(states=states):
                    asking = (3, 2) if states else None
                    self.to_server.append(self.client.restored(asking=asking))
                    self.acted = [bool(states)] * 2
                    if not states:
                        self.step(0, 1)
                case SnapshotAsked(number=number):
                    self.taken += 1
                    self.to_server.append(self.client.snapshotted(number, [b"one", b"two"]))
                case Answered(group=group):
                    self.acted[group] = True
                    self.step(group)

    def step(self, *groups: int) -> None:
        for group in groups:
            n = self.hello.groups[group]
            outcome = {
                "rewards": np.ones(n),
                "terminated": np.zeros(n, bool),
                "truncated": np.zeros(n, bool),
            }
            content = outcome if self.acted[group] else {}
            data = self.client.step(group, observations=rows_of(VECTOR, n), **content)
            self.to_server.append(data)

    def answer(self, group: int) -> None:
        if self.server.state is State.READY and (number := self.server.outstanding(group)):
            actions = rows_of(DiscreteSpec(2), self.hello.groups[group])
            self.to_client.append(self.server.action(group, number, 0, actions))

    def ask(self) -> None:
        try:
            self.to_client.append(self.server.snapshot(self.asked))
        except ProtocolError:
            return
        self.asked += 1

    def restore(self, states: tuple[np.ndarray, ...]) -> None:
        if may_send(Side.SERVER, self.server.state, "restore"):
            self.to_client.append(self.server.restore(states))

    def finish(self) -> None:
        """Deliver all that is still on its way."""
        while self.to_server or self.to_client:
            self.hear_client()
            self.hear_server()


@settings(max_examples=200, deadline=None)
@given(restores=st.booleans(), moves=st.lists(st.sampled_from(MOVES), max_size=60))
def test_peers_that_keep_the_rules_never_fault_each_other_however_messages_cross(
    restores: bool, moves: list[int]
) -> None:
    line = Crossing(restores=restores)
    for move in moves:
        line.play(move)
    line.finish()
    assert line.taken == line.asked
    assert line.client.state is line.server.state
    if line.server.state is State.READY:
        for group in (0, 1):
            assert line.client.outstanding(group) == line.server.outstanding(group)
