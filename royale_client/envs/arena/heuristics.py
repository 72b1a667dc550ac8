"""Rules of thumb for playing: answer what comes, push when elixir is plenty; kernels for one seat.

Every function reads the seat's own block and the enemy's in their frames, so exchanged seats choose
mirrored actions. Unlike a learner, it sees the whole state, but it looks only at what stands on the
field and at its own hand. No random numbers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout, rules
from royale_client.envs.arena.cards import (
    BUILDING,
    BUILDINGS_ONLY,
    COST,
    COUNT,
    DAMAGE,
    DELAY,
    FLYING,
    HITS_AIR,
    HP,
    KIND,
    PERIOD,
    RADIUS,
    REACH,
    SPEED,
    SPELL,
    SPLASH,
    TROOP,
)
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.rules import (
    ELIXIR_UNIT,
    HAND_SIZE,
    HEIGHT,
    HEIGHT_UNITS,
    NO_OP,
    SPELL_TOWER_PERCENT,
    TILE_UNITS,
    TILES,
    TOWERS,
    UNIT_SLOTS,
    WIDTH,
    WIDTH_UNITS,
)
from royale_client.envs.arena.tensors import Words, sides_open_to
from royale_client.envs.arena.territory import ZONES

_Table: TypeAlias = NDArray[np.float64]

DAMAGE_PER_S: _Table = np.where(PERIOD > 0, 10.0 * DAMAGE * COUNT / np.maximum(PERIOD, 1), 0.0)
"""Of all units of one play, by card; 0 for spells."""
TOUGHNESS: _Table = (HP.astype(np.int64) * COUNT).astype(np.float64)
"""Hit points of all units of one play, by card."""
RANGED_REACH = 3000
"""Units that reach as far stay behind others."""

ALARM_Y = 10500
"""Enemies at or below it (own frame) are answered: the own half and the bridges."""
CROWD_RADIUS = 2500
"""Enemies within it of the deepest one are one crowd with it."""
CROWD = 3
"""So many enemies call for splash damage or a spell."""
GUARD_RADIUS = 4500
"""Own units within it of the deepest enemy count as its answer."""
UNANSWERED = ELIXIR_UNIT
"""Elixir by which a crowd may outweigh its answer before another card is played."""
PUSH_ELIXIR = 8 * ELIXIR_UNIT
"""Elixir with which the heuristic attacks."""
SPARE_ELIXIR = 9 * ELIXIR_UNIT
"""Elixir with which a hand without troops plays a building or a spell, for other cards to come."""
BRIDGE_ROW = rules.OWN_ROWS - 1
SUPPORT_ROW = BRIDGE_ROW - 2


@compiled
def heuristic_action(own: Words, foe: Words) -> int:
    """Answer the deepest enemy on the own half; with nothing to answer and 8 elixir, push."""
    action = defend_action(own, foe)
    return action if action != NO_OP else push_action(own, foe, PUSH_ELIXIR)


@compiled
def defend_action(own: Words, foe: Words) -> int:
    """Return the play that answers the deepest enemy on the own half, or the no-op."""
    target = _deepest(foe)
    if target < 0:
        return NO_OP
    x = WIDTH_UNITS - foe[layout.UNIT_X + target]
    y = HEIGHT_UNITS - foe[layout.UNIT_Y + target]
    is_flying = FLYING[foe[layout.UNIT_CARD + target]] != 0
    crowd, threat = _crowd(foe, target)
    if threat - _guards(own, x, y, is_flying) < UNANSWERED:
        return NO_OP
    best_slot, best_score = -1, 0.0
    for slot in range(HAND_SIZE):
        card = own[layout.HAND + slot]
        if COST[card] > own[layout.ELIXIR]:
            continue
        if KIND[card] == SPELL:
            score = _spell_score(card, foe, target)
        else:
            score = _answer_score(card, foe[layout.UNIT_CARD + target], crowd)
        if score > best_score:
            best_slot, best_score = slot, score
    if best_slot < 0:
        return NO_OP
    card = own[layout.HAND + best_slot]
    if KIND[card] == SPELL:
        y -= _walk(foe, target, DELAY[card])
    elif REACH[card] >= RANGED_REACH:
        y -= REACH[card] - TILE_UNITS
    else:
        y -= TILE_UNITS
    return _play_near(own, foe, best_slot, x // TILE_UNITS, y // TILE_UNITS)


@compiled
def push_action(own: Words, foe: Words, elixir: int) -> int:
    """Return the play that attacks the weaker lane, or the no-op below so much elixir.

    A spell that takes a tower comes first. Then the sturdiest troop goes to the bridge, and behind
    one that is there already the troop that hurts most. With no troop in hand, elixir that would be
    lost buys another card.
    """
    action = _finish_action(own, foe)
    if action != NO_OP or own[layout.ELIXIR] < elixir:
        return action
    left = foe[layout.TOWER_HP + rules.RIGHT_FLANK]
    right = foe[layout.TOWER_HP + rules.LEFT_FLANK]
    lane = 0 if left <= right else 1
    has_front = _has_front(own, lane)
    best_slot, best_score = -1, 0.0
    for slot in range(HAND_SIZE):
        card = own[layout.HAND + slot]
        if COST[card] > own[layout.ELIXIR] or KIND[card] != TROOP:
            continue
        score = DAMAGE_PER_S[card] if has_front else TOUGHNESS[card]
        if score > best_score:
            best_slot, best_score = slot, score
    if best_slot < 0:
        return _spare_action(own, foe, lane) if own[layout.ELIXIR] >= SPARE_ELIXIR else NO_OP
    is_behind = has_front and REACH[own[layout.HAND + best_slot]] >= RANGED_REACH
    row = SUPPORT_ROW if is_behind else BRIDGE_ROW
    return _play_near(own, foe, best_slot, rules.BRIDGE_X[lane] // TILE_UNITS, row)


@compiled
def _deepest(foe: Words) -> int:
    """Return the enemy's unit that came farthest, buildings left aside, or -1."""
    deepest, deepest_y = -1, ALARM_Y + 1
    for u in range(UNIT_SLOTS):
        card = foe[layout.UNIT_CARD + u]
        y = HEIGHT_UNITS - foe[layout.UNIT_Y + u]
        if card >= 0 and KIND[card] != BUILDING and y < deepest_y:
            deepest, deepest_y = u, y
    return deepest


