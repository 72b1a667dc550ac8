"""What lets a run go on where it stopped: snapshots at rest points, and clients that come back.

A rest point gathers what clients will come back to; a resumed run lets each client of the
checkpoint take its place by its name, with its environments as they were or with fresh episodes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from royale_client.wire.messages import Hello, Snapshotted
from royale_client.wire.snapshots import RESTART, SNAPSHOT
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import RefusedError
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.episodes import EpisodeBook
from royale_server.endpoint.gathering import Gathering
from royale_server.endpoint.returning import Remembered, ReturningClients
from royale_server.endpoint.roll import Roll
from royale_server.saved_run import SavedClient, Sessions
from royale_server.scheduler import Effect, Member, Rested, Role, Scheduler
from royale_server.selfplay.book import SavedSeating

logger = logging.getLogger(__name__)

MOST_LATE_SNAPSHOTS = 2
"""Snapshots a client may fail to give in time before it is not asked any more."""

SNAPSHOT_WAIT_S = 5.0
"""How long a rest point waits for snapshots; a deterministic run waits as for a request."""


class RestListener(Protocol):
    """What the run does at a rest point."""

    def rested(self, effects: tuple[Effect, ...]) -> None:
        """The rest point asked for is reached; snapshots of environments are on their way."""

    def gathered(self, sessions: Sessions) -> None:
        """What clients come back to is complete, as far as it will be."""

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Something for the events of the run."""


