"""One battle as bytes, and back into any slot, where it goes on as it would have here.

Bytes come back from disks and networks, so `restore` believes nothing: it checks form, checksum,
ranges, and that the numbers are ones that play can reach. It never writes half a battle.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import cache

import numpy as np

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import BUILDING, CARDS, DELAY, HP, KIND, LIFETIME, SPELL
from royale_client.envs.arena.layout import (
    HEAD_FIELDS,
    ROW_WORDS,
    SEAT_FIELDS,
    SEAT_OFFSETS,
    SEAT_STARTS,
    SEAT_WORDS,
)
from royale_client.envs.arena.state import Battles, views_of

SNAPSHOT_VERSION = 1
_HEAD = struct.Struct("<4sI8sI")
"""Mark, version, digest of the rules, CRC-32 of the row."""
_MARK = b"RARN"
SNAPSHOT_BYTES = _HEAD.size + 4 * ROW_WORDS


@cache
def rules_digest() -> bytes:
    """Return 8 bytes that change with any number of the rules, any card, and the layout."""
    numbers = {name: value for name, value in vars(rules).items() if name.isupper()}
    text = repr((sorted(numbers.items()), CARDS, HEAD_FIELDS, SEAT_FIELDS))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def snapshot(battles: Battles, i: int) -> bytes:
    """Return battle ``i`` as `SNAPSHOT_BYTES` bytes."""
    row: bytes = battles.raw[i].astype("<i4").tobytes()
    return _HEAD.pack(_MARK, SNAPSHOT_VERSION, rules_digest(), zlib.crc32(row)) + row


def restore(battles: Battles, i: int, data: bytes) -> None:
    """Put a battle from `snapshot` into slot ``i``.

    Raises:
        ValueError: The bytes are no snapshot of this version and these rules, are damaged, or hold
            a battle that play cannot reach. Slot ``i`` is as it was.
    """
    if len(data) != SNAPSHOT_BYTES:
        raise ValueError(f"battle snapshot of {len(data)} bytes: expected {SNAPSHOT_BYTES}")
    mark, version, digest, checksum = _HEAD.unpack_from(data)
    if mark != _MARK or version != SNAPSHOT_VERSION:
        raise ValueError(
            f"battle snapshot {mark!r} version {version}: expected {_MARK!r} {SNAPSHOT_VERSION}"
        )
    if digest != rules_digest():
        raise ValueError("battle snapshot was taken under other rules: start the battle anew")
    row = data[_HEAD.size :]
    if zlib.crc32(row) != checksum:
        raise ValueError("battle snapshot is damaged: its checksum differs")
    one = views_of(np.frombuffer(row, "<i4").astype(np.int32).reshape(1, ROW_WORDS))
    _check_ranges(one)
    _check_cards(one)
    _check_units(one)
    _check_spells(one)
    _check_towers(one)
    battles.raw[i] = one.raw[0]


def _require(is_so: bool | np.bool_, what: str) -> None:
    if not is_so:
        raise ValueError(f"battle snapshot holds {what}")


def _check_ranges(one: Battles) -> None:
    """Refuse numbers that their fields never hold."""
    for name, field in (HEAD_FIELDS | SEAT_FIELDS).items():
        values = getattr(one, name)
        low, high = int(values.min()), int(values.max())
        _require(
            field.low <= low and high <= field.high,
            f"{name} from {low} to {high}: expected {field.low} to {field.high}",
        )
    used = max(SEAT_OFFSETS.values()) + SEAT_FIELDS["spell_delay"].words
    padding = [one.raw[0, begin + used : begin + SEAT_WORDS] for begin in SEAT_STARTS]
    _require(not np.any(padding), "numbers between its fields")
    is_whole = one.outcome[0] != rules.RUNNING or one.tick[0] % rules.TICKS_PER_DECISION == 0
    _require(is_whole, f"a running battle at tick {one.tick[0]}, within a decision")


def _check_cards(one: Battles) -> None:
    """Refuse decks with a card twice, and piles that are not the deck."""
    decks = np.sort(one.deck[0], axis=-1)
    _require((decks[:, 1:] > decks[:, :-1]).all(), "a deck with a card twice")
    piles = np.sort(np.concatenate([one.hand[0], one.queue[0]], axis=-1), axis=-1)
    _require((piles == decks).all(), "a hand and a queue that are not the deck")


def _check_units(one: Battles) -> None:
    """Refuse units that are no units, too healthy, too old, or aim at nothing."""
    card = one.unit_card[0]
    lives = card >= 0
    for name, field in SEAT_FIELDS.items():
        if name.startswith("unit_"):
            _require((getattr(one, name)[0][~lives] == field.blank).all(), f"{name} without a unit")
    _require((KIND[card[lives]] != SPELL).all(), "a unit that is a spell")
    hp, life = one.unit_hp[0][lives], one.unit_life[0][lives]
    _require(((hp >= 1) & (hp <= HP[card[lives]])).all(), "a unit with impossible hit points")
    is_building = KIND[card[lives]] == BUILDING
    is_aged = np.where(is_building, (life >= 1) & (life <= LIFETIME[card[lives]]), life == -1)
    _require(is_aged.all(), "a unit with an impossible lifetime")
    for seat in range(rules.SEATS):
        enemy = 1 - seat
        there = [*lives[enemy], *(one.tower_hp[0, enemy] > 0)]
        targets = np.concatenate([one.unit_target[0, seat], one.tower_target[0, seat]])
        _require(np.take(there, targets[targets >= 0]).all(), "a target that is not there")


def _check_spells(one: Battles) -> None:
    """Refuse spells that are no spells, or that should have landed."""
    card = one.spell_card[0]
    flies = card >= 0
    for name, field in SEAT_FIELDS.items():
        if name.startswith("spell_"):
            _require((getattr(one, name)[0][~flies] == field.blank).all(), f"{name} without one")
    delay = one.spell_delay[0][flies]
    _require((KIND[card[flies]] == SPELL).all(), "a spell that is a unit")
    _require(((delay >= 1) & (delay <= DELAY[card[flies]])).all(), "a spell with another delay")


def _check_towers(one: Battles) -> None:
    """Refuse towers too healthy, ruins that act, and crowns that nobody took."""
    hp = one.tower_hp[0]
    _require((hp <= rules.TOWER_HP).all(), "a tower with too many hit points")
    ruin = hp == 0
    is_at_rest = (one.tower_cooldown[0] | one.tower_stun[0] | one.tower_stunned[0]) == 0
    is_at_rest &= one.tower_target[0] == rules.NO_TARGET
    _require(is_at_rest[ruin].all(), "a fallen tower that acts")
    crowns = np.where(ruin[:, rules.KEEP], rules.CROWNS_TO_WIN, ruin.sum(axis=1))
    _require((one.crowns[0] == crowns[::-1]).all(), "crowns that do not match the fallen towers")
    _require((one.keep_awake[0] >= ruin.any(axis=1)).all(), "a keep asleep beside a ruin")
