"""Sessions with a server, for a program that must not be kept waiting.

A session whose connection breaks goes on over another one, unless the program did without an answer
meanwhile: what it asks next is another request.

Sessions are opened in a thread of their own, so that an exchange can end on time whatever the
network does. This module knows turns and answers, but no observation and no action.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from royale_client.driver import Turn
from royale_client.loop import ServerFaultError, send_turn
from royale_client.reconnect import Patience, Retries
from royale_client.session import (
    Answered,
    ClientSession,
    Event,
    Faulted,
    ServerBusy,
    Stopped,
    Welcomed,
)
from royale_client.timing import WaitingNote
from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    ServerUnreachableError,
    Transport,
)
from royale_client.wire.errors import RoyaleError
from royale_client.wire.grammar import CLOSE_CODES, Side, may_send
from royale_client.wire.limits import Limits
from royale_client.wire.messages import Goodbye, Hello, Step, Stop

logger = logging.getLogger(__name__)

Dial: TypeAlias = Callable[[], Transport]

_POLL_S = 0.25
_WELCOME_S = 300.0


class ServerStoppedError(RoyaleError):
    """The server has ended the run in order; there will be no more actions.

    Args:
        stop: What it said.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"the server stopped ({stop.reason}): {stop.message}".rstrip(": "))
        self.reason = stop.reason


@dataclass(frozen=True, slots=True)
class _Session:
    """A session that was welcomed, and the transport under it."""

    transport: Transport
    protocol: ClientSession


