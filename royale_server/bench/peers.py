"""Other libraries that may be measured beside Royale: where they are, and how to get them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from royale_server.bench.plan import Contender

_LOOK = "from importlib.metadata import version; print(version({!r}), end='')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One library."""

    name: str
    """The word on the command line, and its module in ``work``."""
    distribution: str
    install: str
    """What to do where it is missing."""


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            name="sb3",
            distribution="stable-baselines3",
            install="pip install 'royale-rl[bench]'",
        ),
        Peer(
            name="rllib",
            distribution="ray",
            install="pip install 'ray[rllib]' torch msgpack in an environment of its own, since it "
            "pins an older Gymnasium, and --peer-python rllib=PYTHON",
        ),
    )
}


def version(peer: Peer, python: str) -> str | None:
    """Which release of a library an interpreter has; None if it has none."""
    words = [python, "-c", _LOOK.format(peer.distribution)]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    return asked.stdout if asked.returncode == 0 else None


def split(
    contenders: Iterable[Contender], versions: Mapping[str, str | None]
) -> tuple[list[Contender], tuple[str, ...]]:
    """Leave out the peers that are not wanted or not there, and say why.

    Args:
        contenders: Of a bench.
        versions: Release of each peer that is wanted, None where it is missing.

    Returns:
        Those that take part, and a line for each of the others.
    """
    present: list[Contender] = []
    left_out: list[str] = []
    for contender in contenders:
        peer = contender.peer
        if peer is None or versions.get(peer) is not None:
            present.append(contender)
        elif peer in versions:
            left_out.append(f"{contender.name}: not installed: {PEERS[peer].install}")
        else:
            left_out.append(f"{contender.name}: only with --peers")
    return present, tuple(left_out)
