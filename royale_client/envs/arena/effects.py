"""What ends a tick: spells land, damage arrives, the dead leave, buildings let units out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules, scratch
from royale_client.envs.arena.cards import DAMAGE, RADIUS, SPAWNS, STUN
from royale_client.envs.arena.compiled import inlined
from royale_client.envs.arena.plays import put_unit
from royale_client.envs.arena.targets import SEEN_TOWER_X, SEEN_TOWER_Y


@inlined
def spells_land(
    own: NDArray[np.int32],
    mine: NDArray[np.int32],
    theirs: NDArray[np.int32],
) -> None:
    """Bring the spells of one seat a tick nearer, and queue the harm of those that land."""
    if mine[scratch.SPELLS] == 0:
        return
    for p in range(rules.SPELL_SLOTS):
        if own[layout.SPELL_CARD + p] < 0:
            continue
        own[layout.SPELL_DELAY + p] -= 1
        if own[layout.SPELL_DELAY + p] == 0:
            x, y = own[layout.SPELL_X + p], own[layout.SPELL_Y + p]
            _hit_around(own[layout.SPELL_CARD + p], x, y, theirs)
            own[layout.SPELL_CARD + p] = -1
            own[layout.SPELL_X + p] = 0
            own[layout.SPELL_Y + p] = 0
            mine[scratch.SPELLS] -= 1


@inlined
def _hit_around(card: int, x: int, y: int, theirs: NDArray[np.int32]) -> None:
    """Queue what a spell does to everything of the enemy whose middle it reaches."""
    radius_squared = RADIUS[card] * RADIUS[card]
    for k in range(theirs[scratch.COUNT]):
        u = theirs[scratch.SLOTS + k]
        dx, dy = theirs[scratch.SEEN_X + u] - x, theirs[scratch.SEEN_Y + u] - y
        if dx * dx + dy * dy <= radius_squared:
            theirs[scratch.UNIT_DAMAGE + u] += DAMAGE[card]
            theirs[scratch.UNIT_STUN + u] = max(theirs[scratch.UNIT_STUN + u], STUN[card])
    for t in range(rules.TOWERS):
        dx, dy = SEEN_TOWER_X[t] - x, SEEN_TOWER_Y[t] - y
        if dx * dx + dy * dy <= radius_squared:
            theirs[scratch.TOWER_DAMAGE + t] += DAMAGE[card] * rules.SPELL_TOWER_PERCENT // 100
            theirs[scratch.TOWER_STUN + t] = max(theirs[scratch.TOWER_STUN + t], STUN[card])


@inlined
def damage_arrives(
    own: NDArray[np.int32],
    foe: NDArray[np.int32],
    mine: NDArray[np.int32],
    theirs: NDArray[np.int32],
) -> None:
    """Hurt and stun what one seat has, let its buildings age, and take away what is dead."""
    for k in range(mine[scratch.COUNT]):
        u = mine[scratch.SLOTS + k]
        own[layout.UNIT_HP + u] -= mine[scratch.UNIT_DAMAGE + u]
        if own[layout.UNIT_LIFE + u] > 0:
            own[layout.UNIT_LIFE + u] -= 1
        if own[layout.UNIT_HP + u] <= 0 or own[layout.UNIT_LIFE + u] == 0:
            _remove_unit(own, u)
            _lose_target(foe, theirs, u)
            mine[scratch.IS_STALE] = 1
        elif mine[scratch.UNIT_STUN + u] > 0:
            stun = max(own[layout.UNIT_STUN + u], mine[scratch.UNIT_STUN + u])
            own[layout.UNIT_STUN + u] = stun
            own[layout.UNIT_STUNNED + u] = 1
    for t in range(rules.TOWERS):
        if own[layout.TOWER_HP + t] > 0:
            _hurt_tower(own, foe, mine, theirs, t)


@inlined
def _remove_unit(own: NDArray[np.int32], u: int) -> None:
    """Make a slot free, with the values that free slots have."""
    own[layout.UNIT_CARD + u] = -1
    own[layout.UNIT_HP + u] = 0
    own[layout.UNIT_X + u] = 0
    own[layout.UNIT_Y + u] = 0
    own[layout.UNIT_COOLDOWN + u] = 0
    own[layout.UNIT_DEPLOY + u] = 0
    own[layout.UNIT_STUN + u] = 0
    own[layout.UNIT_STUNNED + u] = 0
    own[layout.UNIT_TARGET + u] = rules.NO_TARGET
    own[layout.UNIT_LIFE + u] = -1


@inlined
def _hurt_tower(
    own: NDArray[np.int32],
    foe: NDArray[np.int32],
    mine: NDArray[np.int32],
    theirs: NDArray[np.int32],
    t: int,
) -> None:
    """Let damage and stun arrive at a standing tower; whatever wakes the keep wakes it here."""
    damage = mine[scratch.TOWER_DAMAGE + t]
    own[layout.TOWER_HP + t] = max(own[layout.TOWER_HP + t] - damage, 0)
    if own[layout.TOWER_HP + t] == 0:
        own[layout.TOWER_COOLDOWN + t] = 0
        own[layout.TOWER_TARGET + t] = rules.NO_TARGET
        own[layout.TOWER_STUN + t] = 0
        own[layout.TOWER_STUNNED + t] = 0
        _lose_target(foe, theirs, rules.TOWER_TARGETS + t)
        gained = rules.CROWNS_TO_WIN if t == rules.KEEP else 1
        foe[layout.CROWNS] = min(foe[layout.CROWNS] + gained, rules.CROWNS_TO_WIN)
    elif mine[scratch.TOWER_STUN + t] > 0:
        stun = max(own[layout.TOWER_STUN + t], mine[scratch.TOWER_STUN + t])
        own[layout.TOWER_STUN + t] = stun
        own[layout.TOWER_STUNNED + t] = 1
    if own[layout.TOWER_HP + t] == 0 or (t == rules.KEEP and damage > 0):
        own[layout.KEEP_AWAKE] = 1


@inlined
def _lose_target(foe: NDArray[np.int32], theirs: NDArray[np.int32], target: int) -> None:
    """Let everybody of the enemy who had this target choose anew."""
    for k in range(theirs[scratch.COUNT]):
        u = theirs[scratch.SLOTS + k]
        if foe[layout.UNIT_TARGET + u] == target:
            foe[layout.UNIT_TARGET + u] = rules.LOST_TARGET
    for t in range(rules.TOWERS):
        if foe[layout.TOWER_TARGET + t] == target:
            foe[layout.TOWER_TARGET + t] = rules.LOST_TARGET


@inlined
def spawns_leave(own: NDArray[np.int32], mine: NDArray[np.int32]) -> None:
    """Let a unit out of every building whose time has come and which still stands."""
    for k in range(mine[scratch.COUNT]):
        u = mine[scratch.SLOTS + k]
        card = own[layout.UNIT_CARD + u]
        if mine[scratch.SPAWNS_NOW + u] == 1 and card >= 0:
            x, y = own[layout.UNIT_X + u], own[layout.UNIT_Y + u] + rules.SPAWN_STEP
            put_unit(own, SPAWNS[card], x, y, rules.SPAWNED_DEPLOY_TICKS)
            mine[scratch.IS_STALE] = 1
