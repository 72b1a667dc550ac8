"""Who is connected, and which part in the run each has. Sends; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from royale_server.endpoint.connection import Peer
from royale_server.scheduler import Member, Role


@dataclass(slots=True)
class Roll:
    """The clients of a server."""

    peers: dict[Peer, None] = field(default_factory=dict)
    """Everybody connected, welcomed or not."""
    lobby: list[Peer] = field(default_factory=list)
    """Who has said hello and waits for a welcome."""
    by_member: dict[Member, Peer] = field(default_factory=dict)
    """Who takes part."""
    unreplaced: int = 0
    """Train clients that were lost and whose part nobody has taken since."""

    @property
    def names(self) -> list[str]:
        """Names of all clients, those included that are cut off and may come back."""
        return [peer.name for peer in {**self.peers, **dict.fromkeys(self.by_member.values())}]

    def seat(self, peer: Peer, member: Member) -> None:
        """Let a client take its part."""
        peer.member = member
        is_new = member not in self.by_member  # else it goes on over another connection
        self.by_member[member] = peer
        if is_new and member.role is Role.TRAIN:
            self.unreplaced = max(0, self.unreplaced - 1)

    def send(self, peer: Peer, message: Callable[[], bytes]) -> None:
        """Send what ``message`` encodes, unless the client is gone."""
        if not peer.is_closed:
            peer.connection.send(message())
