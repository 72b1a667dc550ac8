"""The game once more, in plain Python, one battle at a time, slow and meant to be read.

It knows the rules, the cards and the random numbers, and nothing of the kernels, whose twin it is:
tests play both and compare every number after every decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import BUILDING, CARD_IDS, CARDS, SPELL, TROOP, Card
from royale_client.envs.arena.randomness import (
    PURPOSE_DECK,
    PURPOSE_ORDER,
    plain_random_below,
    plain_random_key,
)
from royale_client.envs.arena.reference_paths import (
    Point,
    across,
    next_corner,
    squared_distance,
    walked,
    within,
)
from royale_client.envs.arena.reference_seats import (
    SEAT_NAMES,
    Seat,
    Spell,
    Tower,
    Unit,
    seat_fields,
    seat_from,
)


@dataclass(slots=True)
class Harm:
    """What waits to happen to one seat at the end of a tick."""

    units: dict[int, int] = field(default_factory=dict)
    """Damage by slot."""
    towers: dict[int, int] = field(default_factory=dict)
    unit_stuns: dict[int, int] = field(default_factory=dict)
    """Ticks by slot."""
    tower_stuns: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class View:
    """The enemy as a tick found it, in the frame of the seat that looks."""

    seat: Seat
    units: list[tuple[int, Card, Point]]
    """Slot, card and place."""
    harm: Harm

    def place_of(self, target: int) -> Point:
        """Return where a unit or a tower of the enemy stands."""
        if target >= rules.TOWER_TARGETS:
            return across(self.seat.towers[target - rules.TOWER_TARGETS].at)
        return next(place for slot, _, place in self.units if slot == target)

    def body_of(self, target: int) -> int:
        """Return how far its wall is from its middle."""
        if target >= rules.TOWER_TARGETS:
            return rules.TOWER_BODY[target - rules.TOWER_TARGETS]
        return next(card.body for slot, card, _ in self.units if slot == target)


class ReferenceBattle:
    """One battle that is played by the book."""

    def __init__(self, seats: Sequence[Seat], tick: int = 0, outcome: int = rules.RUNNING) -> None:
        self.seats = list(seats)
        self.tick = tick
        self.outcome = outcome

    @classmethod
    def deal(
        cls,
        seed: int,
        battle: int,
        ordinal: int,
        decks: Sequence[Sequence[int]] | None = None,
        *,
        swapped: bool = False,
    ) -> ReferenceBattle:
        """Start a battle with the decks that its key draws, or with given ones."""
        seats = []
        for seat in range(rules.SEATS):
            if decks is None:
                deck = draw_deck(plain_random_key(seed, battle, ordinal, PURPOSE_DECK[seat]))
            else:
                deck = list(decks[seat])
            order = shuffled(deck, plain_random_key(seed, battle, ordinal, PURPOSE_ORDER[seat]))
            hand, queue = order[: rules.HAND_SIZE], order[rules.HAND_SIZE :]
            seats.append(Seat(deck, hand, queue))
        return cls(seats[::-1] if swapped else seats)

    # -------------------------------------------------------------------------------- decisions

    def step(self, actions: Sequence[int]) -> None:
        """Play one decision; ``actions`` are both seats', in their own frames."""
        for seat in self.seats:
            seat.play_status = rules.PLAY_NONE
        if self.outcome != rules.RUNNING:
            return
        open_tiles = [self.open_pocket(1 - s) for s in range(rules.SEATS)]
        for s, seat in enumerate(self.seats):
            for _, unit in seat.standing():
                unit.stunned = 0
            for tower in seat.towers:
                tower.stunned = 0
            seat.leak_decisions += seat.elixir == rules.ELIXIR_CAP
            seat.play_status = self.play(seat, actions[s], open_tiles[s])
            seat.refused += seat.play_status not in {rules.PLAY_NONE, rules.PLAY_DONE}
        for _ in range(rules.TICKS_PER_DECISION):
            if self.outcome == rules.RUNNING:
                self.play_tick()

    def open_pocket(self, enemy: int) -> set[Point]:
        """Return the enemy's tiles that are open to troops, as (column, row) of the attacker."""
        left_flank, right_flank = self.seats[enemy].towers[1:]
        half = rules.WIDTH // 2
        columns: list[int] = []
        if right_flank.hp == 0:
            columns += range(half)
        if left_flank.hp == 0:
            columns += range(half, rules.WIDTH)
        return {(column, row) for column in columns for row in rules.POCKET_ROWS}

    def play(self, seat: Seat, action: int, pocket: set[Point]) -> int:
        """Play a card for one seat, or say why that is not possible."""
        if action == rules.NO_OP:
            return rules.PLAY_NONE
        if not 0 < action < rules.ACTIONS:
            return rules.PLAY_NOT_AN_ACTION
        slot, tile = divmod(action - 1, rules.TILES)
        row, column = divmod(tile, rules.WIDTH)
        card_id = seat.hand[slot]
        card = CARDS[card_id]
        price = card.cost * rules.ELIXIR_UNIT
        if price > seat.elixir:
            return rules.PLAY_TOO_EXPENSIVE
        if not may_stand(card, column, row, pocket):
            return rules.PLAY_OUTSIDE_TERRITORY
        seat.elixir -= price
        seat.counted_elixir -= price
        seat.hand[slot] = seat.queue.pop(0)
        seat.queue.append(card_id)
        seat.seen.add(card_id)
        seat.plays += 1
        seat.last_card, seat.last_play_tick = card_id, self.tick
        x = column * rules.TILE_UNITS + rules.TILE_UNITS // 2
        y = row * rules.TILE_UNITS + rules.TILE_UNITS // 2
        if card.kind == SPELL:
            seat.add(seat.spells, Spell(card_id, x, y, card.delay))
        for right, up in rules.FORMATIONS[card.count]:
            seat.add_unit(card_id, x + right, y + up, rules.DEPLOY_TICKS)
        return rules.PLAY_DONE

    # -------------------------------------------------------------------------------- one tick

    def play_tick(self) -> None:
        """Play one tick, in the order that the rules give."""
        for seat in self.seats:
            gain = 2 if self.tick >= rules.DOUBLE_ELIXIR_TICK else 1
            seat.elixir = min(rules.ELIXIR_CAP, seat.elixir + gain)
            seat.counted_elixir = min(rules.ELIXIR_CAP, seat.counted_elixir + gain)
        views = [self.view_of(1 - s) for s in range(rules.SEATS)]
        births = [self.units_act(seat, view) for seat, view in zip(self.seats, views, strict=True)]
        for seat, view in zip(self.seats, views, strict=True):
            self.towers_act(seat, view)
            spells_land(seat, view)
        harms = [views[1 - s].harm for s in range(rules.SEATS)]
        for s, seat in enumerate(self.seats):
            suffer(seat, self.seats[1 - s], harms[s])
        for seat, mothers in zip(self.seats, births, strict=True):
            for slot, mother in mothers:
                if seat.units[slot] is mother:
                    child = CARD_IDS[mother.card.spawns]
                    y = mother.y + rules.SPAWN_STEP
                    seat.add_unit(child, mother.x, y, rules.SPAWNED_DEPLOY_TICKS)
        self.tick += 1
        self.outcome = self.verdict()

    def view_of(self, s: int) -> View:
        """Return seat ``s`` as its enemy sees it now."""
        seat = self.seats[s]
        units = [(slot, unit.card, across((unit.x, unit.y))) for slot, unit in seat.standing()]
        return View(seat, units, Harm())

    def units_act(self, seat: Seat, enemy: View) -> list[tuple[int, Unit]]:
        """Let the units of a seat act; return the buildings that let somebody out."""
        mothers = []
        for slot, unit in seat.standing():
            if unit.stun:
                unit.stun -= 1
            elif unit.deploy:
                unit.deploy -= 1
            else:
                unit.cooldown = max(0, unit.cooldown - 1)
                if not unit.card.spawns:
                    self.fight(unit, enemy)
                elif unit.cooldown == 0:
                    unit.cooldown = unit.card.period
                    mothers.append((slot, unit))
        return mothers

    def chooses_now(self, target: int) -> bool:
        """Say whether whoever has this target chooses in this tick."""
        return target == rules.LOST_TARGET or self.tick % rules.RETARGET_TICKS == 0

    def fight(self, unit: Unit, enemy: View) -> None:
        """Let a unit choose whom to attack, and strike or walk."""
        card, here = unit.card, (unit.x, unit.y)
        if self.chooses_now(unit.target):
            unit.target = choice_of(card, here, enemy)
        if unit.target == rules.NO_TARGET:
            return
        there = enemy.place_of(unit.target)
        if within(here, there, card.reach + enemy.body_of(unit.target)):
            if unit.cooldown == 0:
                unit.cooldown = card.period
                strike(card, there, unit.target, enemy)
        elif card.speed:
            heading = there if card.flying else next_corner(here, there)
            unit.x, unit.y = walked(here, heading, card.speed)

    def towers_act(self, seat: Seat, enemy: View) -> None:
        """Let the towers of a seat shoot."""
        for t, tower in enumerate(seat.towers):
            if tower.hp == 0:
                continue
            if tower.stun:
                tower.stun -= 1
                continue
            tower.cooldown = max(0, tower.cooldown - 1)
            if t == rules.KEEP and not seat.keep_awake:
                continue
            if self.chooses_now(tower.target):
                tower.target = nearest(tower.at, rules.TOWER_RANGE[t], enemy.units)
            if tower.target == rules.NO_TARGET or tower.cooldown:
                continue
            if within(tower.at, enemy.place_of(tower.target), rules.TOWER_RANGE[t]):
                tower.cooldown = rules.TOWER_PERIOD[t]
                increase(enemy.harm.units, tower.target, rules.TOWER_DAMAGE[t])

    def verdict(self) -> int:
        """Return how the battle stands after a tick."""
        one, two = self.seats
        keeps_fell = [seat.towers[rules.KEEP].hp == 0 for seat in self.seats]
        if any(keeps_fell):
            return compared(one.crowns, two.crowns)
        if self.tick >= rules.REGULATION_TICKS and one.crowns != two.crowns:
            return compared(one.crowns, two.crowns)
        if self.tick >= rules.CAP_TICKS:
            weakest = [min(t.hp for t in seat.towers if t.hp) for seat in self.seats]
            return compared(*weakest)
        return rules.RUNNING

    # ------------------------------------------------------------------------- as plain numbers

    def fields(self) -> dict[str, Any]:
        """Return every number by the name of its field, seats first, free slots filled."""
        fields: dict[str, Any] = {"tick": self.tick, "outcome": self.outcome}
        per_seat = [seat_fields(seat) for seat in self.seats]
        for name in per_seat[0]:
            fields[name] = [numbers[name] for numbers in per_seat]
        return fields

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> ReferenceBattle:
        """Return the battle that `fields` describes."""
        seats = [
            seat_from({name: fields[name][s] for name in SEAT_NAMES}) for s in range(rules.SEATS)
        ]
        return cls(seats, fields["tick"], fields["outcome"])


