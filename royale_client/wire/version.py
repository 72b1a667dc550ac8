"""The protocol version and the rule by which two peers agree on one. It never looks at packages.

A version is one integer. Each peer speaks a range; the highest version in both ranges is used.
"""

from __future__ import annotations

from royale_client.wire.errors import VersionMismatchError

SUBPROTOCOL = "royale.v1"
"""WebSocket subprotocol string; names the framing, which no protocol version changes."""

PROTOCOL_MIN = 1
"""Oldest protocol version this installation speaks."""

PROTOCOL_MAX = 1
"""Newest protocol version this installation speaks."""


def negotiate(low: int, high: int) -> int:
    """Choose the newest protocol version that a peer and this installation both speak.

    Args:
        low: Oldest version the peer speaks.
        high: Newest version the peer speaks.

    Raises:
        VersionMismatchError: The ranges do not meet; names both and the side to upgrade.
    """
    version = min(high, PROTOCOL_MAX)
    if low <= high and version >= max(low, PROTOCOL_MIN):
        return version
    if low > high:
        remedy = "send the range as [oldest, newest]"
    elif high < PROTOCOL_MIN:
        remedy = "upgrade the client, or run an older server"
    else:
        remedy = "upgrade the server, or run an older client"
    raise VersionMismatchError(
        "client and server have no protocol version in common",
        where="hello.protocol",
        got=f"client {low} to {high}",
        expected=f"some of {PROTOCOL_MIN} to {PROTOCOL_MAX}, which this server speaks",
        remedy=remedy,
    )
