"""What both seats see of N battles: planes of tiles, a vector of numbers, the legal actions.

The writers fill arrays of the caller, allocate nothing, and change no battle. They read of the
enemy only what its plays have shown: never its hand, its queue's order, its deck or its elixir.
What the numbers mean stands in `columns`. Nothing here packs bits or knows a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import cards, columns, layout, rules
from royale_client.envs.arena.cards import BUILDING, COST, FLYING, KIND, RADIUS
from royale_client.envs.arena.columns import (
    CARD_ID_FIRST,
    CARD_ID_TOWER,
    HP_PER_LEVEL,
    NUM_PLANES,
    ONE_OF,
    PLAY_AGE_TICKS,
    VECTOR_SIZE,
)
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.rules import (
    ACTIONS,
    CAP_TICKS,
    CROWNS_TO_WIN,
    DECK_SIZE,
    DOUBLE_ELIXIR_TICK,
    ELIXIR_CAP,
    HAND_SIZE,
    HEIGHT,
    QUEUE_SIZE,
    REGULATION_TICKS,
    RUNNING,
    SPELL_SLOTS,
    TILE_UNITS,
    TILES,
    TOWERS,
    UNIT_SLOTS,
    WIDTH,
)
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.territory import ZONES, open_sides

if cards.NUM_CARDS != columns.NUM_CARDS or HAND_SIZE != columns.HAND:
    raise AssertionError("the columns of the observation do not fit the card table")

Planes: TypeAlias = NDArray[np.uint8]
Vector: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.int32]
"""The rows of battles, a row, or the block of a seat in it; see `layout`."""

PLANES_SHAPE = (NUM_PLANES, HEIGHT, WIDTH)
"""Shape of the planes of one seat."""

# The kernels know planes and columns by number; these are looked up once, at import.
_PLANE = {plane.name: plane.index for plane in columns.PLANES}
GROUND, AIR, BUILDINGS, TOWER, HP = (
    _PLANE[f"own {name}"] for name in ("ground", "air", "buildings", "towers", "hp")
)
ENEMY_STEP = _PLANE["enemy ground"] - GROUND
"""From one of the five planes above to the enemy's."""
DEPLOYING, CARD_ID, SPELL, STUNNED = (
    _PLANE[f"own {name}"] for name in ("deploying", "card", "spell", "stunned")
)
"""The enemy's plane is the next one."""
FIRST = {each.name: each.first for each in columns.COLUMNS}
(
    OWN_ELIXIR,
    ENEMY_ELIXIR,
    HAND,
    HAND_COST,
    AFFORDABLE,
    NEXT_CARD,
    OWN_DECK,
    ENEMY_SEEN,
    ENEMY_HAND,
    OWN_LAST,
    ENEMY_LAST,
    OWN_TOWERS,
    ENEMY_TOWERS,
    CROWNS,
    AWAKE,
    CLOCK,
    RATE,
    OWN_AGE,
    ENEMY_AGE,
    ENEMY_KNOWN,
) = (each.first for each in columns.COLUMNS)
TOWER_BLOCKS = np.array(rules.TOWER_BLOCKS, np.int64)
TOWER_HP = np.array(rules.TOWER_HP, np.int64)
ENEMY_TOWER_ORDER = (rules.KEEP, rules.RIGHT_FLANK, rules.LEFT_FLANK)
"""The enemy's towers as this seat sees them: its right flank stands on my left."""


def _static_planes() -> Planes:
    planes = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    river = slice(rules.OWN_ROWS, HEIGHT - rules.OWN_ROWS)
    planes[0, river] = 1
    planes[0, river, list(rules.BRIDGE_COLUMNS)] = 2
    planes[1, river] = 1
    for left, bottom, right, top in rules.TOWER_BLOCKS:
        planes[1, bottom:top, left:right] = 1
    planes[1] |= planes[1, ::-1, ::-1]
    planes.flags.writeable = False
    return planes


STATIC_PLANES: Planes = _static_planes()
"""``(2, HEIGHT, WIDTH)``, read-only: terrain (0 land, 1 river, 2 bridge), and 1 where no troop or
building may ever be put down. Equal for both seats, and no part of an observation: see `columns`.
"""
ZONE_SIZES: NDArray[np.int64] = ZONES.sum(axis=2, dtype=np.int64)
"""``(3 kinds, 4 opennesses)``: tiles open to a card."""


