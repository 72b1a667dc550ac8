"""How long the server waits for what clients owe outside rounds, and what they are told then.

Requests of a round have limits of their own: see ``royale_server.scheduler``.
"""

from __future__ import annotations

from royale_client.wire.grammar import State
from royale_server.config import ServerConfig
from royale_server.endpoint.absence import Absence
from royale_server.endpoint.departures import Departures
from royale_server.endpoint.probing import Probing
from royale_server.endpoint.roll import Roll

HELLO_TIMEOUT_S = 4.0


class Patience:
    """Ends the sessions of clients that were waited for long enough.

    Args:
        config: Settings of the server.
        roll: Who is connected.
        absence: Who was cut off and may come back.
        probing: Who is asked about its environment.
        departures: Ends sessions.
    """

    def __init__(
        self,
        config: ServerConfig,
        roll: Roll,
        *,
        absence: Absence,
        probing: Probing,
        departures: Departures,
    ) -> None:
        self._config = config
        self._roll = roll
        self._absence = absence
        self._probing = probing
        self._departures = departures

    def tick(self, now: float) -> None:
        """End what is overdue at this time."""
        self._end_silence(now)
        self._end_restoring(now)
        for peer in self._absence.overdue(now):
            why = f"did not come back within {self._config.reconnect_grace:g} s"
            self._departures.forget(peer, why)
        self._end_inquiries()

    def _end_silence(self, now: float) -> None:
        """Who connects has to say hello."""
        for peer in [p for p in self._roll.peers if p.session.state is State.OPENED]:
            if now - peer.opened_at >= HELLO_TIMEOUT_S:
                text = f"no hello within {HELLO_TIMEOUT_S:g} s; is this a royale client?"
                self._departures.fault(peer, "timeout", text)

    def _end_restoring(self, now: float) -> None:
        """Who is back has to make its environments what they were."""
        limit_s = self._config.feedback_wait_timeout
        for peer in [p for p in self._roll.peers if p.remembered is not None]:
            if now - peer.restoring_since >= limit_s:
                text = (
                    f"its environments are not restored within {limit_s:g} s; if they need longer, "
                    "raise --feedback-wait-timeout on the server"
                )
                self._departures.fault(peer, "timeout", text)

    def _end_inquiries(self) -> None:
        """Who is asked what its environment does has to answer."""
        limit_s = self._config.first_step_timeout
        for peer in self._probing.overdue(limit_s):
            text = (
                "its environment has not answered what it was asked within "
                f"{limit_s:g} s; if it needs longer, raise --first-step-timeout on the server"
            )
            self._departures.fault(peer, "timeout", text)
