"""What a seat does as a decision begins: play a card, or be told why not. Putting units down."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules
from royale_client.envs.arena.cards import COST, COUNT, DELAY, HP, KIND, LIFETIME, SPELL
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.territory import in_zone, open_sides

_FORMATIONS = np.array(
    [[*places, *[(0, 0)] * (4 - len(places))] for places in rules.FORMATIONS], np.int32
)
"""``(5, 4, 2)``; padded with zeros."""
_HALF_TILE = rules.TILE_UNITS // 2


@compiled
def play(own: NDArray[np.int32], foe: NDArray[np.int32], tick: int, action: int) -> int:
    """Carry out the action of one seat, if it is legal, and return what became of it.

    Args:
        own: The seat's block.
        foe: The other seat's block; its towers are read.
        tick: Now.
        action: 0 or 1 + slot * TILES + row * WIDTH + column.
    """
    if action == rules.NO_OP:
        return rules.PLAY_NONE
    if action < 0 or action >= rules.ACTIONS:
        return rules.PLAY_NOT_AN_ACTION
    slot = (action - 1) // rules.TILES
    tile = (action - 1) % rules.TILES
    card = own[layout.HAND + slot]
    if own[layout.ELIXIR] < COST[card]:
        return rules.PLAY_TOO_EXPENSIVE
    sides = open_sides(
        foe[layout.TOWER_HP + rules.LEFT_FLANK], foe[layout.TOWER_HP + rules.RIGHT_FLANK]
    )
    if not in_zone(card, sides, tile):
        return rules.PLAY_OUTSIDE_TERRITORY
    _pay_and_draw(own, tick, slot)
    x = tile % rules.WIDTH * rules.TILE_UNITS + _HALF_TILE
    y = tile // rules.WIDTH * rules.TILE_UNITS + _HALF_TILE
    if KIND[card] == SPELL:
        _put_spell(own, card, x, y)
    else:
        for k in range(COUNT[card]):
            right, up = _FORMATIONS[COUNT[card], k, 0], _FORMATIONS[COUNT[card], k, 1]
            put_unit(own, card, x + right, y + up, rules.DEPLOY_TICKS)
    return rules.PLAY_DONE


@compiled
def put_unit(own: NDArray[np.int32], card: int, x: int, y: int, deploy: int) -> None:
    """Put one unit of a card into the lowest free slot, or count it as dropped."""
    for u in range(rules.UNIT_SLOTS):
        if own[layout.UNIT_CARD + u] < 0:
            own[layout.UNIT_CARD + u] = card
            own[layout.UNIT_HP + u] = HP[card]
            own[layout.UNIT_X + u] = x
            own[layout.UNIT_Y + u] = y
            own[layout.UNIT_DEPLOY + u] = deploy
            own[layout.UNIT_TARGET + u] = rules.LOST_TARGET
            own[layout.UNIT_LIFE + u] = LIFETIME[card]
            return
    own[layout.DROPPED] += 1


@compiled
def _put_spell(own: NDArray[np.int32], card: int, x: int, y: int) -> None:
    for p in range(rules.SPELL_SLOTS):
        if own[layout.SPELL_CARD + p] < 0:
            own[layout.SPELL_CARD + p] = card
            own[layout.SPELL_X + p] = x
            own[layout.SPELL_Y + p] = y
            own[layout.SPELL_DELAY + p] = DELAY[card]
            return
    own[layout.DROPPED] += 1


@compiled
def _pay_and_draw(own: NDArray[np.int32], tick: int, slot: int) -> None:
    """Take the card's cost, put it at the back of the queue, and the next card into the hand."""
    card = own[layout.HAND + slot]
    own[layout.HAND + slot] = own[layout.QUEUE]
    for place in range(rules.QUEUE_SIZE - 1):
        own[layout.QUEUE + place] = own[layout.QUEUE + place + 1]
    own[layout.QUEUE + rules.QUEUE_SIZE - 1] = card
    own[layout.ELIXIR] -= COST[card]
    # The other seat sees the play, and knows its price.
    own[layout.COUNTED_ELIXIR] -= COST[card]
    own[layout.SEEN] |= 1 << card
    own[layout.PLAYS] += 1
    own[layout.LAST_CARD] = card
    own[layout.LAST_PLAY_TICK] = tick