def draw_deck(key: int) -> list[int]:
    """Return eight of the sixteen cards, ascending: each is taken if enough are still wanted."""
    deck: list[int] = []
    for card_id in range(len(CARDS)):
        left, wanted = len(CARDS) - card_id, rules.DECK_SIZE - len(deck)
        if plain_random_below(key, card_id, left) < wanted:
            deck.append(card_id)
    return deck


def shuffled(deck: Iterable[int], key: int) -> list[int]:
    """Return a deck in the order of a key: each place takes one of those not yet placed."""
    order = list(deck)
    for place in range(len(order) - 1):
        other = place + plain_random_below(key, place, len(order) - place)
        order[place], order[other] = order[other], order[place]
    return order


def may_stand(card: Card, column: int, row: int, pocket: set[Point]) -> bool:
    """Say whether a card may be put on a tile of its owner's frame."""
    if card.kind == SPELL:
        return True
    if card.kind == TROOP and (column, row) in pocket:
        return True
    on_tower = any(
        left <= column < right and bottom <= row < top
        for left, bottom, right, top in rules.TOWER_BLOCKS
    )
    return row < rules.OWN_ROWS and not on_tower


def choice_of(card: Card, here: Point, enemy: View) -> int:
    """Return whom a unit turns on: the nearest it may attack in sight, else its lane's tower."""
    possible = [
        (slot, other, place)
        for slot, other, place in enemy.units
        if (other.kind == BUILDING or not card.buildings_only)
        and (card.hits_air or not other.flying)
    ]
    target = nearest(here, card.sight, possible)
    if target != rules.NO_TARGET or card.kind == BUILDING:
        return target
    # Left of me stands the enemy's right flank tower.
    flank = rules.RIGHT_FLANK if here[0] <= rules.MIDDLE_X else rules.LEFT_FLANK
    has_fallen = enemy.seat.towers[flank].hp == 0
    return rules.TOWER_TARGETS + (rules.KEEP if has_fallen else flank)


