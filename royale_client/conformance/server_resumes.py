"""What a server is tried with whose client loses its connection and comes back.

A server keeps sessions for a time of its own choice, which may be none: then a new one begins, and
nothing is graded but that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from royale_client.conformance.scenario import NotApplicableError, Scenario, ViolationError
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.conformance.server_talk import ServerTalk
from royale_client.wire.grammar import State
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.messages import Hello, encode_message


def _hello(server: ServerUnderTest) -> Hello:
    return replace(server.hello(), features=(RECONNECT,))


@contextlib.contextmanager
def _carried_on(server: ServerUnderTest, earlier: ServerTalk) -> Iterator[ServerTalk]:
    """Come back over another connection, and leave in order in the end."""
    with server.talk(earlier.hello) as talk:
        talk.carry_on(earlier)
        if not talk.greet().continues:
            talk.leave()
            raise NotApplicableError("the server keeps no sessions")
        yield talk
        if talk.state is State.READY:
            talk.leave()


def _begun_anew(server: ServerUnderTest, hello: Hello, why: str) -> None:
    """See that a hello that names a session begins a new one, and is served."""
    with server.session(hello) as talk:
        welcome = talk.welcome
        if welcome.continues or set(welcome.last_requests) != {0}:
            raise ViolationError(("P72",), f"{why}, and the welcome goes on with it")
        if welcome.session_token == hello.resume_token:
            raise ViolationError(("P72",), f"{why}, and the welcome has the same token")
        talk.turn(talk.groups[0].next_step())


def _unknown_token(server: ServerUnderTest) -> None:
    hello = replace(_hello(server), resume_token="nobody-was-ever-given-this")
    _begun_anew(server, hello, "nobody has the session")


def _all_answered(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        for _ in range(3):
            talk.turn(talk.groups[0].next_step())
        talk.link.cut()
    with _carried_on(server, talk) as again:
        for _ in range(3):
            again.turn(again.groups[0].next_step())


def _answer_lost(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        step = talk.groups[0].next_step(terminated=(1,), records=True)
        talk.turn(step)
        talk.lose_answer(0)
        talk.link.cut()
    with _carried_on(server, talk) as again:
        again.turn(step)
        again.expect_silence(("P34", "P74"), "the request was answered once more")
        again.turn(again.groups[0].next_step())


def _request_on_its_way(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        step = talk.groups[0].next_step()
        talk.send(step)
        talk.link.cut()
    with _carried_on(server, talk) as again:
        again.turn(step)
        again.expect_silence(("P34", "P74"), "the request was answered")
        again.turn(again.groups[0].next_step())


def _same_twice(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        step = talk.groups[0].next_step()
        talk.turn(step)
        talk.lose_answer(0)
        talk.link.cut()
    with _carried_on(server, talk) as again:
        again.turn(step)
        again.send_raw(encode_message(step))
        again.expect_fault(("unexpected",), ("P33", "P74"), "a request sent a third time")


def _other_rows(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        talk.turn(talk.groups[0].next_step())
        talk.lose_answer(0)
        talk.link.cut()
    group = talk.groups[0]
    with _carried_on(server, talk) as again:
        group.request -= 1
        again.send_raw(encode_message(group.next_step(silent=(1,))))
        again.expect_fault(("contract",), ("P74",), "a request of other rows than it had")


def _newest_connection(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        with _carried_on(server, talk) as again:
            talk.expect_fault(("refused",), ("P75",), "the session over an older connection")
            again.turn(again.groups[0].next_step())


def _other_process(server: ServerUnderTest) -> None:
    with server.talk(_hello(server)) as talk:
        token = talk.greet().session_token
        talk.turn(talk.groups[0].next_step())
        talk.link.cut()
    hello = replace(talk.hello, resume_token=token, process_id="another")
    _begun_anew(server, hello, "another process names the session")


def _without_feature(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        token = talk.greet().session_token
        talk.turn(talk.groups[0].next_step())
        talk.link.cut()
    hello = replace(talk.hello, resume_token=token)
    _begun_anew(server, hello, "the session is of a client without reconnect")


def _after_goodbye(server: ServerUnderTest) -> None:
    with server.session(_hello(server)) as talk:
        talk.turn(talk.groups[0].next_step())
    hello = replace(talk.hello, resume_token=talk.welcome.session_token)
    _begun_anew(server, hello, "the session ended with a goodbye")


_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ServerUnderTest], None]], ...] = (
    ("unknown-session", ("P72",), "begins anew for a token nobody has", _unknown_token),
    ("back-with-all-answers", ("P71", "P73"), "goes on where numbers stood", _all_answered),
    ("back-for-an-answer", ("P74",), "gives an answer that was lost again", _answer_lost),
    ("back-in-a-request", ("P73", "P74"), "answers what was on its way", _request_on_its_way),
    ("back-and-insisting", ("P33", "P74"), "refuses a request a third time", _same_twice),
    ("back-with-other-rows", ("P74",), "refuses a request that is another", _other_rows),
    ("newest-connection", ("P75",), "faults the older of two connections", _newest_connection),
    ("back-as-another", ("P72",), "begins anew for another process", _other_process),
    ("back-without-feature", ("P71", "P72"), "keeps no session unasked", _without_feature),
    ("back-after-goodbye", ("P71", "P72"), "keeps no session that has ended", _after_goodbye),
)

RESUMES: tuple[Scenario[ServerUnderTest], ...] = tuple(
    Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE
)
"""All of them."""
