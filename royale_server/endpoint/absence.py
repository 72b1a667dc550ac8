"""Clients that were cut off and may come back: who they are, and until when they are waited for.

Pure: times are given. A session is found by the token of its welcome, of which only a digest is
kept as a key, so that how long a search takes says nothing about tokens.
"""

from __future__ import annotations

import hashlib

from royale_client.wire.messages import Hello
from royale_server.endpoint.connection import Peer


class Absence:
    """The sessions that may go on over another connection, and those that have none now.

    Args:
        grace_s: How long a session without a connection is kept, seconds.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._by_token: dict[bytes, Peer] = {}
        self._since: dict[Peer, float] = {}

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._since

    def know(self, peer: Peer) -> None:
        """A client was welcomed; its token leads to it from now on, and to nobody else."""
        if peer.welcome is not None:
            self._by_token[_digest(peer.welcome.session_token)] = peer

    def forget(self, peer: Peer) -> None:
        """A session is over, or carried on by another."""
        self._since.pop(peer, None)
        if peer.welcome is not None:
            key = _digest(peer.welcome.session_token)
            if self._by_token.get(key) is peer:
                del self._by_token[key]

    def may_come_back(self, peer: Peer) -> bool:
        """Whether a client whose connection is lost could go on with its session."""
        is_known = peer.member is not None and peer.remembered is None
        return is_known and self._grace_s > 0 and peer.session.can_go_on

    def begins(self, peer: Peer, now: float) -> None:
        """A client is cut off."""
        self._since[peer] = now

    def overdue(self, now: float) -> list[Peer]:
        """Those that are waited for no longer."""
        return [peer for peer, since in self._since.items() if now - since >= self._grace_s]

    def session_of(self, hello: Hello) -> Peer | None:
        """Who has the session that a hello names, if it can go on."""
        if hello.resume_token is None:
            return None
        peer = self._by_token.get(_digest(hello.resume_token))
        return peer if peer is not None and self.may_come_back(peer) else None

    def started_again(self, hello: Hello) -> Peer | None:
        """Who was cut off and has been started again as another process, which this hello is of."""
        for peer in self._since:
            before = peer.session.hello
            assert before is not None, "only who said hello has a session"
            is_same = (before.client_name, before.host) == (hello.client_name, hello.host)
            if is_same and before.process_id != hello.process_id:
                return peer
        return None


def is_same_client(before: Hello, now: Hello) -> bool:
    """Whether a client is what it was, in everything that its session rests on."""
    return _rests_on(before) == _rests_on(now)


def _rests_on(hello: Hello) -> tuple[object, ...]:
    environment = hello.env_id, hello.env_digest, hello.masks, hello.episode_metrics
    return hello.process_id, hello.role, hello.groups, hello.features, *environment


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
