"""What the hub needs of a connection, and its record of the client behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from royale_server.endpoint.complaints import host_of

if TYPE_CHECKING:
    from royale_client.wire.messages import Welcome
    from royale_server.endpoint.returning import Remembered
    from royale_server.endpoint.session import ServerSession
    from royale_server.scheduler import Member


PING_INTERVAL_S = 20.0
"""A connection is pinged this often."""


class Connection(Protocol):
    """One client's wire, whatever carries it. Neither method blocks or raises."""

    @property
    def address(self) -> str:
        """Where the client is, for messages."""

    def send(self, data: bytes) -> None:
        """Queue one message."""

    def close(self, reason: str) -> None:
        """Close after what is queued has been sent."""


@dataclass(slots=True, eq=False)
class Peer:
    """A connected client, from its first byte to its end."""

    connection: Connection
    session: ServerSession
    opened_at: float
    name: str = ""
    """Unique among the connected clients: the hello's name, numbered if taken."""
    member: Member | None = None
    """Its part in the scheduler, once welcomed."""
    welcome: Welcome | None = field(default=None, repr=False)
    """What it was told then; holds a secret."""
    remembered: Remembered | None = None
    """What a checkpoint knows of it, until its environments are restored."""
    restoring_since: float = 0.0
    """Since when it has been restoring them."""
    late_snapshots: int = 0
    """Snapshots of its environments that did not come in time."""
    is_told_of: bool = False
    """That it has no snapshots was said."""
    is_closed: bool = False
    busy_said_at: float = 0.0
    warn_again_at: float = 0.0
    """When the next warning about its numbers may be shown."""
    notes_left: float = 1.0
    """Log records and complaints that are taken before the next tick; set as it comes."""
    records_dropped: int = 0
    """Log records that were not taken, or that it says it has lost, and that nobody was told of."""
    tell_dropped_at: float = 0.0
    """When somebody may be told of such again."""
    messages_left: float = 0.0
    """Log messages that are read before the next tick."""

    @property
    def place(self) -> str:
        """The machine it is on, for what is counted by machine."""
        return host_of(self.connection.address)

    def carry_on(self, earlier: Peer) -> None:
        """Be the client that another connection was, whose session this one goes on with."""
        self.name = earlier.name
        self.late_snapshots = earlier.late_snapshots
        self.is_told_of = earlier.is_told_of
        self.warn_again_at = earlier.warn_again_at
        self.notes_left = min(self.notes_left, earlier.notes_left)

    @property
    def is_trainer(self) -> bool:
        """Whether it has said hello, to train."""
        return self.session.hello is not None and self.session.hello.role == "train"

    @property
    def label(self) -> str:
        """Name (or address, before the hello) for messages."""
        return self.name or self.connection.address
