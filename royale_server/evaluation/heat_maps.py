"""Heat-maps of a run, for people: where each card was put down, as text and as a page.

Reads rows of ``heatmaps.jsonl``; knows the arena's grid and cards, and writes nothing.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from royale_client.envs.arena.cards import CARDS
from royale_client.envs.arena.rules import (
    BRIDGE_COLUMNS,
    HEIGHT,
    RIVER_FAR,
    RIVER_NEAR,
    TILE_UNITS,
    TILES,
    WIDTH,
)
from royale_client.wire.errors import RoyaleError, brief
from royale_server.run.records import read_records

_PLAYS = "policy/card_tile"
"""Card times tiles plus tile of each play."""
_SHADES = " .:-=+*#%@"
_BESIDE = 4
"""Maps in one line of text."""
_GAP = "   "


class HeatMapError(RoyaleError):
    """A run has no heat-maps, or not those asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Where cards were put down in some iterations."""

    first: int
    """First iteration."""
    last: int
    """Last one."""
    step: int
    """Stored frames by its end."""
    episodes: int
    """Episodes of the learner, one a seat."""
    tiles: Mapping[str, tuple[int, ...]]
    """By card, plays on each tile, row by row from the own side."""


def read_windows(file: Path) -> list[Window]:
    """Read what a run has written, in the order of iterations.

    Where a resumed run went through iterations again, what it did then counts.

    Raises:
        HeatMapError: There is nothing of the arena, or something else.
    """
    rows = read_records(file)[0] if file.is_file() else []
    try:
        windows = {window.last: window for window in map(_window, rows)}
    except (KeyError, TypeError, ValueError) as error:
        raise HeatMapError(f"{file} holds lines that are no heat-maps: {error!r}") from error
    if not any(window.tiles for window in windows.values()):
        raise HeatMapError(
            f"{file} holds no plays of cards: they are written every --heatmap-every iterations "
            "of a run in the arena"
        )
    return [windows[iteration] for iteration in sorted(windows)]


def choose(windows: Sequence[Window], iteration: int | None) -> Window:
    """Return the window that an iteration lies in, or the newest one.

    Raises:
        HeatMapError: It lies in none.
    """
    if iteration is None:
        return windows[-1]
    for window in windows:
        if window.first <= iteration <= window.last:
            return window
    raise HeatMapError(
        f"no heat-map holds iteration {iteration}; there are {windows[0].first} to "
        f"{windows[-1].last}"
    )


def as_text(window: Window) -> Iterator[str]:
    """Yield the lines of a window: a small map for each card, the enemy's side on top.

    Each card has shades of its own, from blank for none to ``@`` for its most played tile.
    """
    yield (
        f"iterations {window.first} to {window.last}, {window.episodes:,} episodes of a seat; "
        f"shades {_SHADES.strip()!r} up to each card's most played tile"
    )
    cards = list(window.tiles.items())
    if not cards:
        yield "no card was played"
    for begin in range(0, len(cards), _BESIDE):
        maps = [_text_map(name, tiles) for name, tiles in cards[begin : begin + _BESIDE]]
        yield ""
        yield from (_GAP.join(parts).rstrip() for parts in zip(*maps, strict=True))


def as_page(title: str, windows: Sequence[Window]) -> str:
    """Return an HTML page of all windows that needs nothing but itself."""
    names = sorted({name for window in windows for name in window.tiles})
    nothing = (0,) * TILES
    data = {
        "size": (WIDTH, HEIGHT),
        "river": list(range(RIVER_NEAR // TILE_UNITS, RIVER_FAR // TILE_UNITS)),
        "bridges": BRIDGE_COLUMNS,
        "cards": names,
        "windows": [
            {
                "first": window.first,
                "last": window.last,
                "step": window.step,
                "episodes": window.episodes,
                "tiles": [_pairs(window.tiles.get(name, nothing)) for name in names],
            }
            for window in windows
        ],
    }
    # "</" would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = files(__package__).joinpath("heat_map_page.html").read_text("utf-8")
    return page.replace("@TITLE@", html.escape(title)).replace("@DATA@", text)


def _window(row: Mapping[str, Any]) -> Window:
    tiles: dict[str, list[int]] = {}
    for place, count in _mapping(_mapping(row["counts"]).get(_PLAYS, {})).items():
        card, tile = divmod(int(place), TILES)
        if not 0 <= card < len(CARDS):
            raise ValueError(f"{_PLAYS} {place}: there are {len(CARDS)} cards on {TILES} tiles")
        tiles.setdefault(CARDS[card].name, [0] * TILES)[tile] = _whole(count, least=1)
    return Window(
        first=_whole(row["first_iteration"]),
        last=_whole(row["iteration"]),
        step=_whole(row["step"]),
        episodes=_whole(row["episodes"]),
        tiles={name: tuple(tiles[name]) for name in sorted(tiles)},
    )


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - what a file may hold
    if not isinstance(value, Mapping):
        raise TypeError(f"{brief(value)} where a mapping is expected")
    return value


def _whole(value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{brief(value)} where a whole number from {least} is expected")
    return value


def _pairs(tiles: Iterable[int]) -> list[tuple[int, int]]:
    """Return tile and count of the tiles that were played on."""
    return [(tile, count) for tile, count in enumerate(tiles) if count]


def _text_map(name: str, tiles: Sequence[int]) -> list[str]:
    most = max(tiles)
    shades = "".join(_SHADES[-(-count * (len(_SHADES) - 1) // most)] for count in tiles)
    rows = [shades[row * WIDTH : (row + 1) * WIDTH] for row in reversed(range(HEIGHT))]
    heading = (name[:WIDTH].ljust(WIDTH), f"{sum(tiles):,}".ljust(WIDTH))
    return [f" {line} " for line in heading] + [f"|{row}|" for row in rows]
