"""What a client is tried with that follows assignments of seats, or that answers probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.client_talk import ClientTalk
from royale_client.conformance.scenario import NotApplicableError, Scenario, ViolationError
from royale_client.conformance.seat_ledger import SeatLedger, environments_of, seats_of
from royale_client.wire.errors import ProtocolError
from royale_client.wire.messages import Hello, Probe, Probed, Step
from royale_client.wire.probes import PROBE, QUESTIONS, Probes
from royale_client.wire.seating import (
    ASSIGNMENTS,
    Player,
    SeatAssignment,
    offered_bots,
    write_assignments,
)

FIRST_EPISODE = 4
"""Ordinals are the server's affair: they need not begin with 0."""
RATES = ("win_rate", "draw_rate")


def assignment(hello: Hello, slot: int, episode: int) -> SeatAssignment:
    """Make up who plays an episode of a slot: a bot in one of its seats, or in none."""
    environment, seat = environments_of(hello)[slot], seats_of(hello)[slot]
    num_seats = int((environments_of(hello) == environment).sum())
    bots = offered_bots(hello.features)
    if bots and seat == (episode + environment) % (num_seats + 1):
        name = bots[episode % len(bots)]
        return SeatAssignment(slot=slot, episode=episode, player=Player.SCRIPTED, name=name)
    if seat and episode % 2:
        return SeatAssignment(slot=slot, episode=episode, player=Player.SNAPSHOT, name="3")
    return SeatAssignment(slot=slot, episode=episode, player=Player.LEARNER)


class _Seating:
    """Assigns seats in a conversation, and holds the client to them."""

    def __init__(self, talk: ClientTalk) -> None:
        hello = talk.hello
        talk.needs(ASSIGNMENTS)
        if min(np.bincount(environments_of(hello))) < 2:
            raise NotApplicableError("the client has environments of one seat")
        self._hello = hello
        slots = range(hello.num_slots)
        first = [assignment(hello, s, FIRST_EPISODE + k) for s in slots for k in range(2)]
        self.ledger = SeatLedger(hello, first)
        self.welcome: dict[str, Any] = {
            "features": (ASSIGNMENTS,),
            "assignments": write_assignments(first),
        }
        self._next = [FIRST_EPISODE + 2] * hello.num_slots
        talk.watch_step = self.check
        talk.told_with_answer = self.told
        self._owed: dict[int, list[int]] = {}

    def check(self, step: Step) -> None:
        """A request has come."""
        self._owed[step.group] = self.ledger.check(step)

    def told(self, group: int) -> tuple[dict[str, Any], ...]:
        """Return the assignments that go with the next answer to a group."""
        slots = self._owed.pop(group, [])
        told = []
        for slot in slots:
            told.append(assignment(self._hello, slot, self._next[slot]))
            self._next[slot] += 1
        self.ledger.tell(slots, told)
        return write_assignments(told)


def _seats(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        seating = _Seating(talk)
        talk.welcome(**seating.welcome)
        talk.turns(5 * client.settings.turns)
        talk.stop("finished")


def _deals(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        hello = talk.hello
        if hello.role != "eval":
            raise NotApplicableError("the client is not of the role eval")
        seating = _Seating(talk)
        environments, seats = environments_of(hello), seats_of(hello)
        rates = {metric.name for metric in hello.episode_metrics if metric.aggregation == "ratio"}
        if len(np.unique(environments)) % 2 or not rates.issuperset(RATES):
            text = f"{len(np.unique(environments))} environments, and the ratios {sorted(rates)}"
            raise ViolationError(("P70",), text)
        seeds = (1000 * (environments // 2) + seats + 7).astype(np.uint64)
        talk.welcome(seeds=seeds, **seating.welcome)
        talk.collect()
        shown: dict[tuple[int, int], bytes] = {}
        for slot, observation in _observations(talk, seating.ledger):
            deal = (int(environments[slot]) // 2, int(seats[slot]))
            if shown.setdefault(deal, observation) != observation:
                text = f"slot {slot} begins otherwise than its like in the other environment"
                raise ViolationError(("P70",), text)
        talk.stop("finished")


def _observations(talk: ClientTalk, ledger: SeatLedger) -> Iterator[tuple[int, bytes]]:
    """Slots that ask first, and what they observe."""
    for group, step in enumerate(talk.steps):
        assert step is not None, "all requests were collected"
        rows = np.flatnonzero(talk.asks(group))
        for place, row in enumerate(rows.tolist()):
            leaves = (leaf[place].tobytes() for leaf in step.observations)
            yield ledger.slots_of(group).start + row, b"".join(leaves)


def _asked(talk: ClientTalk, probe: Probe) -> Probed:
    """Ask, and see that the answer is to that question."""
    talk.send(probe)
    probed = talk.expect(Probed, ("P77", "P78"))
    if probed.number != probe.number:
        text = f"probe {probed.number} answered, {probe.number} asked ({probe.question})"
        raise ViolationError(("P78",), text)
    return probed


def _probes(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.needs(PROBE)
        for place, question in enumerate(QUESTIONS):
            probes, probe = Probes(talk.hello), Probe(number=5 + 3 * place, question=question)
            probes.ask(probe)
            probed = _asked(talk, probe)
            if probed.failure is not None:
                raise ViolationError(("P78",), f"no answer to {question}: {probed.failure}")
            try:
                probes.check(probed)
            except ProtocolError as error:
                text = f"the answer to {question}: {error}"
                raise ViolationError(("P78", "P79"), text) from error
        if _asked(talk, Probe(number=2, question="x-of-tomorrow")).failure is None:
            raise ViolationError(("P78",), "an answer to a question that nobody knows")
        talk.welcome()
        talk.turns(2)
        talk.stop("finished")


_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ClientUnderTest], None]], ...] = (
    ("seats", ("P65", "P67", "P68", "P69"), "lets each seat be played as it is told", _seats),
    ("deals", ("P70",), "begins equal deals in pairs of environments", _deals),
    ("probes", ("P77", "P78", "P79", "P80"), "says what its environment does", _probes),
)

SEATS: tuple[Scenario[ClientUnderTest], ...] = tuple(
    Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE
)
"""All of them."""
