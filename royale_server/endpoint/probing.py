"""Asks the first client of each environment what it can do, before anybody of it is admitted.

One client is asked at a time for each environment (its id and digest); the others of that kind wait
in the lobby. If it leaves or does not answer in time, the next one is asked. Sends nothing by
itself and judges nothing: the listener does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from royale_client.wire.messages import Hello, Probed
from royale_client.wire.probes import PROBE, QUESTIONS, ProbeAnswer
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.roll import Roll

Kind = tuple[str, str]
"""Id and digest of an environment."""


def kind_of(hello: Hello) -> Kind:
    """Return what tells an environment from others."""
    return hello.env_id, hello.env_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Everything that one client has answered."""

    hello: Hello
    answers: dict[str, ProbeAnswer]
    failures: dict[str, str]


@dataclass(slots=True)
class _Inquiry:
    """One client that is being asked."""

    peer: Peer
    hello: Hello
    since: float
    answers: dict[str, ProbeAnswer] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def num_answered(self) -> int:
        return len(self.answers) + len(self.failures)

    @property
    def question(self) -> str:
        """The one that has no answer."""
        return QUESTIONS[self.num_answered]


class Probing:
    """The inquiries of one attempt.

    Args:
        roll: Who is connected.
        on_report: Called with what a client has answered; `passed` says that it may come in.
        clock: Monotonic seconds.
    """

    def __init__(
        self, roll: Roll, on_report: Callable[[ProbeReport], None], clock: Callable[[], float]
    ) -> None:
        self._roll = roll
        self._on_report = on_report
        self._clock = clock
        self._inquiries: dict[Kind, _Inquiry] = {}
        self._reported: set[Kind] = set()
        self._passed: set[Kind] = set()
        self._numbers = 0

    def is_held(self, hello: Hello) -> bool:
        """Whether clients of this kind wait until one of them has answered and passed."""
        return _is_asked(hello) and kind_of(hello) not in self._passed

    @property
    def is_open(self) -> bool:
        """Whether an environment is there that has not answered everything so far."""
        return bool(self._inquiries)

    def greeted(self, peer: Peer, hello: Hello) -> None:
        """Ask a client, unless one of its kind was asked or is asked now."""
        kind = kind_of(hello)
        if not self.is_held(hello) or kind in self._inquiries or kind in self._reported:
            return
        self._inquiries[kind] = _Inquiry(peer, hello, self._clock())
        self._ask(self._inquiries[kind])

    def answered(self, peer: Peer, probed: Probed) -> None:
        """Take an answer; ask on, or report."""
        inquiry = next((i for i in self._inquiries.values() if i.peer is peer), None)
        if inquiry is None:
            return
        question = inquiry.question
        if probed.failure is None:
            inquiry.answers[question] = probed.answer
        else:
            inquiry.failures[question] = probed.failure
        inquiry.since = self._clock()
        if inquiry.num_answered < len(QUESTIONS):
            self._ask(inquiry)
            return
        kind = kind_of(inquiry.hello)
        del self._inquiries[kind]
        self._reported.add(kind)
        self._on_report(
            ProbeReport(hello=inquiry.hello, answers=inquiry.answers, failures=inquiry.failures)
        )

    def passed(self, hello: Hello) -> None:
        """Let clients of this kind in from now on."""
        self._passed.add(kind_of(hello))

    def refused(self, hello: Hello) -> list[Peer]:
        """Forget that this kind was asked, and return who waits for it: they are to be sent away.

        A client that comes later is asked anew; it may run a build that was mended.
        """
        self._reported.discard(kind_of(hello))
        return [peer for peer in self._roll.lobby if _is_of(peer, hello)]

    def left(self, peer: Peer) -> None:
        """A client is gone; another one of its kind is asked in its place."""
        for kind, inquiry in list(self._inquiries.items()):
            if inquiry.peer is not peer:
                continue
            del self._inquiries[kind]
            for other in self._roll.lobby:
                if other is not peer and not other.is_closed and _is_of(other, inquiry.hello):
                    assert other.session.hello is not None
                    self.greeted(other, other.session.hello)
                    break

    def overdue(self, limit_s: float) -> list[Peer]:
        """Return the clients that have not answered a question for so long."""
        now = self._clock()
        return [i.peer for i in self._inquiries.values() if now - i.since >= limit_s]

    def _ask(self, inquiry: _Inquiry) -> None:
        self._numbers += 1
        ask = partial(inquiry.peer.session.probe, self._numbers, inquiry.question)
        self._roll.send(inquiry.peer, ask)


def _is_of(peer: Peer, hello: Hello) -> bool:
    other = peer.session.hello
    return other is not None and _is_asked(other) and kind_of(other) == kind_of(hello)


def _is_asked(hello: Hello) -> bool:
    """Whether what a client does is trained on, and it can say what that is."""
    return PROBE in hello.features and hello.role == "train"
