"""From hello to welcome: names, the lobby, who is let in, and what each is told.

Clients wait in the lobby until the engine is built, their environment has shown what it does, and
a deterministic run is complete. What refuses a hello is `Admission`'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from royale_client.wire.errors import ProtocolError
from royale_client.wire.messages import Hello
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.continuity import Continuity
from royale_server.endpoint.departures import Departures
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.probing import Probing
from royale_server.endpoint.quarantine import Quarantine
from royale_server.endpoint.resuming import Resuming
from royale_server.endpoint.returning import Remembered
from royale_server.endpoint.roll import Roll
from royale_server.endpoint.run_core import RunCore
from royale_server.scheduler import Role

logger = logging.getLogger(__name__)


class Reception:
    """Receives clients.

    Args:
        config: Settings of the server.
        core: The run behind the clients.
        roll: Who is connected.
        admission: Decides on hellos.
        quarantine: Who has to wait after faults.
        continuity: What a checkpoint knows of clients.
        probing: Asks clients about their environments.
        resuming: Lets clients go on over another connection.
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
        admission: Admission,
        quarantine: Quarantine,
        continuity: Continuity,
        probing: Probing,
        resuming: Resuming,
        departures: Departures,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._core = core
        self._roll = roll
        self._admission = admission
        self._quarantine = quarantine
        self._continuity = continuity
        self._probing = probing
        self._resuming = resuming
        self._departures = departures
        self._listener = listener
        self._clock = clock

    # --- hellos -----------------------------------------------------------------------------

    def hello(self, peer: Peer, hello: Hello) -> None:
        """Take a client's first message.

        Raises:
            ProtocolError: It cannot take part.
        """
        if self._resuming.goes_on(peer, hello):
            return
        self._quarantine.check(peer.place, hello.client_name, self._clock())
        name = self._name_for(hello)
        self._check(hello, name, len(self._roll.by_member) + len(self._roll.lobby))
        peer.name = name
        self._roll.lobby.append(peer)
        self._probing.greeted(peer, hello)
        self._admission.first_spaces(hello)
        difference = self._admission.noted_difference(hello)
        if difference is not None:
            logger.warning("client %s: %s", peer.label, difference)
            self._listener.event("other_environment", f"client {peer.label}: {difference}")
        if self._core.scheduler_or_none is not None:
            self.admit_lobby()

    def _name_for(self, hello: Hello) -> str:
        """Its name in this run; that of a client that is awaited is kept for who trains."""
        self._resuming.started_again(hello)
        taken = self._roll.names
        if Role(hello.role) is not Role.TRAIN:
            taken += self._continuity.awaited
        return self._admission.unique_name(hello.client_name, taken)

    def _check(self, hello: Hello, name: str, num_sessions: int) -> None:
        """Refuse a hello that cannot take part; raises `ProtocolError`."""
        core = self._core
        awaited = self._continuity.awaited
        self._admission.check(hello, name, num_sessions, core.scheduler_or_none, awaited)
        if core.seating_or_none is not None:
            core.seating_or_none.check(hello)

    # --- environments that were asked what they do ------------------------------------------

    def passed(self, hello: Hello) -> None:
        """Admit clients with the environment of this hello from now on."""
        self._probing.passed(hello)
        if self._core.scheduler_or_none is not None:
            self.admit_lobby()

    def refuse_environment(self, hello: Hello, message: str) -> None:
        """Send away the clients with the environment of this hello."""
        for peer in self._probing.refused(hello):
            self._departures.fault(peer, "refused", message)

    def refuse_lobby(self, message: str) -> None:
        """The engine could not be built for these clients' spaces."""
        for peer in list(self._roll.lobby):
            self._departures.fault(peer, "refused", message)

    # --- the lobby --------------------------------------------------------------------------

    def admit_lobby(self) -> None:
        """Welcome who waits: at once, or by name once a deterministic run is complete."""
        for peer in self._admissible():
            self._roll.lobby.remove(peer)
            hello = peer.session.hello
            assert hello is not None, "only who said hello is in the lobby"
            try:
                self._check(hello, peer.name, len(self._roll.by_member))
                self._welcome(peer, hello)
            except ProtocolError as error:
                self._departures.fault(peer, error.code, error.sentence)

    def _admissible(self) -> list[Peer]:
        """Who need not wait in the lobby any longer, in the order in which they are welcomed."""
        waiting = [p for p in self._roll.lobby if not (p.is_closed or self._is_held(p))]
        scheduler = self._core.scheduler
        if not (self._config.deterministic and scheduler.accepts_train_sessions):
            return waiting
        awaited = self._continuity.awaited
        fresh = [p for p in waiting if p.is_trainer and p.name not in awaited]
        waiting = [peer for peer in waiting if peer not in fresh]
        if len(fresh) >= self._config.min_clients - scheduler.num_train_sessions:
            # Those beyond the number are refused as they are checked.
            waiting = sorted(fresh, key=lambda peer: peer.name) + waiting
        return waiting

    def _is_held(self, peer: Peer) -> bool:
        """Whether its environment has still to show that it does what it says."""
        return peer.session.hello is not None and self._probing.is_held(peer.session.hello)

    # --- welcomes ---------------------------------------------------------------------------

    def _welcome(self, peer: Peer, hello: Hello) -> None:
        remembered = self._continuity.take(peer, self._core.scheduler)
        if remembered is None:
            self._welcome_new(peer, hello)
        else:
            self._welcome_returning(peer, hello, remembered)
        self._admission.admitted(hello)
        self._listener.client_joined(peer, hello)
        if remembered is not None:
            self._continuity.welcomed_back(peer, remembered)

    def _welcome_new(self, peer: Peer, hello: Hello) -> None:
        core = self._core
        first_episode = core.next_episode[peer.name]
        member = core.scheduler.join(
            peer.name, Role(hello.role), hello.groups, self._clock(), first_episode=first_episode
        )
        self._roll.seat(peer, member)
        core.episodes.add_slots(member.size)
        core.add_slots([(peer.name, slot) for slot in range(member.size)])
        told = core.seating.joined(member, hello, first_episode)
        self._send_welcome(peer, hello, first_episode, told)

    def _welcome_returning(self, peer: Peer, hello: Hello, remembered: Remembered) -> None:
        """Give a client of the checkpoint its place again."""
        member = remembered.member
        self._roll.seat(peer, member)
        requests = tuple(group.waiting.number for group in member.groups if group.waiting)
        fresh = self._core.scheduler.next_episode(member)
        told = self._core.seating.came_back(member, hello, fresh)
        self._send_welcome(peer, hello, fresh, told, requests)

    def _send_welcome(
        self,
        peer: Peer,
        hello: Hello,
        first_episode: int,
        assignments: tuple[dict[str, Any], ...],
        last_requests: tuple[int, ...] | None = None,
    ) -> None:
        assert peer.member is not None
        welcome = self._admission.welcome(
            hello,
            name=peer.name,
            first_slot=peer.member.groups[0].start,
            first_episode=first_episode,
            policy_version=self._core.scheduler.ledger.version,
            assignments=assignments,
            last_requests=last_requests,
        )
        peer.welcome = welcome
        self._resuming.welcomed(peer)
        self._roll.send(peer, partial(peer.session.welcome, welcome))