def observe(battles: Battles, planes: Planes, vector: Vector, mask: Mask) -> None:
    """Write what both seats see, and what they may do.

    Args:
        battles: N battles; those that are over are written like the others.
        planes: ``(N, 2, 18, 20, 12)`` uint8, see `columns.PLANES`.
        vector: ``(N, 2, 195)`` float32 within [0, 1], see `columns.COLUMNS`.
        mask: ``(N, 2, 961)`` bool, see `legal`.

    Raises:
        ValueError: An array has another shape or dtype, or is not contiguous.
    """
    n = len(battles.tick)
    _check("planes", planes, (n, 2, *PLANES_SHAPE), np.uint8)
    _check("vector", vector, (n, 2, VECTOR_SIZE), np.float32)
    _check("mask", mask, (n, 2, ACTIONS), np.bool_)
    _write_planes(battles.raw, planes.reshape(n, 2, -1))
    _write_vectors(battles.raw, vector)
    _write_masks(battles.raw, mask)


def legal(battles: Battles, mask: Mask) -> None:
    """Write which actions are legal: the no-op always, and nothing else once a battle is over.

    Args:
        battles: N battles.
        mask: ``(N, 2, 961)`` bool; entry ``1 + slot * 240 + y * 12 + x`` in the seat's own frame.

    Raises:
        ValueError: The array has another shape or dtype, or is not contiguous.
    """
    _check("mask", mask, (len(battles.tick), 2, ACTIONS), np.bool_)
    _write_masks(battles.raw, mask)


def _check(name: str, array: NDArray[Any], shape: Sequence[int], dtype: type[np.generic]) -> None:
    if array.shape != tuple(shape) or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"arena tensors: {name} is {array.dtype} {array.shape}, expected contiguous "
            f"{np.dtype(dtype)} {tuple(shape)}"
        )


# ------------------------------------------------------------------------------------------ mask
@compiled
def block_of(raw: Words, i: int, seat: int) -> Words:
    """Return a seat's block of battle ``i``, without a copy."""
    start = layout.HEAD_WORDS + seat * layout.SEAT_WORDS
    return raw[i, start : start + layout.SEAT_WORDS]


@compiled
def sides_open_to(enemy: Words) -> int:
    """Return which sides are open to the troops of whose enemy this block is, as bits."""
    return open_sides(
        enemy[layout.TOWER_HP + rules.LEFT_FLANK], enemy[layout.TOWER_HP + rules.RIGHT_FLANK]
    )


@compiled
def open_tiles(own: Words, enemy: Words, slot: int) -> int:
    """Return on how many tiles a seat may play a hand slot in a running battle now.

    Args:
        own: The seat's block.
        enemy: The other seat's block.
        slot: Hand slot.

    Returns:
        A number of tiles; 0 if the card costs too much.
    """
    card = own[layout.HAND + slot]
    if COST[card] > own[layout.ELIXIR]:
        return 0
    return int(ZONE_SIZES[KIND[card], sides_open_to(enemy)])


@compiled
def _write_masks(raw: Words, mask: Mask) -> None:
    for i in range(raw.shape[0]):
        is_running = raw[i, layout.OUTCOME] == RUNNING
        for seat in range(2):
            own, enemy = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            out = mask[i, seat]
            out[0] = True
            sides = sides_open_to(enemy)
            for slot in range(HAND_SIZE):
                card = own[layout.HAND + slot]
                tiles = out[1 + slot * TILES : 1 + (slot + 1) * TILES]
                if is_running and COST[card] <= own[layout.ELIXIR]:
                    zone = ZONES[KIND[card], sides]
                    for tile in range(TILES):
                        tiles[tile] = zone[tile] != 0
                else:
                    tiles[:] = False


# ---------------------------------------------------------------------------------------- planes
@compiled
def _write_planes(raw: Words, planes: Planes) -> None:
    for i in range(raw.shape[0]):
        planes[i] = 0
        for owner in range(2):
            # What a seat owns is marked in its own view and in the enemy's, in one pass.
            own, other = planes[i, owner], planes[i, 1 - owner]
            block = block_of(raw, i, owner)
            _mark_towers(own, other, block)
            _mark_units(own, other, block)
            for p in range(SPELL_SLOTS):
                card = block[layout.SPELL_CARD + p]
                if card >= 0:
                    x, y = block[layout.SPELL_X + p], block[layout.SPELL_Y + p]
                    _mark_spell(own, other, card, x, y)


