"""Says why nothing happens: to the clients that wait, and to the person who runs the server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from royale_server.config import ServerConfig
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.roll import Roll
from royale_server.scheduler import Group, Role, Scheduler

BUSY_AFTER_S = 2.0
"""A client that waits longer than this is told why."""
BUSY_EVERY_S = 5.0
WAITING_LINE_EVERY_S = 5.0


class Explainer:
    """Tells who waits for whom, at intervals.

    Args:
        config: Settings of the server.
        roll: Who is connected.
        queue_waiting: Called with the groups that owe a request, and since when nothing could be
            inferred.
        now: When the server started, on the clock that later times are on.
    """

    def __init__(
        self,
        config: ServerConfig,
        roll: Roll,
        queue_waiting: Callable[[list[Group], float], None],
        now: float,
    ) -> None:
        self._config = config
        self._roll = roll
        self._queue_waiting = queue_waiting
        self._waiting_said_at = 0.0
        self.last_dispatch_at = now
        """When a batch was last inferred, or could have been."""
        self.learning_since = 0.0
        self.is_paused = False
        """A person has paused the run."""
        self.expected_learn_s: float | None = None
        """How long the next learn step is likely to take."""

    def tick(self, scheduler: Scheduler | None, now: float) -> None:
        """Say what is due to be said."""
        for peer in list(self._roll.peers):
            self._say_busy(peer, scheduler, now)
        if scheduler is not None:
            self._report_waiting(scheduler, now)

    def missing_clients(self, scheduler: Scheduler | None) -> int:
        """Train clients still wanted before the first round."""
        if scheduler is not None and scheduler.dispatcher.started:
            return 0
        joined = sum(member.role is Role.TRAIN for member in self._roll.by_member)
        joined += sum(peer.is_trainer for peer in self._roll.lobby)
        return max(0, self._config.min_clients - joined)

    def _say_busy(self, peer: Peer, scheduler: Scheduler | None, now: float) -> None:
        waits_since = self._waits_since(peer)
        if waits_since is None or now - waits_since < BUSY_AFTER_S:
            return
        if now - peer.busy_said_at < BUSY_EVERY_S:
            return
        peer.busy_said_at = now
        if scheduler is None or peer in self._roll.lobby:
            missing = self.missing_clients(scheduler)
            text = f"{missing} more clients" if missing else "the policy to be built"
            busy = partial(peer.session.busy, "start", now - waits_since, None, text)
        elif self.is_paused:
            text = "the operator, who has paused the run"
            busy = partial(peer.session.busy, "pause", now - waits_since, None, text)
        elif scheduler.collection.learning:
            since = now - self.learning_since
            busy = partial(peer.session.busy, "learn", since, self.expected_learn_s, "")
        else:
            owing = ", ".join(_owed(group) for group in scheduler.awaited_groups()[:4])
            text = owing or self._wanted(scheduler)
            busy = partial(peer.session.busy, "collect", now - waits_since, None, text)
        self._roll.send(peer, busy)

    def _wanted(self, scheduler: Scheduler) -> str:
        """Who is to come, or to come back, before a round may begin."""
        missing = self.missing_clients(scheduler)
        restoring = [member.name for member in self._roll.by_member if not member.is_present]
        if missing or not restoring:
            return f"{missing} more clients"
        return f"the environments of {', '.join(restoring[:4])} to be restored"

    def _waits_since(self, peer: Peer) -> float | None:
        """Since when the client waits for a welcome or an answer; None if for neither."""
        if peer in self._roll.lobby:
            return peer.opened_at
        if peer.member is None:
            return None
        waits = [g.waiting.received_at for g in peer.member.groups if g.waiting is not None]
        return min(waits) if waits else None

    def _report_waiting(self, scheduler: Scheduler, now: float) -> None:
        since = self.last_dispatch_at
        if self.is_paused:
            return
        if scheduler.collection.learning or now - since < WAITING_LINE_EVERY_S:
            return
        if now - self._waiting_said_at < WAITING_LINE_EVERY_S or not self._roll.by_member:
            return
        self._waiting_said_at = now
        groups = scheduler.awaited_groups()
        if groups or self.missing_clients(scheduler):
            self._queue_waiting(groups, since)


def _owed(group: Group) -> str:
    return f"a request of {group.member.name}/{group.index}"
