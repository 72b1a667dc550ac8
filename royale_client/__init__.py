"""The environment side of Royale: runs environments for a royale server, without torch.

Three doors: the command `royale-env-client`, `serve_env` for a Gymnasium environment, and
`PolicyClient` for a program that owns its loop. Names are imported when they are first used, so
that importing this package, or `royale_client.wire` alone, stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from royale_client.driver import EnvContractError, EnvDriver, SnapshotError, Turn
    from royale_client.envs.provider import EnvProvider
    from royale_client.loop import Ending, Outcome, ServerFaultError
    from royale_client.policy_client import PolicyClient
    from royale_client.policy_link import ServerStoppedError
    from royale_client.reconnect import Patience
    from royale_client.serve import serve_env
    from royale_client.transport import (
        ConnectionLostError,
        HandshakeRefusedError,
        ServerUnreachableError,
        TokenRefusedError,
    )
    from royale_client.wire.episodes import EpisodeMetric
    from royale_client.wire.errors import ConfigError, ProtocolError, RoyaleError

_HOMES = {
    "ConfigError": "royale_client.wire.errors",
    "ConnectionLostError": "royale_client.transport",
    "Ending": "royale_client.loop",
    "EnvContractError": "royale_client.driver",
    "EnvDriver": "royale_client.driver",
    "EnvProvider": "royale_client.envs.provider",
    "EpisodeMetric": "royale_client.wire.episodes",
    "HandshakeRefusedError": "royale_client.transport",
    "Outcome": "royale_client.loop",
    "Patience": "royale_client.reconnect",
    "PolicyClient": "royale_client.policy_client",
    "ProtocolError": "royale_client.wire.errors",
    "RoyaleError": "royale_client.wire.errors",
    "ServerFaultError": "royale_client.loop",
    "ServerStoppedError": "royale_client.policy_link",
    "ServerUnreachableError": "royale_client.transport",
    "TokenRefusedError": "royale_client.transport",
    "SnapshotError": "royale_client.driver",
    "Turn": "royale_client.driver",
    "serve_env": "royale_client.serve",
}

__all__ = [
    "ConfigError",
    "ConnectionLostError",
    "Ending",
    "EnvContractError",
    "EnvDriver",
    "EnvProvider",
    "EpisodeMetric",
    "HandshakeRefusedError",
    "Outcome",
    "Patience",
    "PolicyClient",
    "ProtocolError",
    "RoyaleError",
    "ServerFaultError",
    "ServerStoppedError",
    "ServerUnreachableError",
    "SnapshotError",
    "TokenRefusedError",
    "Turn",
    "serve_env",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
