"""A short fingerprint of an environment, so that two clients with different ones can be told apart.

It covers the id, what the family says of itself (versions, arguments, wrappers) and both spaces.
It is a label, not a safeguard.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from royale_client.wire.spaces import SpaceSpec, to_data


def package_version(package: str) -> str | None:
    """Return the installed version of a distribution, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def client_versions() -> dict[str, str]:
    """Return the versions a server may want to see in its log."""
    known = {"royale-rl": package_version("royale-rl"), "gymnasium": package_version("gymnasium")}
    installed = {package: number for package, number in known.items() if number is not None}
    return {"python": platform.python_version(), "numpy": np.__version__, **installed}


def env_digest(
    env_id: str, facts: Mapping[str, Any], observation_space: SpaceSpec, action_space: SpaceSpec
) -> str:
    """Return 16 hexadecimal characters that change when the environment does."""
    described = {
        "id": env_id,
        "facts": facts,
        "observation": to_data(observation_space),
        "action": to_data(action_space),
    }
    text = json.dumps(described, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
