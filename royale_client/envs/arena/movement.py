"""Where a unit's next step leads: straight, or for walkers over one of the two bridges."""

from __future__ import annotations

import math

from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.rules import (
    BRIDGE_HALF_WIDTH,
    BRIDGE_X,
    MIDDLE_X,
    RIVER_FAR,
    RIVER_NEAR,
)


@compiled
def waypoint(x: int, y: int, goal_x: int, goal_y: int) -> tuple[int, int]:
    """Return where a walker at (x, y) heads for on its way to a goal, in its owner's frame.

    It takes the bridge nearer to itself, or, if the goal floats over the river, nearer to the goal;
    in the middle, the left one.
    """
    here, there = _bank(y), _bank(goal_y)
    if here == there and here != 0:
        return goal_x, goal_y
    decisive_x = goal_x if there == 0 and here != 0 else x
    bridge_x = BRIDGE_X[0] if decisive_x <= MIDDLE_X else BRIDGE_X[1]
    left, right = bridge_x - BRIDGE_HALF_WIDTH, bridge_x + BRIDGE_HALF_WIDTH
    on_bridge_x = min(max(goal_x, left), right)
    if here == 0:
        if there == 0 and on_bridge_x == goal_x:
            return goal_x, goal_y
        # Off the bridge: to the far bank only if the goal is there.
        return on_bridge_x, RIVER_FAR + 1 if there > 0 else RIVER_NEAR - 1
    if x < left or x > right:
        return min(max(x, left), right), RIVER_NEAR - 1 if here < 0 else RIVER_FAR + 1
    if there == 0:
        return on_bridge_x, goal_y
    return on_bridge_x, RIVER_FAR + 1 if here < 0 else RIVER_NEAR - 1


@compiled
def one_step(x: int, y: int, to_x: int, to_y: int, speed: int) -> tuple[int, int]:
    """Return where a unit is after one tick towards a point; it does not walk past it."""
    dx, dy = to_x - x, to_y - y
    squared = dx * dx + dy * dy
    if squared <= speed * speed:
        return to_x, to_y
    # Exact: square roots and quotients of such small integers are rounded correctly, and no
    # quotient of them lies so near to an integer that rounding could reach it.
    distance = math.floor(math.sqrt(squared))
    return x + int(dx * speed / distance), y + int(dy * speed / distance)


@compiled
def _bank(y: int) -> int:
    """Return -1 on the owner's bank, 0 over the river, 1 on the enemy's bank."""
    if y < RIVER_NEAR:
        return -1
    return 1 if y > RIVER_FAR else 0
