"""What a client is tried with whose connection is lost: it comes back, and loses nothing.

All of it concerns clients with the feature ``reconnect`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.client_talk import ClientTalk
from royale_client.conformance.scenario import Scenario
from royale_client.wire.handshake import RECONNECT


def _cut_off(talk: ClientTalk) -> None:
    """Play some turns, and cut the connection while every request is open."""
    talk.needs(RECONNECT)
    talk.welcome()
    talk.turns(4)
    talk.link.cut()


def _comes_back(client: ClientUnderTest, *, has_arrived: bool) -> None:
    with client.talk() as talk:
        _cut_off(talk)
        with client.back(talk) as again:
            again.continue_from(talk, has_arrived=has_arrived)
            again.turns(4)
            again.stop("finished")


def _is_unknown(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        _cut_off(talk)
        with client.back(talk) as again:
            again.welcome(session_token="another")
            again.turns(4)
            again.stop("finished")


def _comes_back_twice(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        _cut_off(talk)
        with client.back(talk) as again:
            again.continue_from(talk, has_arrived=False)
            again.turns(1)
            again.link.cut()
            with client.back(again) as last:
                last.continue_from(again, has_arrived=True)
                last.turns(2)
                last.stop("finished")


def _goes_elsewhere(client: ClientUnderTest) -> None:
    with client.talk() as talk:
        _cut_off(talk)
        with client.back(talk) as again:
            beyond = tuple(step.request + 5 for step in talk.steps if step is not None)
            again.send(again.a_welcome(last_requests=beyond, continues=True))
            again.expect_departure(("P73",), "the server goes on with other numbers")


# fmt: off
_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ClientUnderTest], None]], ...] = (
    ("back-for-answers", ("P72", "P74"), "sends again what has no answer",
     partial(_comes_back, has_arrived=True)),
    ("back-with-requests", ("P72", "P73", "P74"), "sends again what never arrived",
     partial(_comes_back, has_arrived=False)),
    ("back-twice", ("P72", "P74"), "comes back a second time", _comes_back_twice),
    ("back-unknown", ("P27", "P72"), "begins a new session if it must", _is_unknown),
    ("back-elsewhere", ("P73",), "leaves a server that goes on elsewhere", _goes_elsewhere),
)
# fmt: on

RESUMES: tuple[Scenario[ClientUnderTest], ...] = tuple(
    Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE
)
"""All of them."""
