"""Keeps a client in conversation: connect, converse, come back, or give up.

What can heal is tried again with growing, random pauses; what cannot (a version, spaces, a token)
ends the client at once with the server's own sentence. It knows loops and connections, but no
environment and no command line.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from royale_client.leaving import (
    EXIT_CRASHED,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_TOKEN,
    EXIT_UNREACHABLE,
    LeaveRequest,
)
from royale_client.loop import Ending, EnvLoop, Outcome, ServerFaultError
from royale_client.reconnect import Patience, Retries
from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    ServerUnreachableError,
    TokenRefusedError,
    Transport,
)
from royale_client.wire.errors import RoyaleError

logger = logging.getLogger(__name__)

_SLICE_S = 0.1
_REPEAT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clockwork:
    """Time and chance, as arguments so that tests need neither."""

    now: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    sleep: Callable[[float], None] = time.sleep
    """Waits the given number of seconds."""
    uniform: Callable[[], float] = random.random
    """Returns a number in [0, 1)."""


class ClientRunner:
    """Keeps a loop in conversation with its server.

    Args:
        loop: Environments and what they owe.
        dial: Opens one connection.
        patience: How long to go on trying.
        leave: Asked often; true ends the client.
        clockwork: Time and chance.
    """

    def __init__(
        self,
        loop: EnvLoop,
        dial: Callable[[], Transport],
        patience: Patience,
        leave: LeaveRequest,
        clockwork: Clockwork | None = None,
    ) -> None:
        self._loop = loop
        self._dial = dial
        self._patience = patience
        self._leave = leave
        self._clockwork = clockwork or Clockwork()
        self._said_s = -math.inf

    def run(self) -> Outcome:
        """Work until the client is done, the server stopped, or there is nothing left to try.

        Raises:
            RoyaleError: Why it ended otherwise; `exit_code` tells what that means for a process.
            Exception: Whatever an environment raises.
        """
        retries = Retries(self._patience, self._clockwork.uniform, self._clockwork.now())
        while True:
            transport = self._connect(retries)
            if transport is None:
                return Outcome(ending=Ending.LEFT, message="the client was asked to leave")
            try:
                outcome = self._loop.converse(transport)
            except (ConnectionLostError, ServerFaultError) as error:
                if self._loop.is_done() or self._leave():
                    ending = Ending.FINISHED if self._loop.is_done() else Ending.LEFT
                    return Outcome(ending=ending, message=f"while leaving: {error}")
                if not error.retry or not self._pause(retries, error):
                    raise
            else:
                if outcome.ending is not Ending.STOPPED or not self._patience.for_ever:
                    return outcome
                logger.info("%s; waiting for the next run", outcome.message)
                self._loop.forget_episodes()
                retries.wait_for_next_run()

    def _connect(self, retries: Retries) -> Transport | None:
        """Return a connection, or None if the client was asked to leave meanwhile."""
        while not self._leave():
            try:
                transport = self._dial()
            except (ServerUnreachableError, HandshakeRefusedError) as error:
                if not error.retry or not self._pause(retries, error):
                    raise
            else:
                retries.connected(self._clockwork.now())
                return transport
        return None

    def _pause(self, retries: Retries, error: RoyaleError) -> bool:
        """Wait before the next attempt; False if it is time to give up."""
        now_s = self._clockwork.now()
        pause_s = retries.next_pause_s(now_s)
        if pause_s is None:
            return False
        if now_s - self._said_s >= _REPEAT_S:
            self._said_s = now_s
            logger.warning("%s", _sentence(error) + f" Trying again in {pause_s:.1f} s.")
        until_s = now_s + pause_s
        while (left_s := until_s - self._clockwork.now()) > 0 and not self._leave():
            self._clockwork.sleep(min(left_s, _SLICE_S))
        return True


def exit_code(error: BaseException) -> int:
    """Return what an error means as the exit code of a client process."""
    match error:
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED
        case TokenRefusedError():
            return EXIT_TOKEN
        case ConnectionLostError(retry=True) | ServerFaultError(retry=True):
            return EXIT_UNREACHABLE
        case ServerUnreachableError() | HandshakeRefusedError(retry=True):
            return EXIT_UNREACHABLE
        case RoyaleError():
            return EXIT_REFUSED
        case _:
            return EXIT_CRASHED


def _sentence(error: RoyaleError) -> str:
    text = str(error)
    return text if text.endswith((".", "?", "!")) else text + "."
