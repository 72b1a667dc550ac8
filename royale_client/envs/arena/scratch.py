"""What one tick needs to remember while it lasts: one row of int32 a seat, never part of the state.

Both seats act on the positions of the tick's beginning, and nothing that one does reaches the other
before both have acted: it waits here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.compiled import inlined
from royale_client.envs.arena.rules import (
    HEIGHT_UNITS,
    SPELL_SLOTS,
    TOWERS,
    UNIT_SLOTS,
    WIDTH_UNITS,
)

COUNT = 0
"""How many units this seat has."""
SPELLS = 1
"""How many spells of this seat are on their way."""
IS_STALE = 2
"""1 if units came or went since the list was written."""
SLOTS = 3
"""The slots of its units, ascending."""
SEEN_X = SLOTS + UNIT_SLOTS
"""By slot: x in the *enemy's* frame, where the enemy aims."""
SEEN_Y = SEEN_X + UNIT_SLOTS
UNIT_DAMAGE = SEEN_Y + UNIT_SLOTS
"""By slot: what the enemy does to it in this tick."""
UNIT_STUN = UNIT_DAMAGE + UNIT_SLOTS
SPAWNS_NOW = UNIT_STUN + UNIT_SLOTS
"""By slot: 1 for a building that lets a unit out in this tick."""
TOWER_DAMAGE = SPAWNS_NOW + UNIT_SLOTS
TOWER_STUN = TOWER_DAMAGE + TOWERS
SCRATCH_WORDS = TOWER_STUN + TOWERS


@inlined
def begin_decision(own: NDArray[np.int32], mine: NDArray[np.int32]) -> None:
    """List the units of a seat, which from here on is done only when they change; count spells."""
    _list_units(own, mine)
    spells = 0
    for p in range(SPELL_SLOTS):
        if own[layout.SPELL_CARD + p] >= 0:
            spells += 1
    mine[SPELLS] = spells


@inlined
def begin_tick(own: NDArray[np.int32], mine: NDArray[np.int32]) -> None:
    """Write down where the units of a seat stand, and that nothing has happened to them yet."""
    if mine[IS_STALE] == 1:
        _list_units(own, mine)
    for k in range(mine[COUNT]):
        u = mine[SLOTS + k]
        mine[SEEN_X + u] = WIDTH_UNITS - own[layout.UNIT_X + u]
        mine[SEEN_Y + u] = HEIGHT_UNITS - own[layout.UNIT_Y + u]
        mine[UNIT_DAMAGE + u] = 0
        mine[UNIT_STUN + u] = 0
        mine[SPAWNS_NOW + u] = 0
    for t in range(TOWERS):
        mine[TOWER_DAMAGE + t] = 0
        mine[TOWER_STUN + t] = 0


@inlined
def _list_units(own: NDArray[np.int32], mine: NDArray[np.int32]) -> None:
    count = 0
    for u in range(UNIT_SLOTS):
        if own[layout.UNIT_CARD + u] >= 0:
            mine[SLOTS + count] = u
            count += 1
    mine[COUNT] = count
    mine[IS_STALE] = 0
