"""Sessions that outlive their connections: cut off, kept for a while, going on over another one.

Joins the absent with the roll, the scheduler and the sessions. What a checkpoint knows of clients
is another matter: see ``royale_server.endpoint.continuity``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from royale_client.wire.messages import Hello, Step
from royale_server.config import ServerConfig
from royale_server.endpoint.absence import Absence, is_same_client
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.continuity import Continuity
from royale_server.endpoint.departures import Departures
from royale_server.endpoint.finiteness import nonfinite_observations
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.roll import Roll
from royale_server.endpoint.run_core import RunCore
from royale_server.scheduler import Request

logger = logging.getLogger(__name__)


class Resuming:
    """Lets clients that were cut off go on with their sessions.

    Args:
        config: Settings of the server.
        core: The run behind the clients.
        roll: Who is connected.
        absence: Who was cut off and may come back.
        continuity: What a checkpoint knows of clients.
        departures: Ends sessions.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        core: RunCore,
        roll: Roll,
        *,
        absence: Absence,
        continuity: Continuity,
        departures: Departures,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._core = core
        self._roll = roll
        self._absence = absence
        self._continuity = continuity
        self._departures = departures
        self._listener = listener
        self._clock = clock

    def welcomed(self, peer: Peer) -> None:
        """A client was given a welcome; its token leads to its session from now on."""
        self._absence.know(peer)

    def started_again(self, hello: Hello) -> None:
        """End the session of a client that was cut off, if this hello is of its next process."""
        gone = self._absence.started_again(hello)
        if gone is not None:
            self._departures.forget(gone, "its process was started again")

    def keep(self, peer: Peer, why: str) -> bool:
        """Keep the session of a client whose connection is lost, if it may come back.

        Returns:
            Whether it is kept; if not, it has to be ended.
        """
        if peer.is_closed or not self._absence.may_come_back(peer) or self._core.is_stopped:
            return False
        assert peer.member is not None, "only who takes part can come back"
        peer.is_closed = True
        del self._roll.peers[peer]
        self._continuity.left(peer)
        self._absence.begins(peer, self._clock())
        self._core.scheduler.cut_off(peer.member)
        grace_s = self._config.reconnect_grace
        text = f"client {peer.name} is cut off ({why}); its session is kept for {grace_s:g} s"
        logger.warning("%s", text)
        self._listener.event("cut_off", text, client=peer.name)
        return True

    def goes_on(self, peer: Peer, hello: Hello) -> bool:
        """Let a client that was cut off go on with its session, if it names one that can.

        The newest connection has it: that the older one is dead may not be known here yet.
        """
        earlier = self._absence.session_of(hello)
        if earlier is None:
            return False
        before = earlier.session.hello
        assert before is not None, "only who said hello has a session"
        if not is_same_client(before, hello):
            self._end(earlier, "its client came back as another one")
            return False
        self._carry_on(peer, earlier)
        text = f"client {peer.name} is back and goes on"
        logger.info("%s", text)
        self._listener.event("reconnected", text, client=peer.name)
        return True

    def _end(self, earlier: Peer, why: str) -> None:
        """End a session that is named by somebody else, whether its connection is lost or not."""
        if earlier.is_closed:
            self._departures.forget(earlier, why)
        else:
            self._departures.fault(earlier, "refused", why)

    def _carry_on(self, peer: Peer, earlier: Peer) -> None:
        """Move a session to another connection."""
        session, member, welcome = earlier.session, earlier.member, earlier.welcome
        assert member is not None, "only who takes part can come back"
        assert welcome is not None, "only who takes part can come back"
        last_requests = session.last_requests
        self._supersede(earlier)
        scheduler = self._core.scheduler
        peer.carry_on(earlier)
        peer.welcome = replace(
            welcome,
            policy_version=scheduler.ledger.version,
            last_requests=last_requests,
            restores=False,
            continues=True,
            assignments=(),
        )
        self._roll.seat(peer, member)
        self._absence.know(peer)
        self._roll.send(peer, partial(peer.session.welcome, peer.welcome, session))
        scheduler.reconnected(member, self._clock())

    def _supersede(self, earlier: Peer) -> None:
        """A session goes on over another connection; nothing more is expected of this one."""
        if not earlier.is_closed:
            text = "this session goes on over another connection"
            self._roll.send(earlier, partial(earlier.session.fault, "refused", text))
            self._departures.close(earlier, "fault")
            self._roll.peers.pop(earlier, None)
        self._continuity.left(earlier)
        self._absence.forget(earlier)

    def step_again(self, peer: Peer, step: Step) -> None:
        """A client that was cut off has no answer to its last request; its outcome was taken."""
        member, session = peer.member, peer.session
        assert member is not None, "the session lets no step through before the welcome"
        group = member.groups[step.group]
        if session.outstanding(step.group) is not None:
            return  # the answer will go to this connection
        scheduler = self._core.scheduler
        if scheduler.is_of_use(group):
            peer.connection.send(session.last_answer(step.group))
            return
        session.ask_again(step.group)
        request = Request(
            number=step.request,
            asks=group.everyone if step.asks is None else step.asks,
            ended=group.nobody,
            has_feedback=False,
            payload=step,
        )
        if self._config.on_nonfinite != "pass":
            request.invalid_observation = nonfinite_observations(step, request.asks)
        self._core.seating.requested(group, request)
        scheduler.request_again(group, request, self._clock())
