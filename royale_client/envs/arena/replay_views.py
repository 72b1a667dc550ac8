"""A battle for people: lines of text, and a page with a canvas that plays it.

Of a recorded battle, which `replay` plays again and verifies, or of one that is being played. Only
shows: plays nothing and sends nothing.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import CARDS, KIND_NAMES
from royale_client.envs.arena.replay import Replay, Result, replayed
from royale_client.envs.arena.rules import (
    DRAWN,
    HEIGHT_UNITS,
    NO_OP,
    PLAY_DONE,
    PLAY_STATUS_NAMES,
    SEATS,
    TICK_MS,
    TILES,
    TOWER_HP,
    WIDTH,
    WIDTH_UNITS,
)
from royale_client.envs.arena.state import Battles


def as_text(replay: Replay) -> Iterator[str]:
    """Yield a line for each play and each tower that falls, and one for the end.

    Raises:
        ReplayError: The battle comes to something else than recorded.
    """
    yield seats_line(replay.players)
    states = replayed(replay)
    commentary = Commentary(next(states))
    for pair, battles in zip(replay.actions, states, strict=True):
        yield from commentary.after(battles, pair)
    yield end_line(replay.result)


def as_page(replay: Replay) -> str:
    """Return an HTML page that needs nothing but itself.

    Raises:
        ReplayError: The battle comes to something else than recorded.
    """
    frames = [frame(battles) for battles in replayed(replay)]
    title = f"{replay.players[0]} against {replay.players[1]}"
    return _page(title, replay.players, end_line(replay.result), frames, live="")


def live_page() -> str:
    """Return an HTML page that asks where it came from for ``frames`` of a running battle."""
    script = files(__package__).joinpath("live_view.js").read_text("utf-8")
    return _page("a battle of the arena", ("", ""), "", [], live=script)


class Commentary:
    """Says what happens in a battle, decision by decision.

    Args:
        battles: The one battle, as it is at first.
    """

    def __init__(self, battles: Battles) -> None:
        self._look(battles)

    def after(self, battles: Battles, pair: Sequence[int]) -> Iterator[str]:
        """Yield a line for each play and each tower that fell.

        Args:
            battles: The one battle, a decision later.
            pair: What both seats did.
        """
        yield from _plays(battles, pair, self._hands)
        yield from _falls(battles, self._standing)
        self._look(battles)

    def _look(self, battles: Battles) -> None:
        self._hands: list[list[int]] = battles.hand[0].tolist()
        self._standing: list[list[bool]] = (battles.tower_hp[0] > 0).tolist()


def seats_line(players: Sequence[str]) -> str:
    """Say who sits where."""
    return f"seat 0: {players[0]}; seat 1: {players[1]}"


def end_line(result: Result) -> str:
    """Say what a battle came to."""
    won = "a draw" if result.outcome == DRAWN else f"seat {result.outcome - 1} wins"
    return f"{_clock(result.tick)}  {won}, {result.crowns[0]} to {result.crowns[1]} crowns"


def _page(
    title: str, players: Sequence[str], end: str, frames: list[dict[str, Any]], *, live: str
) -> str:
    data = {
        "players": players,
        "end": end,
        "live": bool(live),
        "seconds": rules.TICKS_PER_DECISION * TICK_MS / 1000,
        "size": (WIDTH_UNITS, HEIGHT_UNITS, rules.RIVER_NEAR, rules.RIVER_FAR),
        "bridges": rules.BRIDGE_COLUMNS,
        "cap": rules.ELIXIR_CAP,
        "cards": [
            {"name": c.name, "cost": c.cost, "kind": KIND_NAMES[c.kind], "flying": c.flying}
            for c in CARDS
        ],
        "towers": _towers(),
        "frames": frames,
    }
    # "</" would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = files(__package__).joinpath("replay_page.html").read_text("utf-8")
    page = page.replace("@LIVE@", live).replace("@TITLE@", html.escape(title))
    return page.replace("@DATA@", text)


def _plays(battles: Battles, pair: Sequence[int], hands: list[list[int]]) -> Iterator[str]:
    begun_s = (int(battles.tick[0]) - 1) // rules.TICKS_PER_DECISION * rules.TICKS_PER_DECISION
    for seat, action in enumerate(pair):
        if action == NO_OP:
            continue
        slot, tile = divmod(action - 1, TILES)
        y, x = divmod(tile, WIDTH)
        status = int(battles.play_status[0, seat])
        suffix = "" if status == PLAY_DONE else f" (refused: {PLAY_STATUS_NAMES[status]})"
        name = CARDS[hands[seat][slot]].name
        yield f"{_clock(begun_s)}  seat {seat} plays {name} at column {x}, row {y}{suffix}"


def _falls(battles: Battles, standing: list[list[bool]]) -> Iterator[str]:
    for seat in range(SEATS):
        for tower, stood in enumerate(standing[seat]):
            if stood and battles.tower_hp[0, seat, tower] == 0:
                time, name = _clock(int(battles.tick[0])), rules.TOWER_NAMES[tower]
                yield f"{time}  seat {seat} loses its {name}"


def _clock(tick: int) -> str:
    minutes, seconds = divmod(tick * TICK_MS / 1000, 60)
    return f"{int(minutes)}:{seconds:04.1f}"


def frame(battles: Battles) -> dict[str, Any]:
    """Return what a page shows of the one battle, in the frame of seat 0."""
    units, spells = [], []
    for seat in range(SEATS):
        for u in (battles.unit_card[0, seat] >= 0).nonzero()[0].tolist():
            card = int(battles.unit_card[0, seat, u])
            x, y = _seen(seat, int(battles.unit_x[0, seat, u]), int(battles.unit_y[0, seat, u]))
            health = round(int(battles.unit_hp[0, seat, u]) / CARDS[card].hp, 3)
            state = int(battles.unit_deploy[0, seat, u] > 0) + 2 * int(
                battles.unit_stunned[0, seat, u] > 0
            )
            units.append([seat, u, card, x, y, health, state])
        for p in (battles.spell_card[0, seat] >= 0).nonzero()[0].tolist():
            card = int(battles.spell_card[0, seat, p])
            x, y = _seen(seat, int(battles.spell_x[0, seat, p]), int(battles.spell_y[0, seat, p]))
            spells.append([seat, card, x, y, CARDS[card].radius])
    return {
        "t": int(battles.tick[0]),
        "u": units,
        "s": spells,
        "h": battles.tower_hp[0].tolist(),
        "e": battles.elixir[0].tolist(),
        "c": battles.crowns[0].tolist(),
        "k": battles.hand[0].tolist(),
    }


def _towers() -> list[list[list[int]]]:
    """Return place and full hit points of both seats' towers, in the frame of seat 0."""
    places = list(enumerate(zip(rules.TOWER_X, rules.TOWER_Y, strict=True)))
    return [
        [[*_seen(seat, x, y), TOWER_HP[tower]] for tower, (x, y) in places] for seat in range(SEATS)
    ]


def _seen(seat: int, x: int, y: int) -> tuple[int, int]:
    return (x, y) if seat == 0 else (WIDTH_UNITS - x, HEIGHT_UNITS - y)
