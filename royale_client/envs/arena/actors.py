"""What units and towers do in a tick: count down, choose, attack or walk. Their damage waits.

Everything reads the enemy as it stood when the tick began, and writes the own block and what is
about to happen to the enemy (``theirs``) only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules, scratch
from royale_client.envs.arena.cards import (
    BODY,
    DAMAGE,
    FLYING,
    HITS_AIR,
    PERIOD,
    REACH,
    SPAWNS,
    SPEED,
    SPLASH,
)
from royale_client.envs.arena.compiled import inlined
from royale_client.envs.arena.movement import one_step, waypoint
from royale_client.envs.arena.targets import (
    SEEN_TOWER_X,
    SEEN_TOWER_Y,
    target_of_tower,
    target_of_unit,
)


@inlined
def units_act(
    own: NDArray[np.int32],
    foe: NDArray[np.int32],
    mine: NDArray[np.int32],
    theirs: NDArray[np.int32],
    tick: int,
) -> None:
    """Let every unit of one seat act."""
    for k in range(mine[scratch.COUNT]):
        u = mine[scratch.SLOTS + k]
        if own[layout.UNIT_STUN + u] > 0:
            own[layout.UNIT_STUN + u] -= 1
            continue
        if own[layout.UNIT_DEPLOY + u] > 0:
            own[layout.UNIT_DEPLOY + u] -= 1
            continue
        if own[layout.UNIT_COOLDOWN + u] > 0:
            own[layout.UNIT_COOLDOWN + u] -= 1
        card = own[layout.UNIT_CARD + u]
        if SPAWNS[card] >= 0:
            if own[layout.UNIT_COOLDOWN + u] == 0:
                own[layout.UNIT_COOLDOWN + u] = PERIOD[card]
                mine[scratch.SPAWNS_NOW + u] = 1
            continue
        x, y = own[layout.UNIT_X + u], own[layout.UNIT_Y + u]
        target = own[layout.UNIT_TARGET + u]
        if target == rules.LOST_TARGET or tick % rules.RETARGET_TICKS == 0:
            target = target_of_unit(card, x, y, foe, theirs)
            own[layout.UNIT_TARGET + u] = target
        if target != rules.NO_TARGET:
            _attack_or_walk(own, foe, theirs, u, target)


@inlined
def _attack_or_walk(
    own: NDArray[np.int32],
    foe: NDArray[np.int32],
    theirs: NDArray[np.int32],
    u: int,
    target: int,
) -> None:
    """Strike a target in reach, or make a step towards it."""
    card = own[layout.UNIT_CARD + u]
    x, y = own[layout.UNIT_X + u], own[layout.UNIT_Y + u]
    if target >= rules.TOWER_TARGETS:
        tower = target - rules.TOWER_TARGETS
        goal_x, goal_y = SEEN_TOWER_X[tower], SEEN_TOWER_Y[tower]
        reach = REACH[card] + rules.TOWER_BODY[tower]
    else:
        goal_x, goal_y = theirs[scratch.SEEN_X + target], theirs[scratch.SEEN_Y + target]
        reach = REACH[card] + BODY[foe[layout.UNIT_CARD + target]]
    dx, dy = goal_x - x, goal_y - y
    if dx * dx + dy * dy <= reach * reach:
        if own[layout.UNIT_COOLDOWN + u] == 0:
            own[layout.UNIT_COOLDOWN + u] = PERIOD[card]
            _strike(card, goal_x, goal_y, target, foe, theirs)
    elif SPEED[card] > 0:
        if FLYING[card] == 0:
            goal_x, goal_y = waypoint(x, y, goal_x, goal_y)
        new_x, new_y = one_step(x, y, goal_x, goal_y, SPEED[card])
        own[layout.UNIT_X + u] = new_x
        own[layout.UNIT_Y + u] = new_y


@inlined
def _strike(  # noqa: PLR0917 - compiled functions take no keyword-only arguments
    card: int,
    x: int,
    y: int,
    target: int,
    foe: NDArray[np.int32],
    theirs: NDArray[np.int32],
) -> None:
    """Queue the damage of one attack on a target at (x, y), and on what stands around it."""
    if target >= rules.TOWER_TARGETS:
        theirs[scratch.TOWER_DAMAGE + target - rules.TOWER_TARGETS] += DAMAGE[card]
    else:
        theirs[scratch.UNIT_DAMAGE + target] += DAMAGE[card]
    splash = SPLASH[card]
    if splash == 0:
        return
    for k in range(theirs[scratch.COUNT]):
        u = theirs[scratch.SLOTS + k]
        if u == target or (FLYING[foe[layout.UNIT_CARD + u]] != 0 and HITS_AIR[card] == 0):
            continue
        dx, dy = theirs[scratch.SEEN_X + u] - x, theirs[scratch.SEEN_Y + u] - y
        if dx * dx + dy * dy <= splash * splash:
            theirs[scratch.UNIT_DAMAGE + u] += DAMAGE[card]


@inlined
def towers_act(
    own: NDArray[np.int32], foe: NDArray[np.int32], theirs: NDArray[np.int32], tick: int
) -> None:
    """Let every standing tower of one seat shoot; the keep only once it is awake."""
    for t in range(rules.TOWERS):
        if own[layout.TOWER_HP + t] == 0:
            continue
        if own[layout.TOWER_STUN + t] > 0:
            own[layout.TOWER_STUN + t] -= 1
            continue
        if own[layout.TOWER_COOLDOWN + t] > 0:
            own[layout.TOWER_COOLDOWN + t] -= 1
        if t == rules.KEEP and own[layout.KEEP_AWAKE] == 0:
            continue
        target = own[layout.TOWER_TARGET + t]
        if target == rules.LOST_TARGET or tick % rules.RETARGET_TICKS == 0:
            target = target_of_tower(t, foe, theirs)
            own[layout.TOWER_TARGET + t] = target
        if target == rules.NO_TARGET or own[layout.TOWER_COOLDOWN + t] > 0:
            continue
        dx = theirs[scratch.SEEN_X + target] - rules.TOWER_X[t]
        dy = theirs[scratch.SEEN_Y + target] - rules.TOWER_Y[t]
        if dx * dx + dy * dy <= rules.TOWER_RANGE[t] * rules.TOWER_RANGE[t]:
            own[layout.TOWER_COOLDOWN + t] = rules.TOWER_PERIOD[t]
            theirs[scratch.UNIT_DAMAGE + target] += rules.TOWER_DAMAGE[t]
