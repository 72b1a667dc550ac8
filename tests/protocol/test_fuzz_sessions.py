"""Both sessions between truth and nonsense: one kind of error escapes, numbers stay in order."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from royale_client.wire.forms import MAX_FORMS
from royale_client.wire.grammar import State
from royale_client.wire.messages import Hello
from tests.hostile import hostile
from tests.protocol.lying import HELLOS, LyingClient, LyingServer, bombard

SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["hello", "step", "step", "step", "log", "snapshotted", "goodbye"])


class ServerUnderFire(RuleBasedStateMachine):
    """A client that says what it may, what it may not, and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.client = LyingClient(HELLOS[0])

    @rule(which=st.sampled_from(HELLOS))
    def reconnect(self, which: Hello) -> None:
        self.client = LyingClient(which)
        self.client.say(self.client.good("hello"))

    @rule(kind=KINDS, group=st.integers(0, 1))
    def say_something(self, kind: str, group: int) -> None:
        self.client.say(self.client.good(kind, min(group, len(self.client.hello.groups) - 1)))

    @rule(kind=KINDS, seed=SEEDS)
    def lie(self, kind: str, seed: int) -> None:
        self.client.say(hostile(Random(seed), self.client.good(kind)))

    @rule(data=st.binary(max_size=100))
    def rave(self, data: bytes) -> None:
        self.client.say(data)

    @rule(group=st.integers(0, 1))
    def answer(self, group: int) -> None:
        if group < len(self.client.taken):
            self.client.answer(group)

    @precondition(lambda self: self.client.server.state is State.READY)
    @rule()
    def play(self) -> None:
        """Some turns in order, so that forms are learnt."""
        for _ in range(4):
            self.client.answer(0)
            self.client.say(self.client.good("step"))

    @invariant()
    def little_is_kept(self) -> None:
        forms = self.client.server._step_forms
        assert forms is None or len(forms) <= MAX_FORMS


SERVER_KINDS = st.sampled_from(["welcome", "action", "action", "action", "busy", "stop", "fault"])


class ClientUnderFire(RuleBasedStateMachine):
    """A server that says what it may, what it may not, and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.server = LyingServer()

    @rule()
    def reconnect(self) -> None:
        self.server = LyingServer()
        self.server.say(self.server.good("welcome"))

    @rule(kind=SERVER_KINDS)
    def say_something(self, kind: str) -> None:
        self.server.say(self.server.good(kind))

    @rule(kind=SERVER_KINDS, seed=SEEDS)
    def lie(self, kind: str, seed: int) -> None:
        self.server.say(hostile(Random(seed), self.server.good(kind)))

    @rule(data=st.binary(max_size=100))
    def rave(self, data: bytes) -> None:
        self.server.say(data)


for machine in (ServerUnderFire, ClientUnderFire):
    machine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestServerUnderFire = ServerUnderFire.TestCase
TestClientUnderFire = ClientUnderFire.TestCase


def test_a_thousand_hostile_messages_end_their_sessions_and_nothing_else() -> None:
    assert bombard(1000, seed=1) > 0


def test_replaced_hellos_are_hostile_in_every_way() -> None:
    """The generator does what it says: most of what it makes of a hello is refused."""
    random, refused = Random(5), 0
    for _ in range(300):
        client = LyingClient(HELLOS[0])
        client.say(hostile(random, client.good("hello")))
        refused += client.is_over
    assert 200 < refused < 300