def nearest(here: Point, sight: int, units: Iterable[tuple[int, Card, Point]]) -> int:
    """Return the slot of the nearest unit in sight, of equals the lowest, or NO_TARGET."""
    in_sight = [
        (squared_distance(here, place), slot)
        for slot, _, place in units
        if within(here, place, sight)
    ]
    return min(in_sight)[1] if in_sight else rules.NO_TARGET


def strike(card: Card, there: Point, target: int, enemy: View) -> None:
    """Hurt the target, and everybody around it whom a splash reaches."""
    if target >= rules.TOWER_TARGETS:
        increase(enemy.harm.towers, target - rules.TOWER_TARGETS, card.damage)
    else:
        increase(enemy.harm.units, target, card.damage)
    if card.splash:
        for slot, other, place in enemy.units:
            is_reached = within(there, place, card.splash) and (card.hits_air or not other.flying)
            if slot != target and is_reached:
                increase(enemy.harm.units, slot, card.damage)


def spells_land(seat: Seat, enemy: View) -> None:
    """Bring the spells of a seat a tick nearer, and hurt whom those that land reach."""
    for slot, spell in enumerate(seat.spells):
        if spell is None:
            continue
        spell.delay -= 1
        if spell.delay == 0:
            seat.spells[slot] = None
            explode(CARDS[spell.card_id], (spell.x, spell.y), enemy)


