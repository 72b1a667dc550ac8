"""Whom units and towers turn on, in the frame of who chooses; ties go to the lowest slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules, scratch
from royale_client.envs.arena.cards import (
    BUILDING,
    BUILDINGS_ONLY,
    FLYING,
    HITS_AIR,
    KIND,
    SIGHT,
)
from royale_client.envs.arena.compiled import compiled

SEEN_TOWER_X = tuple(rules.WIDTH_UNITS - x for x in rules.TOWER_X)
"""Towers of the enemy, in the own frame."""
SEEN_TOWER_Y = tuple(rules.HEIGHT_UNITS - y for y in rules.TOWER_Y)


@compiled
def target_of_unit(
    card: int, x: int, y: int, foe: NDArray[np.int32], theirs: NDArray[np.int32]
) -> int:
    """Return the nearest enemy in sight that the unit may attack, else its lane's tower.

    Buildings stand, so without an enemy in sight they have no target.
    """
    buildings_only = BUILDINGS_ONLY[card] != 0
    hits_air = HITS_AIR[card] != 0
    best, best_squared = rules.NO_TARGET, SIGHT[card] * SIGHT[card] + 1
    for k in range(theirs[scratch.COUNT]):
        u = theirs[scratch.SLOTS + k]
        other = foe[layout.UNIT_CARD + u]
        if buildings_only and KIND[other] != BUILDING:
            continue
        if FLYING[other] != 0 and not hits_air:
            continue
        dx, dy = theirs[scratch.SEEN_X + u] - x, theirs[scratch.SEEN_Y + u] - y
        squared = dx * dx + dy * dy
        if squared < best_squared:
            best, best_squared = u, squared
    if best == rules.NO_TARGET and KIND[card] != BUILDING:
        return rules.TOWER_TARGETS + _lane_tower(x, foe)
    return best


@compiled
def _lane_tower(x: int, foe: NDArray[np.int32]) -> int:
    """Return the enemy's flank tower on this side, or its keep once that has fallen."""
    # The enemy's right flank tower stands on my left.
    flank = rules.RIGHT_FLANK if x <= rules.MIDDLE_X else rules.LEFT_FLANK
    return flank if foe[layout.TOWER_HP + flank] > 0 else rules.KEEP


@compiled
def target_of_tower(tower: int, foe: NDArray[np.int32], theirs: NDArray[np.int32]) -> int:
    """Return the nearest enemy within a tower's range, or NO_TARGET."""
    reach = rules.TOWER_RANGE[tower]
    best, best_squared = rules.NO_TARGET, reach * reach + 1
    for k in range(theirs[scratch.COUNT]):
        u = theirs[scratch.SLOTS + k]
        dx = theirs[scratch.SEEN_X + u] - rules.TOWER_X[tower]
        dy = theirs[scratch.SEEN_Y + u] - rules.TOWER_Y[tower]
        squared = dx * dx + dy * dy
        if squared < best_squared:
            best, best_squared = u, squared
    return best
