"""How a client introduces itself, put together from its drivers. Sends nothing."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

import numpy as np

from royale_client.driver import EnvDriver
from royale_client.envs.digest import client_versions
from royale_client.wire.messages import Hello


def make_hello(
    drivers: Sequence[EnvDriver],
    *,
    client_name: str,
    env_id: str,
    env_digest: str = "",
    role: str = "train",
) -> Hello:
    """Introduce a client with one group per driver, one seat per environment.

    Args:
        drivers: One per group, all of one environment.
        client_name: Name that stays the same when this client is started again.
        env_id: Name of the environment.
        env_digest: Digest of its version and settings.
        role: ``train`` or ``eval``.
    """
    first = drivers[0]
    num_slots = sum(driver.num_slots for driver in drivers)
    return Hello(
        client_name=client_name,
        process_id=secrets.token_hex(8),
        role=role,
        env_id=env_id,
        env_digest=env_digest,
        observation_space=first.observation_space,
        action_space=first.action_space,
        groups=tuple(driver.num_slots for driver in drivers),
        environments=np.arange(num_slots, dtype=np.int64),
        seats=np.zeros(num_slots, np.int64),
        masks=first.has_masks,
        episode_metrics=tuple(first.episode_metrics),
        host=socket.gethostname(),
        pid=os.getpid(),
        versions=client_versions(),
    )
