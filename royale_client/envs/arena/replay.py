"""A battle from its recorded actions: written to a file, read back, played again and verified.

Two numbers a decision are all that a battle needs beside the key of its deal. What it came to is
recorded, too, so that playing it again proves that nothing has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import kernels
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.rules import ACTIONS, RUNNING, SEATS, TOWERS
from royale_client.envs.arena.snapshots import rules_digest
from royale_client.envs.arena.state import Battles, empty
from royale_client.wire.errors import RoyaleError, brief

FORMAT = "royale-arena-replay-1"
KEY_RANGES = {
    "seed": (0, 2**64 - 1),
    "battle": (-(2**63), 2**63 - 1),
    "ordinal": (-(2**63), 2**63 - 1),
}
"""What a deal follows from; see `deals.start`."""


class ReplayError(RoyaleError):
    """A file is no replay, of other rules, or does not come to what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a battle came to; what is verified."""

    outcome: int
    """0 cut off, 1 won by seat 0, 2 by seat 1, 3 drawn."""
    tick: int
    crowns: tuple[int, ...]
    """Of both seats."""
    tower_hp: tuple[tuple[int, ...], ...]
    """Of both seats' towers."""
    plays: tuple[int, ...]
    """Cards played by both seats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A battle. Its deal follows from seed, battle and ordinal."""

    rules: str
    """Digest of the rules it was played under."""
    seed: int
    battle: int
    ordinal: int
    players: tuple[str, ...]
    """Who sat in each seat."""
    actions: tuple[tuple[int, ...], ...]
    """Both seats' actions, one pair a decision."""
    result: Result

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        document = {"format": FORMAT, **asdict(self)}
        path.write_text(json.dumps(document, separators=(",", ":")) + "\n", "utf-8")


def result_of(battles: Battles, i: int) -> Result:
    """Return what battle ``i`` has come to by now."""
    return Result(
        outcome=int(battles.outcome[i]),
        tick=int(battles.tick[i]),
        crowns=tuple(battles.crowns[i].tolist()),
        tower_hp=tuple(tuple(row) for row in battles.tower_hp[i].tolist()),
        plays=tuple(battles.plays[i].tolist()),
    )


def record(
    battles: Battles, i: int, players: Sequence[str], actions: Sequence[Sequence[int]]
) -> Replay:
    """Return the replay of a battle that has just ended.

    Args:
        battles: N battles.
        i: Index of the battle.
        players: Who sat in each seat.
        actions: What both seats did, one pair a decision.
    """
    return Replay(
        rules=rules_digest().hex(),
        seed=int(battles.seed[i]),
        battle=int(battles.battle[i]),
        ordinal=int(battles.ordinal[i]),
        players=tuple(players),
        actions=tuple(tuple(int(action) for action in pair) for pair in actions),
        result=result_of(battles, i),
    )


def read(path: Path) -> Replay:
    """Read a replay.

    Raises:
        ReplayError: The file cannot be read, is none, or was recorded under other rules.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ReplayError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReplayError(f"{path} is no replay: {error!r}") from error
    try:
        document = json.loads(text)
        replay = _from_document(document)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReplayError(f"{path} is no replay: {error!r}") from error
    if replay.rules != rules_digest().hex():
        raise ReplayError(
            f"{path} was recorded under rules {replay.rules}, these are {rules_digest().hex()}: "
            "show it with the version that recorded it"
        )
    return replay


def replayed(replay: Replay) -> Iterator[Battles]:
    """Play a battle again: yields the one battle before each decision and at its end.

    The same arrays every time.

    Raises:
        ReplayError: It came to something else than recorded, or ended before.
    """
    battles = empty(1)
    start(battles, 0, seed=replay.seed, battle_ids=replay.battle, ordinals=replay.ordinal)
    yield battles
    for played, pair in enumerate(replay.actions):
        if battles.outcome[0] != RUNNING:
            raise ReplayError(
                f"the battle is over after {played} of {len(replay.actions)} decisions"
            )
        kernels.step(battles, [pair])
        yield battles
    got = result_of(battles, 0)
    if got != replay.result:
        raise ReplayError(f"the battle came to {got}, recorded was {replay.result}")


def _from_document(document: Any) -> Replay:  # noqa: ANN401 - what a file may hold
    if not isinstance(document, dict):
        raise TypeError(f"{brief(document)} is no mapping")
    if document.pop("format") != FORMAT:
        raise ValueError(f"another format than {FORMAT}")
    result = dict(document.pop("result"))
    actions = _whole_numbers(document.pop("actions")).reshape(-1, SEATS)
    towers = _whole_numbers(result.pop("tower_hp")).reshape(SEATS, TOWERS)
    if actions.size and not 0 <= actions.min() <= actions.max() < ACTIONS:
        raise ValueError(f"an action outside 0 to {ACTIONS - 1}")
    if result["outcome"] == RUNNING:
        raise ValueError("a battle that is not over")
    for name in ("crowns", "plays"):
        result[name] = tuple(result[name])
    players = document.pop("players")
    if len(players) != SEATS or not all(
        isinstance(name, str) and name.isprintable() for name in players
    ):
        raise ValueError(f"players {brief(players)}, expected {SEATS} names")
    rules = str(document.pop("rules"))
    key = {name: _in_range(document.pop(name), *KEY_RANGES[name]) for name in KEY_RANGES}
    if document:
        raise ValueError(f"unknown entries {brief(sorted(document))}")
    return Replay(
        rules=rules,
        **key,
        players=tuple(players),
        actions=tuple(tuple(pair) for pair in actions.tolist()),
        result=Result(**result, tower_hp=tuple(tuple(row) for row in towers.tolist())),
    )


def _whole_numbers(value: Any) -> NDArray[np.int64]:  # noqa: ANN401 - what a file may hold
    """Return numbers as they are; none is cut to something else."""
    numbers = np.array(value)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"{brief(value)} are not whole numbers of 64 bits")
    return numbers.astype(np.int64)


def _in_range(value: Any, low: int, high: int) -> int:  # noqa: ANN401 - what a file may hold
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{brief(value)} is no whole number from {low} to {high}")
    return value