class Continuity:
    """Gathers what clients come back to, and lets them come back.

    Args:
        config: Settings of the server.
        roll: Who is connected.
        listener: The run.
        restart: Lets the episodes of a session begin anew.
        returned: Lets those of a session go on where they were.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        roll: Roll,
        listener: RestListener,
        *,
        restart: Callable[[Member], None],
        returned: Callable[[Member], None],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._roll = roll
        self._listener = listener
        self._restart = restart
        self._returned = returned
        self._clock = clock
        self._returning = ReturningClients()
        self._gathering: Gathering | None = None
        self._num_gatherings = 0
        self._oldest_of_rest = 1
        """Number of the first snapshots of this rest; all since then show the same moment."""
        self._owing: dict[Peer, int] = {}
        """Who was asked for a snapshot and has not answered, and for which."""

    # --- rest points ----------------------------------------------------------------------

    def rested(
        self,
        command: Rested,
        scheduler: Scheduler,
        episodes: EpisodeBook,
        seating: SavedSeating,
    ) -> None:
        """Ask every client that trains for a snapshot of its environments."""
        self._listener.rested(command.effects)
        state = scheduler.state()
        saved = {member.name for member in state.members}
        wait_s = SNAPSHOT_WAIT_S
        if self._config.deterministic:
            wait_s = max(wait_s, self._config.feedback_wait_timeout)
        self._num_gatherings += 1
        peers = [peer for peer in self._roll.by_member.values() if peer.name in saved]
        able = [peer for peer in peers if not peer.is_closed and _can_snapshot(peer)]
        asked = [peer for peer in able if peer not in self._owing]
        late = [peer for peer in able if self._owing.get(peer, math.inf) < self._oldest_of_rest]
        self._gathering = Gathering(
            state=state,
            versions=episodes.versions(),
            seating=seating,
            clients={member.name: self._saved_client(member.name) for member in state.members},
            waiting=dict.fromkeys(peer for peer in able if peer not in late),
            deadline=self._clock() + wait_s,
            failures={
                **{peer.name: "it still owes the last one" for peer in late},
                **{peer.name: "it is cut off" for peer in peers if peer.is_closed},
            },
        )
        for peer in asked:
            self._owing[peer] = self._num_gatherings
            self._roll.send(peer, partial(peer.session.snapshot, self._num_gatherings))
        self._say_who_is_left_out(scheduler, saved)

    def _say_who_is_left_out(self, scheduler: Scheduler, saved: set[str]) -> None:
        """Say, once each, which clients would have to begin new episodes after a resume."""
        for member, peer in self._roll.by_member.items():
            if member.role is not Role.TRAIN or peer.remembered is not None:
                continue
            if peer.name not in saved:
                text = f"client {peer.name} is late and no part of the checkpoint"
                self._listener.event("left_out", text, client=peer.name)
            elif SNAPSHOT not in _hello(peer).features and not peer.is_told_of:
                peer.is_told_of = True
                text = f"client {peer.name} has no snapshots: a resume begins its episodes anew"
                self._listener.event("no_snapshot", text, client=peer.name)

    def gather(self) -> None:
        """Hand over what clients come back to, once it is complete. Call it after any event."""
        gathering = self._gathering
        if gathering is None:
            return
        if not gathering.is_complete and self._clock() < gathering.deadline:
            return
        self._gathering = None
        for peer in gathering.waiting:
            self._count_late(peer)
        for name, why in gathering.give_up().items():
            text = f"no snapshot of client {name}: {why}; a resume begins its episodes anew"
            self._listener.event("no_snapshot", text, client=name)
        self._listener.gathered(
            Sessions(
                scheduler=gathering.state,
                clients=gathering.clients,
                versions=dict(gathering.versions),
                seating=gathering.seating,
            )
        )

    def _count_late(self, peer: Peer) -> None:
        """A client that holds up every checkpoint is not asked any more."""
        peer.late_snapshots += 1
        if peer.late_snapshots == MOST_LATE_SNAPSHOTS:
            text = f"client {peer.name} has been too slow to be saved {peer.late_snapshots} times: "
            self._say("too_slow", text + "it is not asked any more", client=peer.name)

    def snapshotted(self, peer: Peer, snapshotted: Snapshotted) -> None:
        """Take a snapshot, unless the run has gone on without it."""
        self._owing.pop(peer, None)
        gathering = self._gathering
        if gathering is not None and snapshotted.number >= self._oldest_of_rest:
            gathering.received(peer, snapshotted.states, snapshotted.failure)

    def give_up(self) -> None:
        """Wait for no further snapshot."""
        if self._gathering is not None:
            self._gathering.deadline = self._clock()

    def stop_gathering(self) -> None:
        """The rest is over."""
        self._oldest_of_rest = self._num_gatherings + 1
        self._gathering = None

    def left(self, peer: Peer) -> None:
        """A client is gone."""
        self._owing.pop(peer, None)
        if self._gathering is not None:
            self._gathering.left(peer)

    def _saved_client(self, name: str) -> SavedClient:
        """What a checkpoint keeps of a client; of one that is not back yet, what it had."""
        peer = next((p for p in self._roll.by_member.values() if p.name == name), None)
        remembered = self._returning.get(name) if peer is None else peer.remembered
        if remembered is not None:
            return SavedClient(
                env_id=remembered.env_id,
                env_digest=remembered.env_digest,
                states=remembered.states,
            )
        assert peer is not None, "a member is connected, or awaited"
        hello = _hello(peer)
        return SavedClient(env_id=hello.env_id, env_digest=hello.env_digest)

    # --- coming back ----------------------------------------------------------------------

    @property
    def awaited(self) -> dict[str, int]:
        """Slots of the clients of the checkpoint that are not back, by name."""
        return self._returning.places

    def expect(self, sessions: Sessions, scheduler: Scheduler) -> list[Member]:
        """Take over what a checkpoint knows of clients. Returns their parts in the run."""
        members = scheduler.load(sessions.scheduler, self._clock())
        for member in members:
            saved = sessions.clients[member.name]
            self._returning.expect(
                Remembered(
                    member=member,
                    env_id=saved.env_id,
                    env_digest=saved.env_digest,
                    states=saved.states,
                )
            )
        return members

    def take(self, peer: Peer, scheduler: Scheduler) -> Remembered | None:
        """The place that a client may come back to, if there is one and it fits.

        Raises:
            RefusedError: It is another client than it was, and this run needs the one that was.
        """
        remembered = self._returning.get(peer.name)
        if remembered is None:
            return None
        difference = remembered.differs(_hello(peer))
        if difference is not None and self._config.deterministic:
            raise RefusedError(
                f"client {peer.name} is back but {difference}",
                expected="in a deterministic run, the client of the checkpoint as it was",
                remedy="start it as before",
            )
        self._returning.take(peer.name)
        if difference is None:
            return remembered
        text = f"client {peer.name} is back but {difference}; it counts as a new one"
        self._say("changed", text, client=peer.name)
        scheduler.leave(remembered.member, self._clock())
        return None

    def welcomed_back(self, peer: Peer, remembered: Remembered) -> None:
        """Send a client that was just welcomed to its place what its environments were like."""
        hello = _hello(peer)
        if RESTART not in hello.features:
            self._begin_afresh(peer, "they cannot be restored")
            return
        peer.remembered = remembered
        peer.restoring_since = self._clock()
        self._roll.send(peer, partial(peer.session.restore, remembered.states_for(hello)))

    def restored(self, peer: Peer, *, failure: str | None, to_adopt: bool) -> None:
        """A client has done what `welcomed_back` told it.

        Args:
            peer: The client.
            failure: Why its environments are not as they were, if it tried.
            to_adopt: They are: its parked requests are open again.
        """
        remembered, peer.remembered = peer.remembered, None
        assert remembered is not None, "the session lets only what was asked for through"
        if not to_adopt:
            why = failure or remembered.obstacle(_hello(peer))
            self._begin_afresh(peer, why or "the client did not say why")
            return
        waiting = [group.waiting for group in remembered.member.groups]
        peer.session.adopt([request.num_asking for request in waiting if request])
        text = f"client {peer.name} is back; its environments are as they were"
        self._listener.event("restored", text, client=peer.name)
        self._returned(remembered.member)

    def gone_before_restored(self, peer: Peer) -> bool:
        """Await a client again that vanished before it was back. Says whether it is one."""
        remembered, peer.remembered = peer.remembered, None
        if remembered is None or remembered.member.ended:
            return False
        self._returning.expect(remembered)
        return True

    def given_up(self, member: Member) -> None:
        """The place of a client that did not come back is given up."""
        self._returning.take(member.name)
        text = f"client {member.name} of the checkpoint has not come back; it is awaited no longer"
        self._say("absent", text, client=member.name)

    def _begin_afresh(self, peer: Peer, why: str) -> None:
        """The episodes of a client that is back begin anew, from their keyed seeds."""
        member = peer.member
        assert member is not None
        text = f"client {peer.name} is back; its {member.size} episodes begin anew: {why}"
        self._say("restarted", text, client=peer.name, episodes=member.size)
        self._restart(member)

    def _say(self, kind: str, text: str, **facts: Any) -> None:  # noqa: ANN401 - facts of an event
        logger.warning("%s", text)
        self._listener.event(kind, text, **facts)


def noise_slots(members: list[Member], num_slots: int) -> list[tuple[str, int]]:
    """Name and slot within the client of each slot; slots of clients long gone have no name."""
    owners = [("", 0)] * num_slots
    for member in members:
        first = member.groups[0].start
        owners[first : first + member.size] = [(member.name, i) for i in range(member.size)]
    return owners


def _hello(peer: Peer) -> Hello:
    assert peer.session.hello is not None, "only who said hello has a part"
    return peer.session.hello


def _can_snapshot(peer: Peer) -> bool:
    is_able = peer.remembered is None and SNAPSHOT in _hello(peer).features
    return is_able and peer.late_snapshots < MOST_LATE_SNAPSHOTS
