"""What a client is tried with that it must take. What it must not believe: ``server_lies``.

Further groups of scenarios are further tables that ``CLIENT_SCENARIOS`` joins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from royale_client.conformance.client_resumes import RESUMES
from royale_client.conformance.client_seats import SEATS
from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.client_talk import ClientTalk
from royale_client.conformance.probe_watch import is_probe
from royale_client.conformance.raw_messages import loosely_laid_out
from royale_client.conformance.scenario import NotApplicableError, Scenario, ViolationError
from royale_client.conformance.server_lies import LIES
from royale_client.conformance.watched import WATCHED_OF_PROBES
from royale_client.wire.messages import (
    Fault,
    Restore,
    Restored,
    Snapshot,
    Snapshotted,
)
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.snapshots import RESTART, SNAPSHOT, as_states
from royale_client.wire.version import SUBPROTOCOL

LAST_REQUESTS = (41, 7)
"""Of the groups of a client that joins again."""


def _subprotocol(client: ClientUnderTest) -> None:
    with client.visit() as visit:
        if SUBPROTOCOL not in visit.offered:
            raise ViolationError(("P1",), f"the client offers {visit.offered}")


def _token(client: ClientUnderTest) -> None:
    token = client.settings.token
    if token is None:
        raise NotApplicableError("no token was given for the client to present")
    with client.visit() as visit:
        if visit.authorization != f"Bearer {token}":
            raise ViolationError(("P2",), "the client does not present the token as a bearer")


def _waits_for_welcome(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.say_busy(None)
        talk.say_busy(2.5)
        talk.expect_silence(("P42",), "the client was not welcomed")
        talk.welcome()
        talk.turns(1)
        talk.stop("finished")


def _turns(client: ClientUnderTest) -> None:
    with client.session() as talk:
        talk.turns(client.settings.turns)


def _probe(client: ClientUnderTest) -> None:
    with client.session() as talk:
        if not is_probe(talk.hello):
            raise NotApplicableError(f"the client does not run the probe, but {talk.hello.env_id}")
        talk.turns(3 * client.settings.turns)


def _one_open_request(client: ClientUnderTest) -> None:
    with client.session() as talk:
        talk.turns(2)
        talk.expect_silence(("P33",), "every request is open")
        talk.expect_pong()
        talk.say_busy(None)
        talk.turns(1)


def _groups_apart(client: ClientUnderTest) -> None:
    with client.session() as talk:
        if len(talk.hello.groups) == 1:
            raise NotApplicableError("the client has one group")
        talk.turns(1)
        for _ in range(4):
            talk.answer(1)
            talk.collect()
        talk.answer(0)
        talk.collect()


def _loose_layout(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.welcome(loosely_laid_out(talk.a_welcome()))
        talk.collect()
        for group in range(len(talk.steps)):
            talk.answer(group, loosely_laid_out)
        talk.collect()
        talk.stop("finished")


def _fragments(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.welcome(bytes_per_frame=100)
        talk.turns(1)
        talk.stop("finished")


def _numbers(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.welcome(last_requests=LAST_REQUESTS[: len(talk.hello.groups)])
        talk.turns(2)
        talk.stop("finished")


def _stop_when_ready(client: ClientUnderTest, reason: str) -> None:
    with client.session() as talk:
        talk.turns(1)
        talk.stop(reason, listens=True)


def _stop_when_greeted(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.stop("stopping")


def _stop_behind_answers(client: ClientUnderTest) -> None:
    with client.session() as talk:
        talk.turns(1)
        for group in range(len(talk.steps)):
            talk.answer(group)
        talk.stop("finished")


def _fault(client: ClientUnderTest, code: str, *, is_welcomed: bool) -> None:
    with client.talk() as talk:
        if is_welcomed:
            talk.welcome()
            talk.turns(1)
        talk.send(Fault(code=code, message="the suite says so; nothing is wrong"))
        talk.link.close(1008, "fault")
        talk.expect_departure(("P42", "P45"), f"fault {code}", may_speak=False)
        if client.comes_back():
            raise ViolationError(("P45",), f"the client comes back by itself after {code}")


def _float16(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.needs(FLOAT16)
        talk.welcome(features=(FLOAT16,))
        talk.turns(client.settings.turns)
        talk.stop("finished")


def _not_float16(client: ClientUnderTest) -> None:
    with client.session() as talk:
        talk.needs(FLOAT16)
        talk.turns(2)


def _snapshot(client: ClientUnderTest) -> None:
    with client.session() as talk:
        talk.needs(SNAPSHOT)
        talk.turns(2)
        for number in (7, 9):
            _take_states(talk, number)
            talk.turns(2)


def _restart(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        talk.needs(RESTART)
        last_requests = LAST_REQUESTS[: len(talk.hello.groups)]
        talk.welcome(last_requests=last_requests, restores=True)
        talk.say_busy(None)
        talk.expect_silence(("P57",), "a restore was promised")
        talk.send(Restore())
        restored = talk.expect(Restored, ("P58",))
        if restored.failure is not None:
            raise ViolationError(("P58",), f"fresh episodes fail: {restored.failure}")
        talk.turns(2)
        talk.stop("finished")


def _restore(client: ClientUnderTest) -> None:
    with client.session() as before:
        before.needs(SNAPSHOT, RESTART)
        before.turns(3)
        snapshotted = _take_states(before, 1)
        if snapshotted.failure is not None:
            raise NotApplicableError(f"the client has no snapshot: {snapshotted.failure}")
        states = tuple(bytes(state) for state in snapshotted.states)
        steps, watches = list(before.steps), [watch.copy() for watch in before.watches]
        before.turns(2)
    with client.talk() as talk:
        numbers = tuple(step.request for step in steps if step is not None)
        talk.welcome(last_requests=numbers, restores=True)
        talk.send(Restore(states=as_states(states)))
        restored = talk.expect(Restored, ("P58",))
        if restored.failure is None:
            talk.go_on(steps, watches)
            talk.expect_silence(("P60",), "the restored requests are open")
        talk.turns(3)
        talk.stop("finished")


def _take_states(talk: ClientTalk, number: int) -> Snapshotted:
    talk.send(Snapshot(number=number))
    snapshotted = talk.expect(Snapshotted, ("P54",))
    wanted = len(talk.steps) if snapshotted.failure is None else 0
    if snapshotted.number != number or len(snapshotted.states) != wanted:
        got = f"snapshot {snapshotted.number} with {len(snapshotted.states)} states"
        raise ViolationError(("P54",), f"{got}, asked for {number} of {len(talk.steps)} groups")
    return snapshotted


# fmt: off
_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ClientUnderTest], None]], ...] = (
    ("subprotocol", ("P1",), "offers royale.v1", _subprotocol),
    ("token", ("P2",), "presents its token as a bearer", _token),
    ("waits-for-welcome", ("P37", "P42"), "waits until it is welcome", _waits_for_welcome),
    ("turns", ("P25", "P33"), "asks, acts and reports", _turns),
    ("probe", tuple(WATCHED_OF_PROBES), "does to its environments what it was told", _probe),
    ("one-open-request", ("P33", "P38"), "waits for its answer and answers pings",
     _one_open_request),
    ("groups-apart", ("P35",), "steps one group while the other waits", _groups_apart),
    ("loose-layout", ("P4", "P6", "P10"), "reads what is legal and unusual", _loose_layout),
    ("fragments", ("P3",), "reads a message in several WebSocket frames", _fragments),
    ("numbers-go-on", ("P27", "P33"), "numbers on from last_requests", _numbers),
    ("stop-finished", ("P43", "P44"), "leaves when the run is finished",
     partial(_stop_when_ready, reason="finished")),
    ("stop-halted", ("P43", "P44"), "leaves when the run is halted",
     partial(_stop_when_ready, reason="halted")),
    ("stop-when-greeted", ("P42", "P44"), "leaves when it is not welcome", _stop_when_greeted),
    ("stop-behind-answers", ("P43",), "leaves when a stop follows its answers",
     _stop_behind_answers),
    ("fault-when-greeted", ("P42", "P45"), "goes silently when it is refused, for good",
     partial(_fault, code="refused", is_welcomed=False)),
    ("fault-when-ready", ("P42", "P45"), "goes silently when it is faulted, for good",
     partial(_fault, code="contract", is_welcomed=True)),
    ("float16", ("P62",), "sends half precision where it is agreed on", _float16),
    ("no-float16", ("P62",), "sends no half precision where it is not", _not_float16),
    ("snapshot", ("P53", "P54"), "hands out states, and goes on", _snapshot),
    ("restart", ("P57", "P58", "P59"), "begins afresh when it is told to", _restart),
    ("restore", ("P58", "P60"), "goes on where its states were taken", _restore),
)
# fmt: on

CLIENT_SCENARIOS: tuple[Scenario[ClientUnderTest], ...] = (
    *(Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE),
    *RESUMES,
    *SEATS,
    *LIES,
)
"""Everything a client is graded by, in order."""
