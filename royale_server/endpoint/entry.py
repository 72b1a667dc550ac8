"""Who may open a connection: the token, the name that the server is called by, the page that calls.

Judges the headers of an opening request, whoever has read them; knows no socket, and nothing of the
client behind it. Never shows a token.
"""

from __future__ import annotations

import hmac
import http
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from royale_server.config import is_loopback

Values = Callable[[str], Sequence[str]]
"""Returns every value of the header of that name, however it is spelled."""

_ONCE = ("authorization", "host", "origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a connection is not opened."""

    status: http.HTTPStatus
    """What is answered."""
    why: str
    """For the log of the server."""
    text: str
    """For the person at the other end, with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRules:
    """What a server asks of whoever connects."""

    token: str | None = field(default=None, repr=False)
    """What clients must present; None asks for none."""
    hosts: frozenset[str] | None = None
    """Names by which the server may be called, besides loopback ones. None lets any pass: what
    other machines call it is not known here."""
    origins: frozenset[str] = frozenset()
    """Web pages whose scripts may connect, besides those that come from the server itself."""

    @classmethod
    def of(
        cls,
        *,
        token: str | None,
        host: str,
        allow_host: Iterable[str],
        allow_origin: Iterable[str],
    ) -> EntryRules:
        """The rules of a server that listens on ``host``."""
        names = frozenset(name.lower() for name in (host, *allow_host))
        return cls(
            token=token,
            hosts=names if is_loopback(host) else None,
            origins=frozenset(origin.lower().rstrip("/") for origin in allow_origin),
        )

    def refusal(self, values: Values) -> Refusal | None:
        """Judge an opening request.

        Args:
            values: Its headers.

        Returns:
            Why it is refused; None lets it in.
        """
        for name in _ONCE:
            if len(values(name)) > 1:
                text = f"The request has more than one header {name.capitalize()}.\n"
                return Refusal(
                    status=http.HTTPStatus.BAD_REQUEST, why=f"several headers {name}", text=text
                )
        return self._of_host(values) or self._of_origin(values) or self._of_token(values)

    def _of_host(self, values: Values) -> Refusal | None:
        """Refuse a name that a web page may have made up to reach this machine from a browser."""
        if self.hosts is None:
            return None
        called = "".join(values("host"))
        name = _hostname(called)
        if is_loopback(name) or name in self.hosts:
            return None
        return Refusal(
            status=http.HTTPStatus.FORBIDDEN,
            why=f"it called this server {called[:80]!r}",
            text="This server answers to localhost and the loopback addresses only: use one of "
            "them, or start it with --allow-host NAME.\n",
        )

    def _of_origin(self, values: Values) -> Refusal | None:
        origin = "".join(values("origin")).lower()
        if not origin or origin in self.origins:
            return None
        _, _, place = origin.partition("://")
        if place and place == "".join(values("host")).lower():
            return None
        return Refusal(
            status=http.HTTPStatus.FORBIDDEN,
            why=f"a page of {origin[:80]!r} sent it",
            text="Web pages may not connect to this server, unless it is started with "
            "--allow-origin PAGE.\n",
        )

    def _of_token(self, values: Values) -> Refusal | None:
        if self.token is None:
            return None
        given = "".join(values("authorization"))
        if hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return None
        return Refusal(
            status=http.HTTPStatus.UNAUTHORIZED,
            why="token missing or wrong",
            text="This server wants a token: set ROYALE_TOKEN or --token-file on the client.\n",
        )


def _hostname(called: str) -> str:
    """Return the name in a Host header, without its port; empty if it is none."""
    try:
        return urlsplit(f"//{called}").hostname or ""
    except ValueError:
        return ""
