"""What clients make the record of the run say: their own log, and complaints about their numbers.

Each has a share of it that is renewed with every tick; what goes beyond is counted and dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from royale_client.wire.errors import LimitError
from royale_client.wire.messages import Log
from royale_server.config import ServerConfig
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.finiteness import NonFinite
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.nonfinite_notes import complaint
from royale_server.endpoint.roll import Roll
from royale_server.scheduler import Group, Request

logger = logging.getLogger(__name__)

TICKS_PER_S = 10.0
MESSAGES_PER_RECORD = 10
"""A client may send so many log messages for each record that is taken; empty ones cost as well."""
WARN_EVERY_S = 30.0
"""A client whose numbers are not finite is shown to a person this often."""


class ClientNotes:
    """Passes on what clients log and what is wrong with their numbers, within their shares.

    Args:
        config: Settings of the server.
        roll: Who is connected.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        roll: Roll,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._roll = roll
        self._listener = listener
        self._clock = clock
        self.nonfinite_frames: Counter[str] = Counter()
        """Rows with NaN or infinities, by client."""

    def allow(self, peer: Peer) -> None:
        """Renew what a client may make the log say; where that is rare, it is saved up for one."""
        share = self._config.max_log_rate / TICKS_PER_S
        peer.notes_left = min(max(1.0, share), peer.notes_left + share)
        peer.messages_left = MESSAGES_PER_RECORD * max(1.0, share)

    def tick(self, now: float) -> None:
        """Renew everybody's share, and say what was dropped."""
        for peer in self._roll.peers:
            self.allow(peer)
            self._tell_dropped(peer, now)

    def log(self, peer: Peer, log: Log) -> None:
        """Pass on what a client logs, as far as its share of the log allows.

        Raises:
            LimitError: It sends more messages than anybody could want to read.
        """
        peer.messages_left -= 1
        if peer.messages_left < 0:
            raise LimitError(
                "too many log messages",
                where="log",
                expected=f"at most {MESSAGES_PER_RECORD * self._config.max_log_rate} a second",
                remedy="send several records in one message, or raise --max-log-rate on the server",
            )
        taken = log.records[: int(peer.notes_left)]
        peer.notes_left -= len(taken)
        peer.records_dropped += log.dropped + len(log.records) - len(taken)
        for record in taken:
            self._listener.event("client_log", f"client {peer.label}", record=record)

    def nonfinite(self, peer: Peer, group: Group, request: Request, bad: NonFinite) -> None:
        """Count what is wrong with a request's numbers, and complain to client and person.

        Args:
            peer: The client.
            group: The group that sent them, before the request is entered in its books.
            request: The request; its payload is the step.
            bad: What is not finite in it.
        """
        rows = bad.rows()
        self.nonfinite_frames[peer.name] += len(rows)
        if self._config.on_nonfinite == "halt":
            self._listener.must_stop(
                f"client {peer.label} sent a NaN or infinity (rows {rows[:8]})"
            )
        if peer.notes_left < 1:
            return  # counted all the same; the client was told often enough
        peer.notes_left -= 1
        hello = peer.session.hello
        assert hello is not None, "only who said hello sends steps"
        what = complaint(hello, group, request, self._config.on_nonfinite)
        text = f"client {peer.label}: {what}"
        total = self.nonfinite_frames[peer.name]
        if self._clock() >= peer.warn_again_at:
            peer.warn_again_at = self._clock() + WARN_EVERY_S
            logger.warning("%s (%d rows so far)", text, total)
        self._listener.event("nonfinite", text, client=peer.name, rows=rows, total=total)
        self._roll.send(peer, partial(peer.session.busy, "invalid", 0.0, None, text))

    def _tell_dropped(self, peer: Peer, now: float) -> None:
        """Note how many log records of a client were dropped, once a second at most."""
        if peer.records_dropped and now >= peer.tell_dropped_at:
            peer.tell_dropped_at = now + 1.0
            dropped, peer.records_dropped = peer.records_dropped, 0
            text = f"client {peer.label}: {dropped} log records dropped"
            self._listener.event("client_log", text, dropped=dropped)
