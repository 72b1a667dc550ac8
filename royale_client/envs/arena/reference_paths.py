"""Places and ways of the plain reference: distances, the bridges, one step."""

from __future__ import annotations

import math
from typing import TypeAlias

from royale_client.envs.arena import rules

Point: TypeAlias = tuple[int, int]
"""x and y in units, in some seat's frame."""


def across(place: Point) -> Point:
    """Return a place of one seat's frame as the other seat sees it."""
    return rules.WIDTH_UNITS - place[0], rules.HEIGHT_UNITS - place[1]


def within(one: Point, other: Point, distance: int) -> bool:
    """Say whether two places are at most so far apart."""
    return squared_distance(one, other) <= distance**2


def squared_distance(one: Point, other: Point) -> int:
    """Return the square of the distance of two places."""
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2


def next_corner(here: Point, goal: Point) -> Point:
    """Return where a walker turns on its way to a goal: over the river only by the bridges."""
    side, goal_side = bank(here[1]), bank(goal[1])
    if side == goal_side and side != "river":
        return goal
    # A walker over the river is on its bridge; one that wants to get onto the river takes the
    # bridge nearest to its goal; every other one takes the bridge nearest to itself.
    decisive = goal[0] if goal_side == "river" and side != "river" else here[0]
    middle = min(rules.BRIDGE_X, key=lambda x: (abs(x - decisive), x))
    left, right = middle - rules.BRIDGE_HALF_WIDTH, middle + rules.BRIDGE_HALF_WIDTH
    leaving = {"near": rules.RIVER_NEAR - 1, "far": rules.RIVER_FAR + 1}
    opposite = {"near": leaving["far"], "far": leaving["near"]}
    across_x = clamped(goal[0], left, right)
    if side == "river":
        if goal_side == "river" and left <= goal[0] <= right:
            return goal
        return across_x, leaving["far" if goal_side == "far" else "near"]
    if not left <= here[0] <= right:
        return clamped(here[0], left, right), leaving[side]
    return across_x, goal[1] if goal_side == "river" else opposite[side]


def bank(y: int) -> str:
    """Return on which side of the river a place is, for its owner."""
    if rules.RIVER_NEAR <= y <= rules.RIVER_FAR:
        return "river"
    return "near" if y < rules.RIVER_NEAR else "far"


def clamped(value: int, low: int, high: int) -> int:
    """Return the nearest number in [low, high]."""
    return max(low, min(value, high))


def walked(here: Point, heading: Point, speed: int) -> Point:
    """Return the place one tick further, rounded towards where the unit came from."""
    if within(here, heading, speed):
        return heading
    distance = math.isqrt(squared_distance(here, heading))
    return tuple(  # type: ignore[return-value]
        a + (abs(b - a) * speed // distance) * (1 if b > a else -1)
        for a, b in zip(here, heading, strict=True)
    )
