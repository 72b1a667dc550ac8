"""The version of this product, as installed."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "royale-rl"


def product_version() -> str:
    """Return the installed version, or ``unreleased`` when running from a source folder."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unreleased"
