"""Clients come, play, lie and vanish in any order: frames are conserved, good ones unharmed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from algorithms.spaces import Spaces
from royale_client.wire.grammar import State
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.messages import Goodbye, Hello, Log, encode_message
from tests.hostile import hostile
from tests.server.loop_world import ACTION, OBSERVATION, LoopWorld, ScriptedClient, step_arrays

HELLO = Hello(
    client_name="probe",
    process_id="p",
    env_id="Table-v0",
    observation_space=OBSERVATION,
    action_space=ACTION,
    groups=(1,),
)
MOST_LIARS = 6
SEEDS = st.integers(0, 2**32 - 1)
RECORD = {"time_s": 0.0, "level": "info", "logger": "l", "message": "m"}


class RunUnderFire(RuleBasedStateMachine):
    """One good client and some liars share a run that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LoopWorld(target=12)
        self.good = self.world.client("good", groups=(2,))
        self.liars: list[ScriptedClient] = []
        self.gone: list[ScriptedClient] = []
        self.num_turns = 0
        self.num_named = 0

    @rule(slots=st.integers(1, 3), role=st.sampled_from(["train", "eval"]))
    def a_liar_joins(self, slots: int, role: str) -> None:
        if len(self.liars) < MOST_LIARS:
            self.num_named += 1
            name = f"liar {self.num_named}"
            liar = self.world.client(name, groups=(slots,), role=role, features=(RECONNECT,))
            self.liars.append(liar)

    @rule(turns=st.integers(1, 5))
    def the_good_client_plays(self, turns: int) -> None:
        for _ in range(turns):
            if not self.good.may_step():
                self.world.wait(2.0)
            if self.good.may_step():
                self.good.step(obs=[1, 2], rewards=[0.5, 0.5])
                self.num_turns += 1

    @rule(which=st.integers(0, MOST_LIARS - 1))
    def a_liar_plays(self, which: int) -> None:
        liar = self._liar(which)
        if liar is not None and liar.session.state is State.READY and liar.may_step():
            rows = liar.session.welcome.seeds.shape[0]
            liar.step(obs=[1] * rows, rewards=[0.0] * rows)

    @rule(which=st.integers(0, MOST_LIARS - 1), seed=SEEDS)
    def a_liar_lies(self, which: int, seed: int) -> None:
        liar = self._liar(which)
        if liar is not None:
            liar.send_raw(hostile(Random(seed), self._something_true(liar, seed)))

    @rule(which=st.integers(0, MOST_LIARS - 1), data=st.binary(max_size=60))
    def a_liar_raves(self, which: int, data: bytes) -> None:
        liar = self._liar(which)
        if liar is not None:
            liar.send_raw(data)

    @rule(which=st.integers(0, MOST_LIARS - 1))
    def a_liar_vanishes(self, which: int) -> None:
        liar = self._liar(which)
        if liar is not None:
            self.liars.remove(liar)
            liar.vanish()
            self.gone = [*self.gone[-3:], liar]

    @rule(which=st.integers(0, 3), lies=st.booleans(), seed=SEEDS)
    def a_liar_comes_back(self, which: int, lies: bool, seed: int) -> None:
        if not self.gone or len(self.liars) >= MOST_LIARS:
            return
        liar = self.gone.pop(which % len(self.gone))
        if liar.session.welcome is None:
            return
        back = liar.come_back()
        self.liars.append(back)
        if lies and back.closed is None:
            back.send_raw(hostile(Random(seed), liar.sent[-1]))
        elif back.closed is None:
            back.send_raw(liar.sent[-1])

    @rule(which=st.integers(0, MOST_LIARS - 1))
    def a_liar_is_named_by_another(self, which: int) -> None:
        liar = self._liar(which)
        if liar is None or liar.session.welcome is None or len(self.liars) >= MOST_LIARS:
            return
        token = liar.session.welcome.session_token
        hello = replace(liar.session.hello, process_id="another", resume_token=token)
        self.liars.append(ScriptedClient(self.world, hello).greet())

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        if self.good.may_step():  # or it would owe a request for too long, as anybody
            self.good.step(obs=[1, 2], rewards=[0.5, 0.5])
        self.world.wait(min(seconds, 50.0) if self.good.may_step() else seconds)

    def _liar(self, which: int) -> ScriptedClient | None:
        return self.liars[which % len(self.liars)] if self.liars else None

    def _something_true(self, liar: ScriptedClient, seed: int) -> bytes:
        """A message that the liar could send now, without its session's knowing."""
        kind = seed % 4
        if kind == 0:
            return encode_message(Log(records=(RECORD,)))
        if kind == 1:
            return encode_message(Goodbye(reason="done"))
        if liar.session.state is State.READY and liar.may_step():
            rows = liar.session.welcome.seeds.shape[0]
            arrays = step_arrays(obs=[1] * rows, rewards=[0.0] * rows)
            if liar.turns[0] == 0:
                arrays.update(rewards=None, terminated=None, truncated=None)
            liar.turns[0] += 1
            return liar.session.step(0, **arrays)
        return encode_message(liar.session.hello)

    @invariant()
    def frames_are_conserved(self) -> None:
        assert self.world.listener.errors == []
        assert self.world.hub.scheduler.ledger.conservation_error == 0

    @invariant()
    def the_good_client_is_unharmed(self) -> None:
        assert self.good.closed is None
        assert self.good.faults() == []

    @invariant()
    def who_is_gone_is_forgotten(self) -> None:
        open_ones = [c for c in [self.good, *self.liars] if c.closed is None]
        assert self.world.hub.num_connections == len(open_ones)

    def teardown(self) -> None:
        """With the liars gone, the good client goes on as if they had never been there."""
        for liar in self.liars:
            liar.vanish()
        before = self.num_turns
        for _ in range(30):
            self.the_good_client_plays(1)
        assert self.num_turns - before >= 25
        assert self.world.lessons


RunUnderFire.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestRunUnderFire = RunUnderFire.TestCase


class WaitingWorld(LoopWorld):
    """A run whose engine is still being built: nothing is known of its first client but a hello."""

    def _build(self, spaces: Spaces) -> None:
        pass


def test_first_hello_of_a_run_is_refused_or_waits_whatever_it_says():
    random, waiting = Random(4), 0
    good = encode_message(LoopWorld(target=4).client("first").session.hello)
    for _ in range(150):
        world = WaitingWorld(target=4)
        client = ScriptedClient(world, HELLO)
        client.send_raw(hostile(random, good))
        assert world.listener.errors == []
        waiting += client.closed is None
        assert world.hub.num_connections == (client.closed is None)
    assert 0 < waiting < 100


def test_faulty_client_among_fifty_at_one_address_is_not_noticed_by_them():
    def lessons(*, faulty: bool) -> list:
        world = LoopWorld(target=200)
        clients = [world.client(f"arm {n:02}") for n in range(50)]
        random = Random(3)
        for turn in range(12):
            for client in clients:
                assert client.may_step(), "everybody is answered in every round"
                client.step(obs=[turn], rewards=[1.0])
            if faulty:
                for _ in range(5):
                    liar = world.client("faulty", role="eval")
                    liar.send_raw(hostile(random, encode_message(liar.session.hello)))
                    liar.send_raw(b"nonsense")
                    assert liar.closed == "fault"
        assert [client.faults() for client in clients] == [[]] * 50
        assert [client.closed for client in clients] == [None] * 50
        return world.lessons

    disturbed, quiet = lessons(faulty=True), lessons(faulty=False)
    assert len(quiet) == 2  # 11 rounds with rewards are 550 frames
    assert disturbed == quiet