def explode(card: Card, centre: Point, enemy: View) -> None:
    """Hurt and stun everything of the enemy whose middle a spell reaches."""
    harm = enemy.harm
    for slot, _, place in enemy.units:
        if within(centre, place, card.radius):
            increase(harm.units, slot, card.damage)
            harm.unit_stuns[slot] = max(harm.unit_stuns.get(slot, 0), card.stun)
    for t, tower in enumerate(enemy.seat.towers):
        if within(centre, across(tower.at), card.radius):
            increase(harm.towers, t, card.damage * rules.SPELL_TOWER_PERCENT // 100)
            harm.tower_stuns[t] = max(harm.tower_stuns.get(t, 0), card.stun)


def increase(amounts: dict[int, int], key: int, amount: int) -> None:
    """Add to one of several amounts."""
    amounts[key] = amounts.get(key, 0) + amount


def suffer(seat: Seat, enemy: Seat, harm: Harm) -> None:
    """Let what waited happen to a seat: damage, age, death, stun."""
    for slot, unit in seat.standing():
        unit.hp -= harm.units.get(slot, 0)
        unit.life = unit.life - 1 if unit.life > 0 else unit.life
        if unit.hp <= 0 or unit.life == 0:
            seat.units[slot] = None
            forget(enemy, slot)
        elif harm.unit_stuns.get(slot, 0):
            unit.stun = max(unit.stun, harm.unit_stuns[slot])
            unit.stunned = 1
    for t, tower in enumerate(seat.towers):
        if tower.hp == 0:
            continue
        damage = harm.towers.get(t, 0)
        tower.hp = max(0, tower.hp - damage)
        if tower.hp == 0:
            seat.towers[t] = Tower(t, 0, target=rules.NO_TARGET)
            forget(enemy, rules.TOWER_TARGETS + t)
            crowns = enemy.crowns + (rules.CROWNS_TO_WIN if t == rules.KEEP else 1)
            enemy.crowns = min(crowns, rules.CROWNS_TO_WIN)
            seat.keep_awake = 1
        elif harm.tower_stuns.get(t, 0):
            tower.stun = max(tower.stun, harm.tower_stuns[t])
            tower.stunned = 1
        if t == rules.KEEP and damage:
            seat.keep_awake = 1


def forget(enemy: Seat, target: int) -> None:
    """Let everybody who had a target that is gone choose anew."""
    for _, unit in enemy.standing():
        if unit.target == target:
            unit.target = rules.LOST_TARGET
    for tower in enemy.towers:
        if tower.target == target:
            tower.target = rules.LOST_TARGET


def compared(one: int, two: int) -> int:
    """Return who wins with the greater number."""
    if one == two:
        return rules.DRAWN
    return rules.SEAT_0_WON if one > two else rules.SEAT_1_WON