@compiled
def _mark_towers(own: Planes, other: Planes, block: Words) -> None:
    for t in range(TOWERS):
        hp = block[layout.TOWER_HP + t]
        if hp <= 0:
            continue
        level = (hp + HP_PER_LEVEL - 1) // HP_PER_LEVEL
        stunned = block[layout.TOWER_STUNNED + t] != 0 or block[layout.TOWER_STUN + t] > 0
        for y in range(TOWER_BLOCKS[t, 1], TOWER_BLOCKS[t, 3]):
            for x in range(TOWER_BLOCKS[t, 0], TOWER_BLOCKS[t, 2]):
                tile = y * WIDTH + x
                seen = TILES - 1 - tile
                own[TOWER * TILES + tile] = 1
                own[HP * TILES + tile] = level
                own[CARD_ID * TILES + tile] = CARD_ID_TOWER
                own[STUNNED * TILES + tile] = stunned
                other[(TOWER + ENEMY_STEP) * TILES + seen] = 1
                other[(HP + ENEMY_STEP) * TILES + seen] = level
                other[(CARD_ID + 1) * TILES + seen] = CARD_ID_TOWER
                other[(STUNNED + 1) * TILES + seen] = stunned


@compiled
def _mark_units(own: Planes, other: Planes, block: Words) -> None:
    for u in range(UNIT_SLOTS):
        card = block[layout.UNIT_CARD + u]
        if card < 0:
            continue
        x = min(block[layout.UNIT_X + u] // TILE_UNITS, WIDTH - 1)
        y = min(block[layout.UNIT_Y + u] // TILE_UNITS, HEIGHT - 1)
        tile = y * WIDTH + x
        _mark_unit(own, tile, 0, block, u)
        _mark_unit(other, TILES - 1 - tile, 1, block, u)


@compiled
def _mark_unit(out: Planes, tile: int, side: int, block: Words, u: int) -> None:
    """Mark a unit in one seat's view; side 0 is its owner's, 1 the enemy's."""
    card = block[layout.UNIT_CARD + u]
    step = side * ENEMY_STEP
    kind = BUILDINGS if KIND[card] == BUILDING else AIR if FLYING[card] else GROUND
    out[(kind + step) * TILES + tile] += 1
    k = (HP + step) * TILES + tile
    # Rounded up, so that whatever lives shows at least one level.
    level = (block[layout.UNIT_HP + u] + HP_PER_LEVEL - 1) // HP_PER_LEVEL
    out[k] = min(out[k] + level, 255)
    # The greatest of each, so that the order of unit slots does not show.
    _raise_to(out, (CARD_ID + side) * TILES + tile, CARD_ID_FIRST + card)
    _raise_to(out, (DEPLOYING + side) * TILES + tile, block[layout.UNIT_DEPLOY + u])
    if block[layout.UNIT_STUNNED + u] != 0 or block[layout.UNIT_STUN + u] > 0:
        out[(STUNNED + side) * TILES + tile] = 1


@compiled
def _mark_spell(own: Planes, other: Planes, card: int, at_x: int, at_y: int) -> None:
    radius = RADIUS[card]
    left, right = max(0, at_x - radius), min(WIDTH * TILE_UNITS, at_x + radius + TILE_UNITS)
    bottom, top = max(0, at_y - radius), min(HEIGHT * TILE_UNITS, at_y + radius + TILE_UNITS)
    for y in range(bottom // TILE_UNITS, top // TILE_UNITS):
        dy = y * TILE_UNITS + TILE_UNITS // 2 - at_y
        for x in range(left // TILE_UNITS, right // TILE_UNITS):
            dx = x * TILE_UNITS + TILE_UNITS // 2 - at_x
            if dx * dx + dy * dy <= radius * radius:
                tile = y * WIDTH + x
                _raise_to(own, SPELL * TILES + tile, CARD_ID_FIRST + card)
                _raise_to(other, (SPELL + 1) * TILES + TILES - 1 - tile, CARD_ID_FIRST + card)


@compiled
def _raise_to(out: Planes, k: int, value: int) -> None:
    out[k] = max(out[k], value)


# ---------------------------------------------------------------------------------------- vector
@compiled
def _write_vectors(raw: Words, vector: Vector) -> None:
    for i in range(raw.shape[0]):
        tick = raw[i, layout.TICK]
        for seat in range(2):
            own, enemy = block_of(raw, i, seat), block_of(raw, i, 1 - seat)
            out = vector[i, seat]
            out[:] = 0.0
            _write_own_cards(out, own)
            _write_enemy_cards(out, enemy)
            _write_towers(out, own, enemy)
            _write_clock(out, tick)
            out[OWN_LAST + 1 + own[layout.LAST_CARD]] = 1.0
            out[ENEMY_LAST + 1 + enemy[layout.LAST_CARD]] = 1.0
            out[OWN_AGE] = _age(tick, own[layout.LAST_PLAY_TICK])
            out[ENEMY_AGE] = _age(tick, enemy[layout.LAST_PLAY_TICK])


@compiled
def _write_own_cards(out: Vector, own: Words) -> None:
    elixir = own[layout.ELIXIR]
    out[OWN_ELIXIR] = elixir / ELIXIR_CAP
    for slot in range(HAND_SIZE):
        card = own[layout.HAND + slot]
        out[HAND + slot * ONE_OF + 1 + card] = 1.0
        out[HAND_COST + slot] = COST[card] / ELIXIR_CAP
        out[AFFORDABLE + slot] = 1.0 if COST[card] <= elixir else 0.0
    out[NEXT_CARD + 1 + own[layout.QUEUE]] = 1.0
    for k in range(DECK_SIZE):
        out[OWN_DECK + own[layout.DECK + k]] = 1.0


@compiled
def _write_enemy_cards(out: Vector, enemy: Words) -> None:
    """Write the enemy's elixir as counted, the cards it has shown, and those it may hold.

    A played card waits at the back of the queue for four more plays. So the last four plays, which
    are the last entries of the queue and were all seen, are not in the hand, and every other card
    seen is. The slots left hold unseen cards of the deck, each as likely as the next.
    """
    out[ENEMY_ELIXIR] = enemy[layout.COUNTED_ELIXIR] / ELIXIR_CAP
    seen = enemy[layout.SEEN]
    num_seen = 0
    for card in range(columns.NUM_CARDS):
        num_seen += (seen >> card) & 1
    waiting = min(enemy[layout.PLAYS], QUEUE_SIZE)
    chance = (HAND_SIZE - (num_seen - waiting)) / (columns.NUM_CARDS - num_seen)
    for card in range(columns.NUM_CARDS):
        is_seen = (seen >> card) & 1
        out[ENEMY_SEEN + card] = is_seen
        out[ENEMY_HAND + card] = 1.0 if is_seen else chance
    for k in range(QUEUE_SIZE - waiting, QUEUE_SIZE):
        out[ENEMY_HAND + enemy[layout.QUEUE + k]] = 0.0
    out[ENEMY_KNOWN] = num_seen / DECK_SIZE


@compiled
def _write_towers(out: Vector, own: Words, enemy: Words) -> None:
    for t in range(TOWERS):
        theirs = ENEMY_TOWER_ORDER[t]
        out[OWN_TOWERS + t] = own[layout.TOWER_HP + t] / TOWER_HP[t]
        out[ENEMY_TOWERS + t] = enemy[layout.TOWER_HP + theirs] / TOWER_HP[theirs]
    out[CROWNS] = own[layout.CROWNS] / CROWNS_TO_WIN
    out[CROWNS + 1] = enemy[layout.CROWNS] / CROWNS_TO_WIN
    out[AWAKE] = own[layout.KEEP_AWAKE]
    out[AWAKE + 1] = enemy[layout.KEEP_AWAKE]


@compiled
def _write_clock(out: Vector, tick: int) -> None:
    out[CLOCK] = tick / CAP_TICKS
    out[CLOCK + 1] = max(0, REGULATION_TICKS - tick) / REGULATION_TICKS
    out[CLOCK + 2] = 1.0 if tick >= REGULATION_TICKS else 0.0
    out[RATE + (1 if tick >= DOUBLE_ELIXIR_TICK else 0)] = 1.0


@compiled
def _age(tick: int, last_play_tick: int) -> float:
    if last_play_tick < 0:
        return 1.0
    return min(tick - last_play_tick, PLAY_AGE_TICKS) / PLAY_AGE_TICKS
