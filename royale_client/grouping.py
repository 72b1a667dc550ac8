"""Into how many groups a client's environments are split: as told, or as their own speed says.

Two groups hide the way to the server and the inference behind the environments, for twice the
messages: worth it where a step takes long and half the environments take clearly less. So that is
what is measured, on the environments themselves, before the client says hello. Whatever the trial
did to them is undone by the reset with which every conversation of fresh episodes begins.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from royale_client.driver import EnvDriver, Leaves, Turn
from royale_client.wire.dtypes import Array
from royale_client.wire.handshake import IntArray
from royale_client.wire.space_specs import (
    BoxSpec,
    DiscreteSpec,
    Leaf,
    MultiBinarySpec,
    MultiDiscreteSpec,
    leaves,
)
from royale_client.wire.turns import BoolArray

logger = logging.getLogger(__name__)

Groups: TypeAlias = int | Literal["auto"]
Make: TypeAlias = Callable[[int], EnvDriver]

WORTH_HIDING_S = 0.002
"""Steps shorter than this leave nothing to hide: a second message would cost as much."""
MOST_OF_WHOLE = 0.75
"""Half the environments must take at most this share of what all of them take."""
_TRIAL_S = 0.5
_TRIAL_STEPS = 20


def make_drivers(groups: Groups, num_envs: int, make: Make) -> list[EnvDriver]:
    """Make the environments of a client, one driver a group.

    Args:
        groups: 1, 2, or ``auto``: what the measured times of the environments speak for.
        num_envs: Environments of all groups; at least as many as groups.
        make: Makes a driver with so many environments.
    """
    if groups == "auto":
        return _by_trial(num_envs, make)
    return _make_all(group_sizes(groups, num_envs), make)


def group_sizes(groups: int, num_envs: int) -> tuple[int, ...]:
    """Return the environments of each of one or two groups."""
    if groups == 1:
        return (num_envs,)
    return num_envs - num_envs // 2, num_envs // 2


def _make_all(sizes: tuple[int, ...], make: Make) -> list[EnvDriver]:
    made: list[EnvDriver] = []
    try:
        made.extend(make(size) for size in sizes)  # those made before a failure stay in it
    except BaseException:
        _close(made)
        raise
    return made


def _by_trial(num_envs: int, make: Make) -> list[EnvDriver]:
    whole = _make_all((num_envs,), make)
    halves: list[EnvDriver] = []
    chosen = whole
    try:
        whole_s = _step_s(whole[0])
        text = f"a step of {num_envs} environments takes {whole_s * 1e3:.2g} ms"
        if num_envs > 1 and whole_s >= WORTH_HIDING_S:
            halves = _make_all(group_sizes(2, num_envs), make)
            half_s = _step_s(halves[0])
            text += f", of half of them {half_s * 1e3:.2g} ms"
            if half_s <= MOST_OF_WHOLE * whole_s:
                chosen = halves
    except BaseException:
        _close([*whole, *halves])
        raise
    _close(whole if chosen is halves else halves)
    logger.info("--groups auto: %s: --groups %d", text, len(chosen))
    return chosen


def _close(drivers: list[EnvDriver]) -> None:
    for driver in drivers:
        driver.close()


def _step_s(driver: EnvDriver) -> float:
    """Median seconds that the environments of a driver take for a step with random actions."""
    generator = np.random.default_rng(0)
    turn = driver.reset(np.arange(driver.num_slots, dtype=np.uint64))
    took: list[float] = []
    until = time.monotonic() + _TRIAL_S
    while not took or (len(took) < _TRIAL_STEPS and time.monotonic() < until):
        turn = driver.step(random_actions(driver, turn, generator))
        took.append(turn.env_time_s)
    return statistics.median(took)


def random_actions(driver: EnvDriver, turn: Turn, generator: np.random.Generator) -> Leaves:
    """Choose legal actions for the rows that ask.

    Args:
        driver: Says what actions are.
        turn: Its newest turn.
        generator: Decides.

    Returns:
        One array per leaf of the action space, one row per asking row.
    """
    asking = driver.num_slots if turn.asks is None else int(np.count_nonzero(turn.asks))
    return tuple(
        _random_leaf(leaf, asking, turn.masks, generator) for leaf in leaves(driver.action_space)
    )


def _random_leaf(
    leaf: Leaf, rows: int, masks: BoolArray | None, generator: np.random.Generator
) -> Array:
    shape = (rows, *leaf.shape)
    match leaf.spec:
        case DiscreteSpec(n=n, start=start):
            return start + _choices(rows, (n,), masks, generator).reshape(rows)
        case MultiDiscreteSpec(nvec=nvec):
            return _choices(rows, nvec, masks, generator)
        case MultiBinarySpec():
            return generator.integers(0, 2, shape).astype(leaf.dtype)
        case BoxSpec(low=low, high=high):
            is_bounded = np.isfinite(low) & np.isfinite(high)
            share = generator.random(shape)
            least = np.where(is_bounded, low, -1.0).astype(np.float64)
            most = np.where(is_bounded, high, 1.0).astype(np.float64)
            numbers = (1.0 - share) * least + share * most  # their difference may be infinite
            clipped: Array = np.clip(numbers, low, high).astype(leaf.dtype)
            return clipped
        case _:
            return np.zeros(shape, leaf.dtype)  # the empty text


def _choices(
    rows: int, nvec: tuple[int, ...], masks: BoolArray | None, generator: np.random.Generator
) -> IntArray:
    """Choose one legal category of each part. Shape ``(rows, len(nvec))``."""
    scores = generator.random((rows, sum(nvec)))
    if masks is not None:
        scores = np.where(masks, scores, -1.0)
    ends = np.cumsum(nvec)
    parts = [scores[:, end - size : end].argmax(1) for end, size in zip(ends, nvec, strict=True)]
    return np.stack(parts, axis=1)
