"""What a server is tried with by a client that follows assignments of seats, or answers probes.

Whether a server makes use of either is its own choice; if it does, it is graded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from royale_client.conformance.scenario import NotApplicableError, Scenario, ViolationError
from royale_client.conformance.scripted_group import probed
from royale_client.conformance.seat_ledger import SeatLedger
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.conformance.server_talk import FaultedError, ServerTalk
from royale_client.wire.errors import ProtocolError
from royale_client.wire.messages import EpisodeMetric, Hello, Probed, encode_message
from royale_client.wire.probes import PROBE, ProbeAnswer
from royale_client.wire.seating import (
    ASSIGNMENTS,
    Player,
    SeatAssignment,
    read_assignments,
    seating_features,
)

BOT = "conformance"
ENVIRONMENTS = 4
EPISODE_STEPS = 3
MOST_EPISODES = 30
"""In which a bot must have been given a seat, if the server gives them any."""
RATES = (
    EpisodeMetric("win_rate", "1", "all", "ratio"),
    EpisodeMetric("draw_rate", "1", "all", "ratio"),
)


def _hello(server: ServerUnderTest, role: str = "train") -> Hello:
    """Introduce a client of one group: environments of two seats, all of which end together."""
    slots = np.arange(2 * ENVIRONMENTS)
    return replace(
        server.hello(),
        role=role,
        groups=(len(slots),),
        environments=slots // 2,
        seats=slots % 2,
        features=seating_features([BOT]),
        episode_metrics=RATES if role == "eval" else (),
    )


class _Play:
    """A client that follows its assignments, and sees that they are complete."""

    def __init__(self, talk: ServerTalk) -> None:
        welcome, hello = talk.welcome, talk.hello
        if ASSIGNMENTS not in welcome.features:
            if welcome.assignments:
                raise ViolationError(("P65",), "assignments without the feature in the welcome")
            raise NotApplicableError("the server makes no use of assignments")
        self._talk = talk
        self._num_slots = hello.num_slots
        self.ledger = SeatLedger(hello, self._read(welcome.assignments))

    def _read(self, assignments: Iterable[dict[str, Any]]) -> list[SeatAssignment]:
        try:
            told = read_assignments(assignments, self._num_slots)
        except ProtocolError as error:
            raise ViolationError(("P66",), str(error)) from error
        strange = {a.name for a in told if a.player is Player.SCRIPTED} - {BOT}
        if strange:
            raise ViolationError(("P65",), f"bots that the client does not offer: {strange}")
        return list(told)

    def silent(self, ahead: int = 0) -> list[int]:
        """Rows that bots play, in the episodes under way or the ones after them."""
        rows: list[int] = np.flatnonzero(self.ledger.are_scripted(0, ahead)).tolist()
        return rows

    def turn(self, *, is_last: bool = False, asks: bool = True) -> None:
        """Play one step in all environments."""
        group = self._talk.groups[0]
        everyone = range(group.rows)
        ending = everyone if is_last else ()
        # A row that ended and asks does so in the episode that begins.
        silent = self.silent(ahead=int(is_last)) if asks else list(everyone)
        step = group.next_step(silent=silent, terminated=ending)
        gone = self.ledger.check(step)
        action = self._talk.turn(step)
        self.ledger.tell(gone, self._read(action.assignments))

    def episode(self, *, asks_at_end: bool = True) -> None:
        """Play an episode in all environments."""
        for _ in range(EPISODE_STEPS - 1):
            self.turn()
        self.turn(is_last=True, asks=asks_at_end)
        if not asks_at_end:
            self.turn()

    def until_a_bot_sits(self) -> int:
        """Play until a bot has a seat; return its row."""
        self.turn()
        for _ in range(MOST_EPISODES):
            if self.silent():
                return self.silent()[0]
            self.episode()
        raise NotApplicableError("the server gave no seat to a bot")


def _seats(server: ServerUnderTest) -> None:
    with server.session(_hello(server)) as talk:
        play = _Play(talk)
        play.turn()
        for number in range(6):
            play.episode(asks_at_end=number % 3 != 2)


def _one_seat_each(server: ServerUnderTest) -> None:
    with server.session(replace(server.hello(), features=seating_features([BOT]))) as talk:
        action = talk.turn(talk.groups[0].next_step())
        ended = talk.turn(talk.groups[0].next_step(terminated=(0,)))
        if talk.welcome.assignments or action.assignments or ended.assignments:
            raise ViolationError(("P65",), "assignments for environments of one seat")


def _bot_asks(server: ServerUnderTest) -> None:
    with server.session(_hello(server)) as talk:
        play = _Play(talk)
        row = play.until_a_bot_sits()
        silent = [other for other in play.silent() if other != row]
        talk.send_raw(encode_message(talk.groups[0].next_step(silent=silent)))
        talk.expect_fault(("contract",), ("P68",), "a bot's row that asks")


def _ends_apart(server: ServerUnderTest) -> None:
    with server.session(_hello(server)) as talk:
        play = _Play(talk)
        play.turn()
        group = talk.groups[0]
        # All else is as told: row 0, which ends alone, is silent only where a bot plays it.
        step = group.next_step(silent=play.silent(), terminated=(0,))
        talk.send_raw(encode_message(step))
        talk.expect_fault(("contract",), ("P69",), "seats of an environment that end apart")


@contextlib.contextmanager
def _evaluation(server: ServerUnderTest) -> Iterator[ServerTalk]:
    """Take part as a client that is evaluated in, if the server wants such a one."""
    try:
        with server.session(_hello(server, "eval")) as talk:
            _Play(talk)
            yield talk
    except FaultedError as error:
        if error.fault.code != "refused":
            raise
        raise NotApplicableError(f"no such evaluation here: {error.fault.message}") from error


def _deals(server: ServerUnderTest) -> None:
    with _evaluation(server) as talk:
        seeds = talk.welcome.seeds.reshape(ENVIRONMENTS // 2, 2, 2)
        if not np.array_equal(seeds[:, 0], seeds[:, 1]):
            text = f"seeds {talk.welcome.seeds.tolist()} of environments of two seats"
            raise ViolationError(("P70",), text)


def _no_rates(server: ServerUnderTest) -> None:
    with _evaluation(server):
        pass  # else such clients are not wanted at all
    with server.talk(replace(_hello(server, "eval"), episode_metrics=())) as talk:
        talk.send(talk.hello)
        talk.expect_fault(("refused",), ("P70",), "an evaluation that says not who won")


def _probes(server: ServerUnderTest) -> None:
    with server.talk(replace(server.hello(), features=(PROBE,))) as talk:
        talk.greet()
        asked = talk.num_probes
        talk.turn(talk.groups[0].next_step())
        talk.leave()
    if not asked:
        raise NotApplicableError("the server asked nothing")


def _other_number(answer: Probed) -> Probed:
    return replace(answer, number=answer.number + 1)


def _other_shape(answer: Probed) -> Probed:
    """Leave out the last column of every array."""
    said = answer.answer
    shorter = ProbeAnswer(
        states=said.states,
        masks=None if said.masks is None else said.masks[:, :-1],
        verdicts=None if said.verdicts is None else said.verdicts[:, :-1],
        columns=said.columns,
        layout=None if said.layout is None else said.layout[:, :-1],
    )
    return replace(answer, answer=shorter)


def _wrong_answer(
    server: ServerUnderTest,
    clauses: tuple[str, ...],
    codes: tuple[str, ...],
    what: str,
    change: Callable[[Probed], Probed],
) -> None:
    with server.talk(replace(server.hello(), features=(PROBE,))) as talk:
        probe = talk.await_probe()
        answer = None if probe is None else probed(probe.question)
        if probe is None or answer is None:
            raise NotApplicableError("the server asked nothing that the suite can answer")
        talk.send(change(Probed(number=probe.number, answer=answer)))
        talk.expect_fault(codes, clauses, what)


_WRONG_ANSWERS: tuple[
    tuple[str, tuple[str, ...], tuple[str, ...], str, Callable[[Probed], Probed]], ...
] = (
    (
        "other-probed-number",
        ("P78",),
        ("unexpected", "contract"),
        "an answer to another probe",
        _other_number,
    ),
    (
        "other-probed-shape",
        ("P78", "P79"),
        ("contract", "malformed"),
        "an answer of another shape",
        _other_shape,
    ),
)

ASKED_FIRST: tuple[Scenario[ServerUnderTest], ...] = (
    *(
        Scenario(
            name=name,
            clauses=(*clauses, "P45", "P47"),
            title=f"refuses {what} ({' or '.join(codes)})",
            play=partial(_wrong_answer, clauses=clauses, codes=codes, what=what, change=change),
        )
        for name, clauses, codes, what, change in _WRONG_ANSWERS
    ),
    Scenario(
        name="probes",
        clauses=("P76", "P77"),
        title="asks one question after the other, before the welcome",
        play=_probes,
    ),
)
"""About the first clients of a run: once one has answered rightly, nobody else may be asked."""

_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ServerUnderTest], None]], ...] = (
    ("seats", ("P65", "P66", "P67"), "assigns each episode in time", _seats),
    ("one-seat-each", ("P65",), "assigns nothing where there is one seat", _one_seat_each),
    ("bot-asks", ("P68",), "refuses a bot's row that asks", _bot_asks),
    ("ends-apart", ("P69",), "refuses seats that end apart", _ends_apart),
    ("deals", ("P70",), "deals alike in pairs of environments", _deals),
    ("no-rates", ("P70",), "refuses an evaluation that tells no winner", _no_rates),
)

SEATS: tuple[Scenario[ServerUnderTest], ...] = tuple(
    Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE
)
"""All about seats."""
