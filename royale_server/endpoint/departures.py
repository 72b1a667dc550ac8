"""How clients go: with a goodbye, with a fault, cut off for good, or because the server goes.

The one place where a connection is closed by the server and where a session ends. Whoever goes
leaves every book it stood in: the roll, the lobby, the inquiries, the rest point, the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from royale_client.wire.errors import FAULT_CODES, one_line
from royale_client.wire.grammar import Side, may_send
from royale_client.wire.messages import Goodbye, Stop
from royale_server.endpoint.absence import Absence
from royale_server.endpoint.complaints import Complaints
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.continuity import Continuity
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.probing import Probing
from royale_server.endpoint.quarantine import Quarantine
from royale_server.endpoint.roll import Roll
from royale_server.endpoint.run_core import RunCore
from royale_server.scheduler import Member, Role

logger = logging.getLogger(__name__)


class Departures:
    """Ends sessions.

    Args:
        core: The run behind the clients.
        roll: Who is connected.
        absence: Who was cut off and may come back.
        continuity: What a checkpoint knows of clients.
        probing: Who is asked about its environment.
        quarantine: Counts faults.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        core: RunCore,
        roll: Roll,
        *,
        absence: Absence,
        continuity: Continuity,
        probing: Probing,
        quarantine: Quarantine,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._roll = roll
        self._absence = absence
        self._continuity = continuity
        self._probing = probing
        self._quarantine = quarantine
        self._complaints = Complaints()
        self._listener = listener
        self._clock = clock
        self.clients_lost = 0
        """Clients that trained and are gone without a goodbye, but not by a mistake of their own:
        one that breaks the protocol again and again must not look like machines that fail."""

    def goodbye(self, peer: Peer, goodbye: Goodbye) -> None:
        """A client says that it goes."""
        said = goodbye.exception or goodbye.reason
        self._miss(peer, said)
        self.forget(peer, f"goodbye: {said}", said_goodbye=True)
        self.close(peer, "goodbye")

    def disconnected(self, peer: Peer, why: str) -> None:
        """A connection is gone, whoever ended it, and its session with it."""
        if peer.is_closed:
            why = "was told to leave"
        else:
            self._miss(peer, why)
        peer.is_closed = True
        self.forget(peer, why)

    def fault(self, peer: Peer, code: str, message: str) -> None:
        """Tell a client what is wrong with it, and end its session.

        Args:
            peer: The client.
            code: Kind of the fault, for programs.
            message: What, where, got, expected, remedy; shortened to one line.
        """
        message = one_line(message)
        self._quarantine.fault(peer.place, _own_name(peer), code, self._clock())
        swallowed = self._complaints.may_say(peer.place, self._clock())
        if peer.member is not None or swallowed is not None:
            logger.warning("client %s: %s (%s)", peer.label, message, code)
            self._listener.event("fault", f"client {peer.label}: {message}", code=code)
        self._roll.send(peer, partial(peer.session.fault, code, message))
        self.close(peer, "fault")
        is_mistaken = not FAULT_CODES[code].retry
        self.forget(peer, f"fault: {message}", is_mistaken=is_mistaken)

    def end_session(self, member: Member, code: str, message: str) -> None:
        """The scheduler gives a client up, connected or awaited."""
        peer = self._roll.by_member.get(member)
        if peer is None:
            self._continuity.given_up(member)
        else:
            self.fault(peer, code, message)

    def stop(self, reason: str, message: str) -> None:
        """Tell every client why the server goes, and close. Nothing is scheduled any more."""
        self._core.is_stopped = True
        for peer in list(self._roll.peers):
            if may_send(Side.SERVER, peer.session.state, Stop.TYPE):
                self._roll.send(peer, partial(peer.session.stop, reason, message))
            self.close(peer, reason)

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection once; its session may go on elsewhere."""
        if not peer.is_closed:
            peer.is_closed = True
            peer.connection.close(reason)

    def forget(
        self, peer: Peer, why: str, *, said_goodbye: bool = False, is_mistaken: bool = False
    ) -> None:
        """End the session of a client: nobody counts on it any more.

        Args:
            peer: The client.
            why: For people.
            said_goodbye: It went in order.
            is_mistaken: It did what no client may do, and will not come back by itself.
        """
        if peer not in self._roll.peers and peer not in self._absence:
            return
        self._roll.peers.pop(peer, None)
        self._absence.forget(peer)
        if peer in self._roll.lobby:
            self._roll.lobby.remove(peer)
            self._probing.left(peer)
        member = peer.member
        if member is None:
            return
        core = self._core
        del self._roll.by_member[member]
        is_missed = member.role is Role.TRAIN and not (said_goodbye or is_mistaken)
        if is_missed and not core.is_stopped:
            self.clients_lost += 1
            self._roll.unreplaced += 1
        core.next_episode[peer.name] = core.scheduler.next_episode(member)
        self._continuity.left(peer)
        if not self._continuity.gone_before_restored(peer) and not core.is_stopped:
            core.scheduler.leave(member, self._clock())
        self._listener.client_left(peer, why)

    def _miss(self, peer: Peer, why: str) -> None:
        """Say of a client that leaves before it took part that it did not come up."""
        if peer in self._roll.lobby and not self._core.is_stopped:
            text = f"client {peer.label} did not come up: {why}"
            logger.warning("%s", text)
            self._listener.event("not_up", text, client=peer.name)


def _own_name(peer: Peer) -> str:
    """What a client calls itself, whatever it is called here; empty before its hello."""
    return "" if peer.session.hello is None else peer.session.hello.client_name
