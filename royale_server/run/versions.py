"""Versions of the interpreter and of installed libraries. Imports none of them."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from royale_server.version import DISTRIBUTION, product_version

DECISIVE = ("torch", "numpy", "safetensors")
"""Libraries whose version may change a number or a file."""


def decisive_versions() -> dict[str, str]:
    """Versions of everything that decides what is learned, as far as installed."""
    own = {"python": platform.python_version(), DISTRIBUTION: product_version()}
    return own | installed(DECISIVE)


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
