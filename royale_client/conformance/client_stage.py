"""The client under test: how to get one that has connected, and a conversation with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from royale_client.conformance.client_talk import ClientTalk
from royale_client.conformance.listener import Listener, Start, Visit
from royale_client.conformance.scenario import Settings, SetupError, ViolationError
from royale_client.wire.grammar import State
from royale_client.wire.version import SUBPROTOCOL


class ClientUnderTest:
    """Where clients come from, and how to get one.

    Args:
        listener: Where they connect.
        start: Starts one.
        settings: How patient to be.
        connect_s: Seconds for a client to connect.
    """

    def __init__(
        self, listener: Listener, start: Start, settings: Settings, connect_s: float = 30.0
    ) -> None:
        self.settings = settings
        self._listener = listener
        self._start = start
        self._connect_s = connect_s
        self._num_talks = 0

    @contextlib.contextmanager
    def visit(self) -> Iterator[Visit]:
        """Start a client and wait until it has connected.

        Raises:
            SetupError: None came.
        """
        self._listener.send_away()
        end = self._start(self._listener.url)
        visit = None
        try:
            visit = self._listener.next_visit(self._connect_s)
            if visit is None:
                raise SetupError(
                    f"no client connected to {self._listener.url} within {self._connect_s:g} s"
                )
            yield visit
        finally:
            if visit is not None:
                visit.close()
            end()

    @contextlib.contextmanager
    def talk(self) -> Iterator[ClientTalk]:
        """Start a client and hear its hello."""
        with self.visit() as visit:
            if visit.link.subprotocol != SUBPROTOCOL:
                raise ViolationError(("P1",), f"the client offers {visit.offered}")
            self._num_talks += 1
            talk = ClientTalk(visit, self.settings, self._num_talks)
            talk.hear_hello()
            yield talk

    @contextlib.contextmanager
    def session(self, **welcome: Any) -> Iterator[ClientTalk]:  # noqa: ANN401 - fields of a welcome
        """Start a client and welcome it; at the end, stop it, unless the conversation is over."""
        with self.talk() as talk:
            talk.welcome(**welcome)
            yield talk
            if talk.state is State.READY:
                talk.stop("finished")

    @contextlib.contextmanager
    def back(self, earlier: ClientTalk) -> Iterator[ClientTalk]:
        """Wait until the client of a conversation whose connection was cut comes back by itself."""
        visit = self._listener.next_visit(self._connect_s)
        if visit is None:
            text = f"a client that can reconnect does not within {self._connect_s:g} s"
            raise ViolationError(("P71",), text)
        try:
            talk = ClientTalk(visit, self.settings, earlier.ordinal)
            talk.hear_hello()
            talk.check_return(earlier)
            yield talk
        finally:
            visit.close()

    def comes_back(self) -> bool:
        """Tell whether a client connects again within the time of silence."""
        visit = self._listener.next_visit(self.settings.quiet_s)
        if visit is not None:
            visit.close(1001)
        return visit is not None
