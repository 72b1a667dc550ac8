"""What the scheduler asks the rest of the server to do.

Commands are carried out at once and in order by the hub. Effects are notes for the
model thread, which owns storage; they travel, in order, with the next `Infer` or `Learn`.
Nothing is changed after it was made; those made for every request are not frozen, since that
quadruples what making them costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from royale_server.scheduler.roster import BoolArray, Group, IntArray, Member, Request


@dataclass(slots=True, eq=False)
class Record:
    """Rewards and endings of a request belong to these cells."""

    request: Request
    rows: IntArray
    """Rows of the request with an open cell, ``(k,)``."""
    cells: IntArray
    """Their cells, ``(k,)``."""
    finished: BoolArray
    """Which of them are complete with this request, ``(k,)``."""
    block: slice | None = None
    """The cells as a range, if it is known that they follow each other."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """Cells given up: the frame before each takes the value already inferred for it."""

    cells: IntArray
    """Last complete frames, ``(k,)``."""
    successors: IntArray
    """The given-up cells that followed them, ``(k,)``."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Observations of a request that no action will follow in this iteration."""

    request: Request
    rows: IntArray
    """Asking rows whose last frame is stored and goes on, ``(k,)``."""
    cells: IntArray
    """Those frames' cells, ``(k,)``."""


Effect: TypeAlias = Record | Bridge | Bootstrap


@dataclass(slots=True, eq=False)
class InferItem:
    """The part of a batch that answers one request."""

    group: Group
    request: Request
    rows: IntArray
    """All asking rows, ``(m,)``, in row order."""
    learner: BoolArray
    """Which of them have a cell, ``(m,)``."""


@dataclass(slots=True, eq=False)
class Infer:
    """Infer one batch; its actions answer the items in order."""

    items: tuple[InferItem, ...]
    slots: IntArray
    """Global slot numbers of the asking rows over all items, in order."""
    episodes: IntArray
    """Episode ordinal of each asking row (keys the noise)."""
    steps: IntArray
    """Step within the episode of each asking row."""
    cells: IntArray
    """Cells of the learner rows over all items, in order."""
    cell_slots: IntArray
    """Their slots."""
    ordinals: IntArray
    """Their frame numbers within the slot (a gap is a hole)."""
    effects: tuple[Effect, ...]
    evaluation: bool = False
    seats: IntArray | None = None
    """Who plays each asking row, over all items, in order; see ``Request.seats``. None: the policy
    that learns plays all of them."""
    block: slice | None = None
    """The cells as a range, if it is known that they follow each other."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request in which no row asks: zero actions, no inference."""

    group: Group
    request: Request


@dataclass(frozen=True, slots=True)
class Learn:
    """Learn from exactly these cells; nothing is inferred meanwhile."""

    cells: IntArray
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class EndSession:
    """End a session with a fault; its cells are already accounted for."""

    member: Member
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """The rules do not allow to go on (deterministic mode lost a client)."""

    message: str


@dataclass(frozen=True, slots=True)
class Rested:
    """The rest point asked for is reached."""

    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should be able to read in the events of the run."""

    kind: str
    message: str


Command: TypeAlias = Infer | Answer | Learn | EndSession | EndRun | Rested | Notice