@compiled
def _value(block: Words, u: int) -> int:
    """Return the cost of a unit by its share of hit points, in 28ths of an elixir."""
    card = block[layout.UNIT_CARD + u]
    return int(COST[card] * block[layout.UNIT_HP + u] // (HP[card] * COUNT[card]))


@compiled
def _crowd(foe: Words, target: int) -> tuple[int, int]:
    """Return how many enemies stand around one, itself included, and what they are worth."""
    size, value = 0, 0
    for u in range(UNIT_SLOTS):
        card = foe[layout.UNIT_CARD + u]
        if card < 0 or KIND[card] == BUILDING:
            continue
        dx = foe[layout.UNIT_X + u] - foe[layout.UNIT_X + target]
        dy = foe[layout.UNIT_Y + u] - foe[layout.UNIT_Y + target]
        if dx * dx + dy * dy <= CROWD_RADIUS * CROWD_RADIUS:
            size += 1
            value += _value(foe, u)
    return size, value


@compiled
def _guards(own: Words, x: int, y: int, is_flying: bool) -> int:
    """Return what the own units around a place are worth that can hurt a troop there."""
    value = 0
    for u in range(UNIT_SLOTS):
        card = own[layout.UNIT_CARD + u]
        if card < 0 or DAMAGE[card] == 0 or BUILDINGS_ONLY[card] != 0:
            continue
        dx, dy = own[layout.UNIT_X + u] - x, own[layout.UNIT_Y + u] - y
        can_hurt = HITS_AIR[card] != 0 or not is_flying
        if can_hurt and dx * dx + dy * dy <= GUARD_RADIUS * GUARD_RADIUS:
            value += _value(own, u)
    return value


@compiled
def _answer_score(card: int, target_card: int, crowd: int) -> float:
    """Return how well a troop or building answers a crowd, per elixir; 0 if it cannot."""
    if DAMAGE[card] == 0 or BUILDINGS_ONLY[card] != 0:
        return 0.0
    if FLYING[target_card] != 0 and HITS_AIR[card] == 0:
        return 0.0
    score = DAMAGE_PER_S[card] + TOUGHNESS[card] / 8
    if crowd >= CROWD:
        if SPLASH[card] > 0:
            score *= 2.2
        elif COUNT[card] == 1:
            score *= 0.6
    if REACH[card] >= RANGED_REACH:
        score *= 1.25
    if KIND[card] == BUILDING and BUILDINGS_ONLY[target_card] != 0:
        score *= 1.6
    return float(score / (COST[card] + ELIXIR_UNIT))


@compiled
def _spell_score(card: int, foe: Words, target: int) -> float:
    """Return how well a spell on the target pays, on the scale of `_answer_score`."""
    value = 0.0
    for u in range(UNIT_SLOTS):
        other = foe[layout.UNIT_CARD + u]
        if other < 0:
            continue
        dx = foe[layout.UNIT_X + u] - foe[layout.UNIT_X + target]
        dy = foe[layout.UNIT_Y + u] - foe[layout.UNIT_Y + target]
        if dx * dx + dy * dy <= RADIUS[card] * RADIUS[card]:
            lost = min(DAMAGE[card], foe[layout.UNIT_HP + u])
            value += COST[other] * lost / (HP[other] * COUNT[other])
    return 4.0 * value / COST[card] if value >= COST[card] else 0.0


@compiled
def _walk(foe: Words, target: int, ticks: int) -> int:
    """Return how far an enemy comes down in some ticks if nothing holds it."""
    waits = min(ticks, foe[layout.UNIT_DEPLOY + target])
    return int(SPEED[foe[layout.UNIT_CARD + target]] * (ticks - waits)) // 2


@compiled
def _finish_action(own: Words, foe: Words) -> int:
    """Return the spell that takes a standing tower at once, or the no-op."""
    for slot in range(HAND_SIZE):
        card = own[layout.HAND + slot]
        if KIND[card] != SPELL or COST[card] > own[layout.ELIXIR]:
            continue
        hurt = DAMAGE[card] * SPELL_TOWER_PERCENT // 100
        for t in range(TOWERS):
            if 0 < foe[layout.TOWER_HP + t] <= hurt:
                x = (WIDTH_UNITS - rules.TOWER_X[t]) // TILE_UNITS
                y = (HEIGHT_UNITS - rules.TOWER_Y[t]) // TILE_UNITS
                return int(1 + slot * TILES + y * WIDTH + x)
    return NO_OP


@compiled
def _spare_action(own: Words, foe: Words, lane: int) -> int:
    """Return a building at the bridge, or the hardest spell on a tower of the lane."""
    best_slot, best_score = -1, -1
    for slot in range(HAND_SIZE):
        card = own[layout.HAND + slot]
        score = HP[card] + DAMAGE[card]
        if COST[card] <= own[layout.ELIXIR] and score > best_score:
            best_slot, best_score = slot, score
    if best_slot < 0:
        return NO_OP
    if KIND[own[layout.HAND + best_slot]] == BUILDING:
        return _play_near(own, foe, best_slot, rules.BRIDGE_X[lane] // TILE_UNITS, BRIDGE_ROW)
    # The enemy's right flank tower stands on my left.
    tower = rules.RIGHT_FLANK if lane == 0 else rules.LEFT_FLANK
    if foe[layout.TOWER_HP + tower] == 0:
        tower = rules.KEEP
    x = (WIDTH_UNITS - rules.TOWER_X[tower]) // TILE_UNITS
    y = (HEIGHT_UNITS - rules.TOWER_Y[tower]) // TILE_UNITS
    return _play_near(own, foe, best_slot, x, y)


@compiled
def _has_front(own: Words, lane: int) -> bool:
    """Say whether a sturdy own troop is at the river or beyond it in a lane."""
    for u in range(UNIT_SLOTS):
        card = own[layout.UNIT_CARD + u]
        if card < 0 or KIND[card] != TROOP or own[layout.UNIT_Y + u] < rules.RIVER_NEAR - 1500:
            continue
        is_right = own[layout.UNIT_X + u] > rules.MIDDLE_X
        if is_right == (lane == 1) and own[layout.UNIT_HP + u] >= 600:
            return True
    return False


@compiled
def _play_near(own: Words, foe: Words, slot: int, x: int, y: int) -> int:
    """Return the legal play of a slot on the open tile nearest to (x, y)."""
    card = own[layout.HAND + slot]
    zone = ZONES[KIND[card], sides_open_to(foe)]
    x, y = min(max(x, 0), WIDTH - 1), min(max(y, 0), HEIGHT - 1)
    best, nearest = -1, TILES * TILES
    for tile in range(TILES):
        if zone[tile] != 0:
            dx, dy = tile % WIDTH - x, tile // WIDTH - y
            if dx * dx + dy * dy < nearest:
                best, nearest = tile, dx * dx + dy * dy
    return NO_OP if best < 0 else 1 + slot * TILES + best
