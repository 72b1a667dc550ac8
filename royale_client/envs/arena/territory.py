"""Where cards may be played: one table, which the mask shows and by which the kernels refuse.

A tile's answer depends on the card's kind and on which flank towers of the enemy have fallen. It
does not look at elixir.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import BUILDING, KIND, SPELL, TROOP
from royale_client.envs.arena.compiled import compiled
from royale_client.envs.arena.rules import HEIGHT, LEFT_FLANK, RIGHT_FLANK, WIDTH
from royale_client.envs.arena.state import Battles

LEFT_OPEN, RIGHT_OPEN = 1, 2
"""Bits of an openness: the enemy has no tower any more on my left, on my right."""


def _zone(kind: int, openness: int) -> NDArray[np.uint8]:
    """Return ``(HEIGHT, WIDTH)``: 1 where a card of a kind may be played, in the own frame."""
    if kind == SPELL:
        return np.ones((HEIGHT, WIDTH), np.uint8)
    zone = np.zeros((HEIGHT, WIDTH), np.uint8)
    zone[: rules.OWN_ROWS] = 1
    for left, bottom, right, top in rules.TOWER_BLOCKS:
        zone[bottom:top, left:right] = 0
    if kind == TROOP:
        pocket = slice(rules.POCKET_ROWS[0], rules.POCKET_ROWS[-1] + 1)
        zone[pocket, : WIDTH // 2] = bool(openness & LEFT_OPEN)
        zone[pocket, WIDTH // 2 :] = bool(openness & RIGHT_OPEN)
    return zone


ZONES: NDArray[np.uint8] = np.array(
    [
        [_zone(kind, openness).reshape(-1) for openness in range(4)]
        for kind in (TROOP, BUILDING, SPELL)
    ]
)
"""``(3 kinds, 4 opennesses, TILES)``, a tile at row * WIDTH + column; read-only."""
ZONES.flags.writeable = False


@compiled
def open_sides(left_flank_hp: int, right_flank_hp: int) -> int:
    """Return which sides are open, as bits, by the hit points of the *enemy's* flank towers.

    The enemy's right flank tower stands on my left.
    """
    return (LEFT_OPEN if right_flank_hp == 0 else 0) | (RIGHT_OPEN if left_flank_hp == 0 else 0)


@compiled
def openness(battles: Battles, i: int, seat: int) -> int:
    """Return which sides of the enemy are open to this seat's troops, as bits."""
    enemy = 1 - seat
    return open_sides(
        battles.tower_hp[i, enemy, LEFT_FLANK], battles.tower_hp[i, enemy, RIGHT_FLANK]
    )


@compiled
def in_zone(card: int, sides: int, tile: int) -> bool:
    """Say whether a card may be put on tile ``row * WIDTH + column`` with these sides open."""
    return bool(ZONES[KIND[card], sides, tile])


@compiled
def can_deploy(  # noqa: PLR0917 - compiled functions take no keyword-only arguments
    battles: Battles, i: int, seat: int, card: int, x_tile: int, y_tile: int
) -> bool:
    """Say whether a seat may put a card on a tile of its own frame, elixir left aside."""
    return in_zone(card, openness(battles, i, seat), y_tile * WIDTH + x_tile)
