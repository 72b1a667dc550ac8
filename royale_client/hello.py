"""How a client introduces itself. Sends nothing."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from royale_client.driver import DiscountedDriver, EnvDriver, ProbedDriver, SeatedDriver
from royale_client.envs.digest import client_versions, env_digest
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.messages import Hello
from royale_client.wire.narrowing import FLOAT16, has_wider_floats
from royale_client.wire.probes import PROBE
from royale_client.wire.seating import seating_features
from royale_client.wire.spaces import SpaceSpec
from royale_client.wire.turns import DISCOUNT

logger = logging.getLogger(__name__)


def default_client_name(env_id: str) -> str:
    """Return a name that is the same after a restart on the same machine."""
    name = f"{socket.gethostname()}-{env_id}"
    return "".join(letter if letter.isprintable() else "_" for letter in name)[:100]


def make_hello(
    drivers: Sequence[EnvDriver],
    *,
    client_name: str | None = None,
    env_id: str,
    facts: Mapping[str, Any] | None = None,
    role: str = "train",
    float16_observations: bool = False,
) -> Hello:
    """Introduce a client with one group per driver.

    Args:
        drivers: One per group, all of one environment.
        client_name: Name that stays the same when this client is started again; None builds one
            from host and environment.
        env_id: Name of the environment.
        facts: What else tells two environments of that name apart; plain data. None: nothing does.
        role: ``train`` or ``eval``.
        float16_observations: Send wider floats of observations as float16.
    """
    obstacle = next(filter(None, (driver.snapshot_obstacle for driver in drivers)), None)
    if obstacle is not None:
        logger.info("if the run is resumed, new episodes begin here: %s", obstacle)
    first = drivers[0]
    spaces = first.observation_space, first.action_space
    return describe_client(
        *spaces,
        groups=tuple(driver.num_slots for driver in drivers),
        seats=first.num_seats,
        masks=first.has_masks,
        episode_metrics=first.episode_metrics,
        client_name=client_name,
        env_id=env_id,
        env_digest="" if facts is None else env_digest(env_id, facts, *spaces),
        role=role,
        features=(
            *(("snapshot", "restart") if obstacle is None else ("restart",)),
            RECONNECT,
            *((PROBE,) if isinstance(first, ProbedDriver) else ()),
            *_seating_features(drivers),
            *((DISCOUNT,) if all(isinstance(d, DiscountedDriver) for d in drivers) else ()),
        ),
        float16_observations=float16_observations,
    )


def _seating_features(drivers: Sequence[EnvDriver]) -> tuple[str, ...]:
    """What tells the server that it may assign the seats of these environments."""
    seated = [driver for driver in drivers if isinstance(driver, SeatedDriver)]
    if len(seated) < len(drivers) or seated[0].num_seats < 2:
        return ()
    return seating_features(seated[0].bots)


def describe_client(
    observation_space: SpaceSpec,
    action_space: SpaceSpec,
    *,
    groups: tuple[int, ...],
    masks: bool,
    episode_metrics: Sequence[EpisodeMetric],
    client_name: str | None,
    env_id: str,
    env_digest: str,
    role: str,
    seats: int = 1,
    features: tuple[str, ...] = (),
    float16_observations: bool = False,
) -> Hello:
    """Introduce a client by its parts; see `make_hello`.

    Args:
        observation_space: Space of one slot's observation.
        action_space: Space of one slot's action.
        groups: Number of slots of each group.
        masks: Whether every observation comes with a mask of legal actions.
        episode_metrics: What episode records carry.
        client_name: Stable name; None builds one from host and environment.
        env_id: Name of the environment.
        env_digest: Digest of its version and settings.
        role: ``train`` or ``eval``.
        seats: Slots of one environment, which follow each other.
        features: What else the client can do: ``snapshot`` and ``restore`` its environments,
            ``restart`` them on demand, follow ``assignments`` of their seats, shape rewards by the
            learner's ``discount``, ``reconnect``.
        float16_observations: Send wider floats of observations as float16, if there are any.
    """
    num_slots = sum(groups)
    if float16_observations:
        if has_wider_floats(observation_space):
            features = (*features, FLOAT16)
        else:
            logger.warning("float16 observations change nothing: none is of float32 or float64")
    return Hello(
        client_name=client_name or default_client_name(env_id),
        process_id=secrets.token_hex(8),
        role=role,
        env_id=env_id,
        env_digest=env_digest,
        observation_space=observation_space,
        action_space=action_space,
        groups=groups,
        environments=np.arange(num_slots, dtype=np.int64) // seats,
        seats=np.arange(num_slots, dtype=np.int64) % seats,
        masks=masks,
        episode_metrics=tuple(episode_metrics),
        features=features,
        host=socket.gethostname(),
        pid=os.getpid(),
        versions=client_versions(),
    )
