"""What makes a hello one that a server can serve: names, groups, sizes and the layout of its slots.

Whether its spaces are those of the run is asked elsewhere.
"""

from __future__ import annotations

import numpy as np

from royale_client.wire.dtypes import DTYPES
from royale_client.wire.errors import ContractError, LimitError, brief
from royale_client.wire.handshake import Hello
from royale_client.wire.limits import Limits
from royale_client.wire.space_specs import leaves, mask_size

ROLES = ("train", "eval")
"""What a client may be there for."""


def check_hello(hello: Hello, limits: Limits) -> None:
    """Refuse a hello that contradicts itself or asks for too much.

    Raises:
        ContractError: Names, role, groups, environments, seats, masks or metrics are wrong.
        LimitError: Too many slots, or requests that fit no message.
    """
    _check_names(hello, limits.max_name_length)
    _check_groups(hello, limits)
    _check_layout(hello)
    if hello.masks and mask_size(hello.action_space) is None:
        raise _wrong("masks", "true", "false, since only discrete choices have masks")
    names = [metric.name for metric in hello.episode_metrics]
    if len(set(names)) != len(names):
        raise _wrong("episode_metrics", brief(sorted(names)), "each name once")


def _check_names(hello: Hello, max_length: int) -> None:
    named: dict[str, tuple[str, ...]] = {
        "client_name": (hello.client_name,),
        "process_id": (hello.process_id,),
        "env_id": (hello.env_id,),
        "resume_token": (hello.resume_token or "",),
        "env_digest": (hello.env_digest,),
        "host": (hello.host,),
        "features": hello.features,
        "versions": (*hello.versions, *hello.versions.values()),
        "episode_metrics": tuple(part for m in hello.episode_metrics for part in m.to_data()),
    }
    for key, values in named.items():
        for value in values:
            if len(value) > max_length or not value.isprintable():
                raise _wrong(key, brief(value), f"at most {max_length} printable characters")
    for key in ("client_name", "process_id", "env_id"):
        if not getattr(hello, key):
            raise _wrong(key, "an empty text", "a name")
    if hello.role not in ROLES:
        raise _wrong("role", brief(hello.role), " or ".join(ROLES))


def _check_groups(hello: Hello, limits: Limits) -> None:
    if not 1 <= len(hello.groups) <= limits.max_groups or min(hello.groups) < 1:
        raise _wrong(
            "groups", brief(hello.groups), f"1 to {limits.max_groups} groups of 1 or more slots"
        )
    if hello.num_slots > limits.max_slots_per_session:
        raise LimitError(
            "the client has too many slots",
            where="hello.groups",
            got=f"{hello.num_slots} slots",
            expected=f"at most {limits.max_slots_per_session}",
            remedy="start several clients with fewer environments each",
        )
    row = sum(leaf.row_bytes for leaf in leaves(hello.observation_space))
    # The largest request has every row asking and every row ended.
    masks = (mask_size(hello.action_space) or 0) // 8 + 1 if hello.masks else 0
    largest = max(hello.groups) * (2 * row + masks + 16) + limits.max_header_bytes
    if largest > limits.max_message_bytes:
        raise LimitError(
            "the largest request of a group would not fit a message",
            where="hello.groups",
            got=f"{largest} bytes ({max(hello.groups)} slots of {row} bytes, twice, and header)",
            expected=f"at most {limits.max_message_bytes}",
            remedy="use fewer environments per client or two groups, or raise the server's limit",
        )


def _check_layout(hello: Hello) -> None:
    n = hello.num_slots
    environments = np.arange(n) if hello.environments is None else hello.environments
    seats = np.zeros(n, dtype=DTYPES["i8"]) if hello.seats is None else hello.seats
    for key, column in (("environments", environments), ("seats", seats)):
        if column.shape != (n,) or column.min() < 0 or column.max() >= n:
            raise _wrong(key, brief(column), f"{n} indices from 0 to {n - 1}")
    places = environments.astype(np.int64) * n + seats
    if len(np.unique(places)) != n:
        raise _wrong("seats", brief(seats), "each seat of an environment once")
    first = hello.groups[0]
    shared = np.intersect1d(environments[:first], environments[first:])
    if len(shared):
        raise _wrong(
            "environments",
            f"environment {int(shared[0])} in both groups",
            "all slots of an environment in one group",
        )


def _wrong(key: str, got: str, expected: str) -> ContractError:
    return ContractError(
        "the hello contradicts itself or the protocol",
        where=f"hello.{key}",
        got=got,
        expected=expected,
        remedy="correct what the client announces",
    )
