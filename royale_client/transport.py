"""How bytes travel between a client and a server: addresses, the Transport protocol, a memory pair.

A transport carries whole messages in order and knows nothing of what they say. Every failure
of a connection leaves this module's classes as one of three errors, so that callers decide by
kind and never by the library underneath:

    RoyaleError
    ├── ConnectionLostError       an established connection ended
    ├── ServerUnreachableError    no address answered
    └── HandshakeRefusedError     something answered and said no
        └── TokenRefusedError     the token was missing or wrong

This module never opens a socket.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urlsplit

from royale_client.wire.errors import ConfigError, RoyaleError
from royale_client.wire.tokens import checked_token

_DEFAULT_PORTS = {"ws": 80, "wss": 443}
_UNIX = "unix"


class ConnectionLostError(RoyaleError):
    """An established connection ended before the conversation did.

    Args:
        message: One sentence: what ended, and what to do where that is known.
        code: WebSocket close code, or None when the connection simply vanished.
        reason: The text the peer gave with the code.
        retry: Whether connecting again can help.
    """

    def __init__(
        self, message: str, *, code: int | None = None, reason: str = "", retry: bool = True
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry = retry


class ServerUnreachableError(RoyaleError):
    """No address of the server accepted a connection.

    Args:
        url: The address as the user gave it.
        attempts: Each address really dialled and what happened there.
    """

    retry = True

    def __init__(self, url: str, attempts: tuple[tuple[str, str], ...]) -> None:
        tried = "; ".join(f"{address}: {reason}" for address, reason in attempts)
        super().__init__(
            f"no server at {url}: tried {tried}. Is the server running, and is this the address "
            "it printed at its start?"
        )
        self.url = url
        self.attempts = attempts


class HandshakeRefusedError(RoyaleError):
    """Something answered at the address and refused the connection.

    Args:
        message: One sentence with the remedy.
        status: HTTP status of the answer, or None when it was no HTTP at all.
        retry: Whether the refusal may pass by itself (a server that is starting or full).
    """

    def __init__(self, message: str, *, status: int | None = None, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry


class TokenRefusedError(HandshakeRefusedError):
    """The server wants a token and did not get the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where the server is and how to reach it."""

    url: str
    """``ws://host:port`` or ``wss://host:port``, where an IPv6 address stands in brackets; or
    ``unix:///path`` of a socket file on this machine."""
    token: str | None = field(default=None, repr=False)
    """Sent as a bearer token with the handshake; never logged."""
    proxy: str | None = None
    """Proxy to go through, for example ``http://proxy:3128``; None connects directly."""
    tls_ca: str | None = None
    """PEM file of the authorities that may vouch for a ``wss://`` server; None takes the
    system's."""

    def __post_init__(self) -> None:
        """Refuse an address that cannot be dialled.

        Raises:
            ConfigError: If the URL has another scheme, no host, a senseless port, or a password; if
                a proxy is to lead to a socket file; if the token cannot travel in an HTTP header;
                or if authorities are named and cannot be read, or nobody would ask them.
        """
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"server URL {self.url!r}: {error}; write ws://HOST:PORT") from error
        if parts.scheme == _UNIX:
            self._check_file()
        elif parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == 0:
            raise ConfigError(
                f"server URL {self.url!r} is not of the form ws://HOST:PORT or wss://HOST:PORT "
                "(an IPv6 address in brackets: ws://[::1]:8000), or unix:///PATH for a socket file"
            )
        elif parts.username is not None:  # not shown: it may be a secret
            raise ConfigError(
                "the server URL holds a user or a password, which logs would show; a server wants "
                "a token: ROYALE_TOKEN or --token-file"
            )
        if self.token:
            checked_token(self.token, "the server's token")
        if self.tls_ca is not None:
            self._check_authorities(parts.scheme)

    def _check_file(self) -> None:
        parts = urlsplit(self.url)
        if parts.netloc or not self.url.startswith("unix:///") or set("?#") & set(self.url):
            raise ConfigError(
                f"server URL {self.url!r} is not of the form unix:///PATH, with the whole path of "
                "the socket file after two slashes, and %23 and %3F for # and ? in it"
            )
        if self.proxy is not None:
            raise ConfigError(f"server URL {self.url!r}: no proxy leads to a socket file")

    def _check_authorities(self, scheme: str) -> None:
        if scheme != "wss":
            raise ConfigError(f"--tls-ca only counts with wss://, and the URL is {self.url}")
        import ssl  # most clients need none

        try:
            ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:  # of which the library's own errors are
            reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else str(error)
            raise ConfigError(f"--tls-ca {self.tls_ca}: {reason}") from error

    @property
    def socket_file(self) -> str | None:
        """Path of the socket file; None for a server that is reached over the network."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == _UNIX else None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host without brackets, and the port or the scheme's default one."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]


class Transport(Protocol):
    """Whole messages in order, both ways, until closed."""

    def send(self, data: bytes) -> None:
        """Hand one message over.

        Raises:
            ConnectionLostError: If the connection is gone.
        """

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message, or None when ``timeout_s`` passed without one.

        Args:
            timeout_s: Seconds to wait; 0 only looks, None waits without limit.

        Raises:
            ConnectionLostError: If the connection is gone and every message was read.
        """

    def close(self, code: int, reason: str) -> None:
        """End the connection; closing twice is harmless."""


class _Pipe:
    """One direction of an in-memory connection."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.changed = threading.Condition()
        self.ended: tuple[int, str] | None = None

    def put(self, data: bytes) -> None:
        with self.changed:
            if self.ended is not None:
                raise _lost(self.ended)
            self.messages.append(data)
            self.changed.notify_all()

    def get(self, timeout_s: float | None) -> bytes | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.changed:
            while not self.messages:
                if self.ended is not None:
                    raise _lost(self.ended)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self.changed.wait(left)
            return self.messages.popleft()

    def end(self, code: int, reason: str) -> None:
        with self.changed:
            if self.ended is None:
                self.ended = (code, reason)
            self.changed.notify_all()


def _lost(ended: tuple[int, str]) -> ConnectionLostError:
    code, reason = ended
    return ConnectionLostError(
        f"the connection was closed ({code}: {reason or 'no reason given'})",
        code=code,
        reason=reason,
    )


class MemoryTransport:
    """One end of a connection inside one process, safe to use from two threads."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @classmethod
    def pair(cls) -> tuple[MemoryTransport, MemoryTransport]:
        """Return two ends joined to each other."""
        there, back = _Pipe(), _Pipe()
        return cls(back, there), cls(there, back)

    def send(self, data: bytes) -> None:
        """Hand one message to the other end; see `Transport.send`."""
        self._outgoing.put(data)

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message of the other end; see `Transport.receive`."""
        return self._incoming.get(timeout_s)

    def close(self, code: int, reason: str) -> None:
        """End both directions; the other end still reads what was sent before."""
        self._outgoing.end(code, reason)
        self._incoming.end(code, reason)
