"""The numbers of the game, as plain integers and tuples; no state and no behaviour.

Positions are in units of a thousandth of a tile, in the owner's own frame: own towers at the
bottom, y grows towards the enemy. The other seat sees (x, y) as (WIDTH_UNITS - x,
HEIGHT_UNITS - y).
Times are in ticks of 100 ms. Elixir is in 28ths, so that every rate is a whole number.
"""

from __future__ import annotations

# ---------------------------------------------------------------------------------------- grid
WIDTH = 12
"""Columns of tiles."""
HEIGHT = 20
"""Rows of tiles: 9 own, 2 of river, 9 of the enemy."""
TILES = WIDTH * HEIGHT
TILE_UNITS = 1000
WIDTH_UNITS = WIDTH * TILE_UNITS
HEIGHT_UNITS = HEIGHT * TILE_UNITS
OWN_ROWS = 9
"""Rows 0 to 8 are the owner's."""
RIVER_NEAR = 9000
"""Lower edge of the river: ground units with a smaller y stand on the owner's bank."""
RIVER_FAR = 11000
"""Upper edge of the river: ground units with a greater y stand on the enemy's bank."""
BRIDGE_X = (3000, 9000)
"""Middle of the left and of the right bridge; each is two tiles wide."""
BRIDGE_COLUMNS = (2, 3, 8, 9)
BRIDGE_HALF_WIDTH = 600
"""How far from a bridge's middle ground units walk on it."""
MIDDLE_X = 6000
"""Units at or left of it belong to the left lane."""
POCKET_ROWS = (11, 12, 13)
"""Rows of the enemy that open to troops on the side where a flank tower has fallen."""

# ---------------------------------------------------------------------------------------- seats
SEATS = 2
DECK_SIZE = 8
HAND_SIZE = 4
QUEUE_SIZE = DECK_SIZE - HAND_SIZE
UNIT_SLOTS = 32
"""Units and buildings of one seat at one time; what finds no slot is counted as dropped."""
SPELL_SLOTS = 8
"""Spells of one seat on their way; at one play a decision no more than three ever are."""

# ---------------------------------------------------------------------------------------- actions
NO_OP = 0
ACTIONS = 1 + HAND_SIZE * TILES
"""No-op, then 1 + slot * TILES + row * WIDTH + column, in the own frame."""

# ---------------------------------------------------------------------------------------- time
TICK_MS = 100
TICKS_PER_DECISION = 5
REGULATION_TICKS = 1200
"""Whoever has more crowns now wins; otherwise the next difference in crowns does."""
CAP_TICKS = 1800
"""The side whose weakest surviving tower has more hit points wins now; equal is a draw."""
DOUBLE_ELIXIR_TICK = 600
"""From this tick on, elixir comes twice as fast."""
DEPLOY_TICKS = 10
"""From a play until its units act; they can be hurt meanwhile."""
SPAWNED_DEPLOY_TICKS = 5
"""From the moment a building lets a unit out until it acts."""
RETARGET_TICKS = 5
"""Targets are chosen anew in ticks divisible by it, and in the tick after a target is lost."""

# ---------------------------------------------------------------------------------------- elixir
ELIXIR_UNIT = 28
"""One elixir; at one 28th a tick it takes 2.8 s."""
ELIXIR_START = 5 * ELIXIR_UNIT
ELIXIR_CAP = 10 * ELIXIR_UNIT

# ---------------------------------------------------------------------------------------- towers
TOWERS = 3
KEEP, LEFT_FLANK, RIGHT_FLANK = 0, 1, 2
TOWER_NAMES = ("keep", "left flank", "right flank")
TOWER_X = (6000, 3000, 9000)
TOWER_Y = (1500, 4000, 4000)
TOWER_BODY = (1500, 1000, 1000)
"""From the middle to where an attacker reaches the wall, in units."""
TOWER_BLOCKS = ((4, 0, 8, 3), (2, 3, 4, 5), (8, 3, 10, 5))
"""Tiles nobody can be deployed on: first column, first row, and one past the last of both."""
TOWER_HP = (4000, 2500, 2500)
TOWER_DAMAGE = (100, 100, 100)
TOWER_PERIOD = (10, 8, 8)
TOWER_RANGE = (6500, 7000, 7000)
CROWNS_TO_WIN = 3
SPELL_TOWER_PERCENT = 30
"""Share of a spell's damage that towers take, rounded down."""

# ---------------------------------------------------------------------------------------- targets
UNIT_SIGHT = 5500
"""How far units notice enemies, unless their range reaches farther."""
SIGHT_MARGIN = 500
"""How far beyond its range a unit notices enemies at least."""
NO_TARGET = -1
LOST_TARGET = -2
"""The target died, or none was ever chosen: choose in the next tick."""
TOWER_TARGETS = UNIT_SLOTS
"""Targets below it are unit slots of the enemy; TOWER_TARGETS + t is the enemy's tower t."""

# ---------------------------------------------------------------------------------------- outcomes
RUNNING, SEAT_0_WON, SEAT_1_WON, DRAWN = 0, 1, 2, 3

# What became of a seat's action in this decision (`Battles.play_status`).
PLAY_NONE = 0
"""No-op, or the battle was over already."""
PLAY_DONE = 1
PLAY_NOT_AN_ACTION = 2
"""Below 0, or ACTIONS and more."""
PLAY_TOO_EXPENSIVE = 3
PLAY_OUTSIDE_TERRITORY = 4
PLAY_STATUS_NAMES = ("none", "played", "not an action", "too expensive", "outside territory")

# How the units of one play stand around the tile's middle, in units, by how many they are.
FORMATIONS: tuple[tuple[tuple[int, int], ...], ...] = (
    (),
    ((0, 0),),
    ((-300, 0), (300, 0)),
    ((0, 300), (-300, -200), (300, -200)),
    ((-300, 300), (300, 300), (-300, -300), (300, -300)),
)
SPAWN_STEP = 400
"""How far in front of its building a spawned unit stands."""