class PolicyLink:
    """Exchanges turns for answers; connects again, and goes on, whenever the connection is lost.

    Args:
        hello: How the client introduces itself.
        dial: Opens one connection.
        limits: What to refuse from the server for its size.
        patience: How long to go on trying.
    """

    def __init__(self, hello: Hello, dial: Dial, limits: Limits, patience: Patience) -> None:
        self.policy_version: int | None = None
        self._hello = hello
        self._dial = dial
        self._limits = limits
        self._patience = patience
        self._retries = Retries(patience, random.random, time.monotonic())
        self._session: _Session | None = None
        self._opening: _Opening | None = None
        self._ended: RoyaleError | None = None

    def exchange(self, turn: Turn, timeout_s: float | None) -> Answered | None:
        """Send a turn and return its answer.

        Args:
            turn: What to send; sent again over another connection if the first one is lost.
            timeout_s: Seconds to wait; None for no end.

        Returns:
            The answer, or None if there was none in time; the session is then given up.

        Raises:
            ServerStoppedError: If the server ended the run, unless patience is for ever.
            RoyaleError: If the server refused something, or patience came to its end.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        is_again = False
        while True:
            if self._ended is not None:
                raise self._ended
            session = self._current(deadline_s)
            if session is None:
                return None
            goes_on = session.protocol.outstanding(0) is not None
            if goes_on and not is_again:
                # It waits for an answer that the program did without.
                self._reopen(ConnectionLostError("the program did not wait"), goes_on=False)
                turn = turn.already_reported()  # it is the same one, if Ctrl-C ended the wait
                continue
            if is_again and not goes_on:
                turn = turn.already_reported()
            try:
                answer = self._ask(session, turn, deadline_s)
            except (ConnectionLostError, ServerFaultError) as error:
                if not error.retry:
                    self._end(error)
                    raise
                logger.warning("%s Connecting again.", error)
                self._reopen(error)
                is_again = True
            except ServerStoppedError as error:
                if not self._patience.for_ever:
                    self._end(error)
                    raise
                logger.info("%s; waiting for the next run", error)
                self._retries.wait_for_next_run()
                self._reopen(error, goes_on=False)
                turn, is_again = turn.without_outcome(), False
            else:
                if answer is None:
                    logger.warning("no action in time; the session is given up")
                    late = ConnectionLostError("the server gave no action in time")
                    self._reopen(late, goes_on=False)
                return answer

    def close(self, turn: Turn | None, exception: str | None) -> None:
        """Send a last turn if there is one, say goodbye and disconnect."""
        if self._opening is not None:
            self._opening.give_up()
            self._opening = None
        if self._session is not None:
            reason = "the program is done" if exception is None else "the program failed"
            self._leave(self._session, turn, reason, exception)
        self._session = None

    def _end(self, error: RoyaleError) -> None:
        """Leave a session after which there will be no other; later exchanges raise ``error``."""
        self._ended = error
        if self._session is not None:
            self._leave(self._session, None, "the server ended the session", None)
        self._session = None

    @staticmethod
    def _leave(session: _Session, turn: Turn | None, reason: str, exception: str | None) -> None:
        protocol, transport = session.protocol, session.transport
        try:
            may_step = may_send(Side.CLIENT, protocol.state, Step.TYPE)
            if turn is not None and may_step and protocol.outstanding(0) is None:
                send_turn(protocol, transport, 0, turn)
            if may_send(Side.CLIENT, protocol.state, Goodbye.TYPE):
                transport.send(protocol.goodbye(reason, exception))
        except ConnectionLostError as lost:
            logger.debug("no goodbye: %s", lost)
        transport.close(CLOSE_CODES["goodbye"], "")

    def _current(self, deadline_s: float | None) -> _Session | None:
        """Return the open session, waiting for the one that is being opened."""
        if self._session is None:
            if self._opening is None:
                self._opening = _Opening(self._hello, self._dial, self._limits, self._retries)
            if not self._opening.wait(deadline_s):
                return None
            opening, self._opening = self._opening, None
            self._session = opening.result()
            self._retries.connected(time.monotonic())
        return self._session

    def _reopen(self, error: RoyaleError, *, goes_on: bool = True) -> None:
        """Give up the connection and begin to open the next one.

        Args:
            error: Why.
            goes_on: Whether the session is to go on over it, if the server agrees.

        Raises:
            RoyaleError: ``error``, if patience came to its end.
        """
        old, self._session = self._session, None
        pause_s = self._retries.next_pause_s(time.monotonic())
        if pause_s is None:
            if old is not None:
                self._leave(old, None, "the program has waited long enough", None)
            raise error
        # Closing may wait for the peer, so the next session's thread does it.
        self._opening = _Opening(
            self._hello,
            self._dial,
            self._limits,
            self._retries,
            pause_s=pause_s,
            old=old,
            goes_on=goes_on,
        )

    def _ask(self, session: _Session, turn: Turn, deadline_s: float | None) -> Answered | None:
        try:
            send_turn(session.protocol, session.transport, 0, turn)
        except ConnectionLostError:
            _raise_last_words(session)
            raise
        note, sent_s = WaitingNote(), time.monotonic()
        while (now_s := time.monotonic()) < (deadline_s or now_s + 1):
            data = session.transport.receive(min(_POLL_S, (deadline_s or now_s + 1) - now_s))
            if data is None:
                _log(note.silence(time.monotonic(), sent_s))
                continue
            for event in session.protocol.receive(data):
                match event:
                    case Answered():
                        self.policy_version = event.policy_version
                        return event
                    case ServerBusy(busy=busy):
                        _log(note.busy(busy, time.monotonic()))
                    case _:
                        _raise_if_ended(event)
        return None


class _Opening:
    """A session being opened in a thread, with as many attempts as patience allows.

    Args:
        hello: How the client introduces itself.
        dial: Opens one connection.
        limits: What to refuse from the server for its size.
        retries: Decides about pauses; used by this thread alone until the session is open.
        pause_s: Seconds to wait before the first attempt.
        old: Session before, whose connection is to be closed first.
        goes_on: Whether that session is to go on.
    """

    def __init__(
        self,
        hello: Hello,
        dial: Dial,
        limits: Limits,
        retries: Retries,
        *,
        pause_s: float = 0.0,
        old: _Session | None = None,
        goes_on: bool = True,
    ) -> None:
        self._hello = hello
        self._dial = dial
        self._limits = limits
        self._retries = retries
        self._pause_s = pause_s
        self._old = old
        self._earlier = old.protocol if old is not None and goes_on else None
        self._given_up = threading.Event()
        self._opened: _Session | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="connect", daemon=True)
        self._thread.start()

    def wait(self, deadline_s: float | None) -> bool:
        """Wait until the session is open or will never be; False if time ran out."""
        self._thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        return not self._thread.is_alive()

    def result(self) -> _Session:
        """Return the open session, or raise why there is none."""
        if self._error is not None:
            raise self._error
        assert self._opened is not None
        return self._opened

    def give_up(self) -> None:
        """Stop trying, and close what was opened meanwhile."""
        self._given_up.set()
        self._thread.join()
        if self._opened is not None:
            self._opened.transport.close(CLOSE_CODES["goodbye"], "")

    def _run(self) -> None:
        try:
            if self._old is not None:
                self._let_go(self._old)
            self._given_up.wait(self._pause_s)
            self._opened = self._try()
        except Exception as error:
            # Whatever it is belongs to the thread that waits for the session.
            self._error = error

    def _let_go(self, old: _Session) -> None:
        """Close a connection; without a goodbye the server would keep the session for a while."""
        if self._earlier is None and may_send(Side.CLIENT, old.protocol.state, Goodbye.TYPE):
            with contextlib.suppress(ConnectionLostError):
                old.transport.send(old.protocol.goodbye("the program goes on without an answer"))
        old.transport.close(CLOSE_CODES["goodbye"], "")

    def _try(self) -> _Session | None:
        while not self._given_up.is_set():
            try:
                return self._open()
            except (
                ConnectionLostError,
                HandshakeRefusedError,
                ServerFaultError,
                ServerUnreachableError,
            ) as error:
                pause_s = self._retries.next_pause_s(time.monotonic()) if error.retry else None
                if pause_s is None:
                    raise
                logger.info("%s Trying again.", error)
                self._given_up.wait(pause_s)
        return None

    def _open(self) -> _Session:
        transport = self._dial()
        try:
            return self._greet(transport)
        except BaseException:
            transport.close(CLOSE_CODES["goodbye"], "")
            raise

    def _greet(self, transport: Transport) -> _Session:
        """Say hello and wait for the welcome."""
        protocol = ClientSession(self._hello, self._limits, self._earlier)
        transport.send(protocol.start())
        deadline_s = time.monotonic() + _WELCOME_S
        while not self._given_up.is_set() and time.monotonic() < deadline_s:
            data = transport.receive(_POLL_S)
            for event in [] if data is None else protocol.receive(data):
                match event:
                    case Welcomed():
                        return _Session(transport, protocol)
                    case ServerBusy():  # alive, and waiting for other clients
                        deadline_s = time.monotonic() + _WELCOME_S
                    case Faulted(fault=fault):
                        raise ServerFaultError(fault)
                    case Stopped(stop=stop):
                        raise ConnectionLostError(f"the server is stopping ({stop.reason})")
        raise ConnectionLostError(f"the server was silent for {_WELCOME_S:.0f} s after the hello")


def _raise_last_words(session: _Session) -> None:
    """Raise what the server said before the connection ended, while the program did other things.

    Returns if it said nothing about it.
    """
    try:
        while (data := session.transport.receive(0.0)) is not None:
            for event in session.protocol.receive(data):
                _raise_if_ended(event)
                if isinstance(event, Answered):  # asked for again, over the next connection
                    session.protocol.unread(event)
    except ConnectionLostError:
        return


def _raise_if_ended(event: Event) -> None:
    match event:
        case Stopped(stop=stop):
            raise ServerStoppedError(stop)
        case Faulted(fault=fault):
            raise ServerFaultError(fault)


def _log(note: str | None) -> None:
    if note is not None:
        logger.info("waiting for the server: %s", note)
