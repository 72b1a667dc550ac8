"""One conversation with the server under test, and everything that is watched in all of them.

The suite is the client here. Order and numbering are those of `royale_client.wire.grammar`; each
method either goes on or raises `ViolationError` with the clauses that the server broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from royale_client.conformance.incoming import read
from royale_client.conformance.link import EndedError, Link, wait_for_end
from royale_client.conformance.scenario import Settings, ViolationError
from royale_client.conformance.scripted_group import ACTION_SPACE, ScriptedGroup, probed
from royale_client.wire.contract import ActionContract, check_welcome
from royale_client.wire.dtypes import Array
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import (
    CLOSE_CODES,
    Requests,
    Side,
    State,
    after_welcome,
    next_state,
)
from royale_client.wire.messages import (
    Action,
    Busy,
    Fault,
    Goodbye,
    Hello,
    Message,
    Probe,
    Probed,
    Restore,
    Snapshot,
    Step,
    Welcome,
    encode_message,
)
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.probes import ProbeAnswer, Probes
from royale_client.wire.turns import BoolArray

BUSY_LIMIT_S = 6.0
"""Longest silence while an answer is owed: that of P37, and a second of grace."""
MOST_WAITS = 12
"""Time-outs that a server may fill with ``busy``."""

_WELCOME_CLAUSES = {"welcome.restores": ("P57",), "welcome.continues": ("P73",)}

Expected = TypeVar("Expected", Action, Welcome)


class FaultedError(ViolationError):
    """A fault came where something else was owed.

    Args:
        clauses: What demands that.
        fault: What came.
        owed: What was owed.
    """

    def __init__(self, clauses: Sequence[str], fault: Fault, owed: str) -> None:
        super().__init__(clauses, f"fault {fault.code} instead of {owed}: {fault.message}")
        self.fault = fault


class ServerTalk:
    """One conversation.

    Args:
        link: The connection, on which nothing was said.
        hello: How the suite introduces itself.
        settings: How patient to be.
        secrets: Texts that must never come back in a fault; a welcome adds its token.
    """

    def __init__(self, link: Link, hello: Hello, settings: Settings, secrets: set[str]) -> None:
        self.hello = hello
        self.link = link
        self.state = State.OPENED
        self.welcome: Welcome
        self.groups = [ScriptedGroup(i, rows) for i, rows in enumerate(hello.groups)]
        self._secrets = secrets
        self._settings = settings
        self._earlier: ServerTalk | None = None
        self._requests = Requests([0] * len(hello.groups))
        self._contract = ActionContract(hello)
        self._probes = Probes(hello)
        self.num_probes = 0
        """Questions about the environment so far."""
        self._asks: list[BoolArray] = [np.ones(rows, np.bool_) for rows in hello.groups]

    # --- saying -----------------------------------------------------------------------------

    def send(self, message: Message, data: bytes | None = None) -> None:
        """Send a message that is legal now, in these bytes if some are given."""
        if isinstance(message, Step):
            self._requests.open(message.group, message.request)
            rows = self.hello.groups[message.group]
            everyone = np.ones(rows, np.bool_)
            self._asks[message.group] = everyone if message.asks is None else message.asks
        self.state = next_state(Side.CLIENT, self.state, message.TYPE)
        self.send_raw(encode_message(message) if data is None else data)

    def send_raw(self, data: bytes | str) -> None:
        """Send anything."""
        try:
            self.link.send(data)
        except EndedError as ended:
            raise ViolationError(("P42",), f"{ended} where the client may speak") from ended

    def greet(self, data: bytes | None = None) -> Welcome:
        """Say hello and wait for the welcome."""
        self.send(self.hello, data)
        self.welcome = welcome = self._expect(Welcome, ("P24",))
        try:
            check_welcome(welcome, self.hello)
        except ProtocolError as error:
            clauses = _WELCOME_CLAUSES.get(error.where, ("P24",))
            raise ViolationError(clauses, str(error)) from error
        self._secrets.add(welcome.session_token)
        self.state = after_welcome(restores=welcome.restores)
        if welcome.continues:
            self._take_over(welcome)
            return welcome
        self._requests = Requests(welcome.last_requests)
        for group, last in zip(self.groups, welcome.last_requests, strict=True):
            group.request = last
            group.dtype = "float16" if FLOAT16 in welcome.features else "float32"
        return welcome

    def await_probe(self) -> Probe | None:
        """Say hello and wait for the first question; None if there is a welcome without one."""
        self.send(self.hello)
        for _ in range(MOST_WAITS):
            message = self._next(("P24",), "welcome did not come")
            if isinstance(message, Probe):
                return message
            if isinstance(message, Welcome):
                return None
            if isinstance(message, Fault):
                raise FaultedError(("P24",), message, Welcome.TYPE)
        raise ViolationError(("P24",), f"{MOST_WAITS} times busy, and still no welcome")

    def carry_on(self, earlier: ServerTalk) -> None:
        """Introduce this conversation as one that goes on with another, whose connection is gone.

        To be called before `greet`, which finds out whether the server goes on with it.
        """
        self._earlier = earlier
        self.hello = replace(self.hello, resume_token=earlier.welcome.session_token)

    def lose_answer(self, group: int) -> None:
        """Go on as if the answer to a group's last request had never come."""
        self._requests.open_again(group)

    def turn(self, step: Step, data: bytes | None = None) -> Action:
        """Send a request and take its answer."""
        self.send(step, data)
        return self.expect_answer()

    def leave(self) -> None:
        """Report a last step of every group, say goodbye, and see the connection closed."""
        for group in self.groups:
            if not group.is_fresh and self._requests.outstanding(group.index) is None:
                self.turn(group.last_step())
        self.say_goodbye()

    def say_goodbye(self) -> None:
        """Say goodbye and see the connection closed, whatever is open."""
        self.send(Goodbye(reason="the scenario is over"))
        self._expect_close("goodbye")

    # --- hearing ----------------------------------------------------------------------------

    def expect_answer(self) -> Action:
        """Take the next answer, whichever open request it is to."""
        action = self._expect(Action, ("P34",))
        self._check_answer(action)
        return action

    def expect_fault(self, codes: Sequence[str], clauses: Sequence[str], what: str) -> Fault:
        """See that the server refuses what was sent, and ends the conversation.

        Args:
            codes: Fault codes of which one must come.
            clauses: What was broken by ``what``, and demands the refusal.
            what: What the suite sent, for the report.
        """
        message = self._next(clauses, f"{what} is not refused")
        while isinstance(message, Busy):
            message = self._next(clauses, f"{what} is not refused")
        if not isinstance(message, Fault):
            raise ViolationError(clauses, f"{what} is answered with {message.TYPE}, not refused")
        if message.code not in codes:
            raise ViolationError(
                clauses,
                f"{what}: fault {message.code} ({message.message}), not {' or '.join(codes)}",
            )
        self._check_sentence(message)
        self._expect_close("fault")
        return message

    def expect_silence(self, clauses: Sequence[str], what: str) -> None:
        """See that nothing comes."""
        try:
            data = self.link.receive(self._settings.quiet_s)
        except EndedError as ended:
            raise ViolationError(clauses, f"{what}: {ended}") from ended
        if data is not None:
            raise ViolationError(clauses, f"{what}: {read(data).TYPE} came")

    def expect_pong(self) -> None:
        """See that a ping is answered."""
        limit_s = self._settings.timeout_s
        try:
            answers = self.link.answers_ping(limit_s)
        except EndedError as ended:
            raise ViolationError(("P1",), f"after a ping: {ended}") from ended
        if not answers:
            raise ViolationError(("P1",), f"no answer to a WebSocket ping within {limit_s:g} s")

    def _expect(self, kind: type[Expected], clauses: Sequence[str]) -> Expected:
        """Take the next message but ``busy``, which must be of this kind."""
        for _ in range(MOST_WAITS):
            message = self._next(clauses, f"{kind.TYPE} did not come")
            if isinstance(message, kind):
                return message
            if isinstance(message, Fault):
                raise FaultedError(clauses, message, kind.TYPE)
            if isinstance(message, Probe):
                self._answer_probe(message)
            elif not isinstance(message, Busy):
                raise ViolationError(clauses, f"{message.TYPE} instead of {kind.TYPE}")
        waited = f"{MOST_WAITS} times busy, and still no {kind.TYPE}"
        raise ViolationError(clauses, waited)

    def _next(self, clauses: Sequence[str], complaint: str) -> Message:
        """Take the next message, whatever it is, if it may come now."""
        limit_s = min(self._settings.timeout_s, BUSY_LIMIT_S)
        try:
            data = self.link.receive(limit_s)
        except EndedError as ended:
            raise ViolationError(clauses, f"{complaint}: {ended}") from ended
        if data is None:
            is_late = limit_s == BUSY_LIMIT_S and self._is_owed_an_answer()
            silence = (*clauses, "P37") if is_late else clauses
            raise ViolationError(silence, f"{complaint}: nothing came for {limit_s:g} s")
        message = read(data)
        self._check_order(message)
        return message

    def _is_owed_an_answer(self) -> bool:
        groups = range(len(self.hello.groups))
        return any(self._requests.outstanding(group) is not None for group in groups)

    def _check_order(self, message: Message) -> None:
        try:
            self.state = next_state(Side.SERVER, self.state, message.TYPE)
        except ProtocolError as error:
            raise ViolationError(("P42",), str(error)) from error
        if isinstance(message, Snapshot | Restore) and "snapshot" not in self.hello.features:
            raise ViolationError(("P52",), f"{message.TYPE} for a client without the feature")
        if isinstance(message, Probe):
            self._take_probe(message)

    def _take_probe(self, probe: Probe) -> None:
        self.num_probes += 1
        try:
            self._probes.ask(probe)
        except ProtocolError as error:
            raise ViolationError(("P76",), str(error)) from error

    def _answer_probe(self, probe: Probe) -> None:
        """Say of an environment that takes every action what it does; take one's time for it."""
        try:
            data = self.link.receive(self._settings.quiet_s)
        except EndedError as ended:
            raise ViolationError(("P77",), f"while a probe has no answer: {ended}") from ended
        if data is not None and not isinstance(message := read(data), Busy):
            raise ViolationError(("P77",), f"{message.TYPE} before the answer to a probe")
        answer = probed(probe.question)
        failure = None if answer else "the question is not known"
        self._probes.answered()
        self.send(Probed(number=probe.number, answer=answer or ProbeAnswer(), failure=failure))

    def _check_answer(self, action: Action) -> None:
        """See that the actions are those that alone were legal, row by row."""
        group, request = action.group, action.request
        try:
            self._requests.close(group, request)
            asks = self._asks[group]
            self._contract.check(group, request, action.actions, int(asks.sum()))
        except ProtocolError as error:
            raise ViolationError(("P34",), str(error)) from error
        (found,) = action.actions
        wanted = self.groups[group].legal_actions(request, asks)
        if not np.array_equal(found, wanted):
            raise _wrong_actions(f"answer to request {request} of group {group}", found, wanted)

    def _check_sentence(self, fault: Fault) -> None:
        text = fault.message
        if not text.strip() or "\n" in text or "Traceback" in text or 'File "' in text:
            raise ViolationError(("P45",), f"a fault that is no sentence: {text!r}")
        leaked = [secret for secret in self._secrets if secret in text]
        if leaked:
            cut = text.replace(leaked[0], "…")
            raise ViolationError(("P24", "P45"), f"a fault that tells a secret: {cut}")

    def _take_over(self, welcome: Welcome) -> None:
        """Go on with the numbers of the earlier conversation."""
        earlier = self._earlier
        if earlier is None:
            raise ViolationError(("P72",), "a session goes on with a client that must begin anew")
        if welcome.session_token != earlier.welcome.session_token:
            raise ViolationError(("P73",), "the session goes on under another token")
        if not earlier._requests.are_known_as(welcome.last_requests):
            known, sent = list(welcome.last_requests), list(earlier._requests.last)
            raise ViolationError(("P73",), f"last_requests {known}, and {sent} were sent")
        self._requests = earlier._requests.over_another_connection()
        self.groups, self._asks = earlier.groups, earlier._asks

    def _expect_close(self, after: str) -> None:
        """See the connection closed; what crosses a goodbye on its way is no error."""

        def on_message(data: bytes | str) -> None:
            if after == "fault":
                raise ViolationError(("P45",), f"{read(data).TYPE} after the fault")

        ended = wait_for_end(self.link, self._settings.timeout_s, on_message)
        limit = f"{self._settings.timeout_s:g} s"
        if ended is None:
            raise ViolationError(("P47",), f"the connection is still open {limit} after {after}")
        if ended.code != CLOSE_CODES[after]:
            raise ViolationError(("P47",), f"{ended} after {after}, expected {CLOSE_CODES[after]}")


def _wrong_actions(where: str, found: Array, wanted: Array) -> ViolationError:
    """Say what is wrong with actions, of which each row had one that was legal."""
    shown = f"{where}: actions {found.tolist()}, and legal were {wanted.tolist()}"
    last = ACTION_SPACE.start + ACTION_SPACE.n - 1
    if found.min() < ACTION_SPACE.start or found.max() > last:
        return ViolationError(
            ("P36",), f"{shown}; the space has {ACTION_SPACE.start} to {last}, start included"
        )
    if sorted(found.tolist()) == sorted(wanted.tolist()):
        return ViolationError(("P34",), f"{shown}; they are in other rows than those that asked")
    return ViolationError(("P29", "P34"), f"{shown}; they are not those of this request")
