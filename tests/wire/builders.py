"""Valid messages and spaces with small defaults, for the tests of the wire and of the sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from royale_client.wire.messages import Hello, Step, Welcome
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, SpaceSpec, leaves, mask_size

VECTOR = BoxSpec(-1.0, 1.0, (4,), "float32")


def make_hello(**changes: Any) -> Hello:
    """A client with one group of three CartPole-like slots."""
    hello = Hello(
        client_name="arm-7",
        process_id="p-1",
        env_id="CartPole-v1",
        observation_space=VECTOR,
        action_space=DiscreteSpec(2),
        groups=(3,),
    )
    return replace(hello, **changes)


def make_welcome(hello: Hello, **changes: Any) -> Welcome:
    """A welcome that fits the hello."""
    welcome = Welcome(
        protocol=1,
        session_token="s-1",
        run_id="r-1",
        run_name="first",
        policy_version=0,
        first_slot=0,
        seeds=np.arange(hello.num_slots, dtype=np.uint64),
        last_requests=(0,) * len(hello.groups),
    )
    return replace(welcome, **changes)


def rows_of(space: SpaceSpec, count: int) -> tuple[np.ndarray, ...]:
    """Rows of zeros of a space, in the exact types of its leaves."""
    return tuple(np.zeros((count, *leaf.shape), dtype=leaf.dtype) for leaf in leaves(space))


def make_step(hello: Hello, request: int = 1, group: int = 0, **changes: Any) -> Step:
    """A step in which every row asks; with rewards after the first request."""
    n = hello.groups[group]
    size = mask_size(hello.action_space) if hello.masks else None
    step = Step(
        group=group,
        request=request,
        observations=rows_of(hello.observation_space, n),
        masks=None if size is None else np.ones((n, size), dtype=bool),
    )
    if request > 1:
        step = replace(
            step,
            rewards=np.ones(n),
            terminated=np.zeros(n, dtype=bool),
            truncated=np.zeros(n, dtype=bool),
        )
    return replace(step, **changes)
