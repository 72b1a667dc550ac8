"""One round of asking clients for snapshots of their environments. Pure: no socket, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from royale_server.endpoint.connection import Peer
from royale_server.endpoint.returning import States
from royale_server.saved_run import SavedClient
from royale_server.scheduler import SchedulerState
from royale_server.selfplay.book import SavedSeating

MAX_BYTES = 2**30
"""Of all snapshots of one checkpoint: they are held in memory until it is written."""


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Who was asked, and who has answered what."""

    state: SchedulerState
    """The scheduler's, at the rest point."""
    versions: Mapping[str, npt.NDArray[np.int64]]
    """Policy versions of the running episodes, then."""
    seating: SavedSeating
    """Who plays which seat, then."""
    clients: dict[str, SavedClient]
    """What is kept of each of its members, by name; snapshots are added to it."""
    waiting: dict[Peer, None]
    deadline: float
    """When it goes on without those that have not answered."""
    num_bytes: int = 0
    """Of the snapshots received."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why there is no snapshot, by client name."""

    @property
    def is_complete(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self.waiting

    def received(self, peer: Peer, states: States, failure: str | None) -> None:
        """A client has answered; one that nobody waits for any more is not listened to."""
        if peer not in self.waiting:
            return
        del self.waiting[peer]
        size = sum(state.nbytes for state in states)
        if failure is None and self.num_bytes + size > MAX_BYTES:
            failure = f"its {size:,} bytes are beyond the {MAX_BYTES:,} of all snapshots together"
        if failure is None:
            self.num_bytes += size
            self.clients[peer.name] = replace(self.clients[peer.name], states=states)
        else:
            self.failures[peer.name] = failure

    def left(self, peer: Peer) -> None:
        """A client is gone."""
        if peer in self.waiting:
            del self.waiting[peer]
            self.failures[peer.name] = "it left before it answered"

    def give_up(self) -> Mapping[str, str]:
        """Go on without those that have not answered; return why there is no snapshot of whom."""
        for peer in self.waiting:
            self.failures[peer.name] = "it did not answer in time"
        self.waiting.clear()
        return self.failures
