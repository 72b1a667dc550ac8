"""Who is here: sessions, their groups, and the one request a group may have waiting.

Records, and their lists; the rules that read them live beside it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


LEARNER_SEAT = 0
"""In an array of who plays which row: the policy that learns. Other numbers are others."""

ONE = np.array(1)
"""As an array: turning a Python number into one costs more than adding it."""


def count_true(mask: BoolArray) -> int:
    """Count the True entries; on a short mask several times as fast as any function of NumPy."""
    return mask.tobytes().count(1)


def joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate; a single part is returned as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(slots=True, eq=False)
class Span:
    """Slots that are numbered together, and what the ledger knows of all of them alike.

    The usual state of a group: what is kept here costs the same for one slot and for a thousand.
    It stands for what the ledger's columns would say of these slots; `Spans` writes it out to
    them (`Spans.settle`) before anything looks at the slots one by one.
    """

    start: int
    stop: int
    """Slot numbers ``start`` to ``stop - 1``."""
    size: int = field(init=False)
    slots: slice = field(init=False)
    """These slots as an index into anything kept per slot."""
    block: int | None = None
    """First of the consecutive cells of *all* slots, while each of them is reserved; else None."""
    version: int = 0
    """Policy version of the cells of ``block``."""
    tails: int | None = None
    """First of the consecutive cells that hold each slot's last stored frame; None: see `Slots`."""
    no_tails: BoolArray | None = None
    """Which slots have no such frame nevertheless, since their episode ended, ``(n,)``."""
    frames: int = 0
    """Stored frames of each slot's running episode, beside those in `Slots`."""
    ordinals: IntArray | None = None
    """Number of each slot's next frame, ``(n,)``; None: see `Slots`."""

    def __post_init__(self) -> None:
        self.size = self.stop - self.start
        self.slots = slice(self.start, self.stop)


class Role(enum.Enum):
    """What a session's frames are for."""

    TRAIN = "train"
    EVAL = "eval"


@dataclass(slots=True, eq=False)
class Request:
    """One `step` message as the scheduler sees it: masks and a handle, no tensors.

    Shapes are over the ``n`` rows (slots) of the group.
    """

    number: int
    asks: BoolArray
    """Rows that want an action, ``(n,)``."""
    ended: BoolArray
    """Rows whose episode ended with the last action, ``(n,)``."""
    has_feedback: bool
    """Whether the message carries rewards and endings of a last action."""
    invalid_feedback: BoolArray | None = None
    """Rows whose reward or final observation is not finite; None means none."""
    invalid_observation: BoolArray | None = None
    """Asking rows whose observation is not finite; None means none."""
    seats: IntArray | None = None
    """Who plays each row from now on, ``(n,)``: 0 the policy that learns, other numbers others;
    None: it plays them all. A row changes hands only with the request in which it ended."""
    payload: Any = None
    """The received message; never looked into here."""
    received_at: float = field(init=False)
    learner_rows: BoolArray = field(init=False)
    """Rows that ask and are to be trained on, ``(n,)``. These five are the scheduler's to fill."""
    num_asking: int = field(init=False)
    num_learner: int = field(init=False)
    any_ended: bool = field(init=False)


@dataclass(slots=True, eq=False)
class Group:
    """A fixed set of one session's slots that is asked and answered together."""

    member: Member
    index: int
    """0 or 1 within the session."""
    start: int
    stop: int
    """Global slot numbers ``start`` to ``stop - 1``."""
    waiting: Request | None = None
    """The request received and not yet answered: queued, or parked while closed."""
    in_flight: bool = False
    """Its request is being inferred right now."""
    entered: bool = False
    """Its first step has arrived."""
    owes_since: float | None = None
    """When its last answer left; None while the server owes the answer."""
    owes_since_running: float = 0.0
    """The same on the clock that stands still while learning (time-outs)."""
    reserved: int = 0
    """Cells whose outcome this group still owes."""
    is_tainted: bool = False
    """Some row's running episode is not trained on."""
    tainted: BoolArray = field(init=False)
    """Which rows' are not, ``(n,)``."""
    seats: IntArray | None = None
    """Who plays each row's running episode, as in its last request."""
    episodes: IntArray = field(init=False)
    """Ordinal of each row's running episode, ``(n,)``. Never written to, only replaced."""
    steps: IntArray = field(init=False)
    """Actions taken in it, ``(n,)``."""
    trains: bool = field(init=False)
    """Whether its frames are for training."""
    size: int = field(init=False)
    """Number of slots."""
    span: Span = field(init=False)
    """Its slots, for the ledger."""
    slots: slice = field(init=False)
    """Its slots as an index into anything kept per slot."""
    rows: IntArray = field(init=False)
    """0, 1, …: its rows, ``(n,)``."""
    slot_numbers: IntArray = field(init=False)
    """The slots of these rows, ``(n,)``."""
    everyone: BoolArray = field(init=False)
    """True for each row, ``(n,)``."""
    nobody: BoolArray = field(init=False)
    """False for each row, ``(n,)``."""

    def __post_init__(self) -> None:
        self.trains = self.member.role is Role.TRAIN
        self.span = Span(self.start, self.stop)
        self.size, self.slots = self.span.size, self.span.slots
        self.rows = np.arange(self.size)
        self.slot_numbers = self.rows + self.start
        self.everyone = np.ones(self.size, np.bool_)
        self.nobody = np.zeros(self.size, np.bool_)
        self.tainted = np.zeros(self.size, np.bool_)
        self.episodes = np.zeros(self.size, np.int64)
        self.steps = np.zeros(self.size, np.int64)
        for shared in (self.rows, self.slot_numbers, self.everyone, self.nobody):
            shared.flags.writeable = False

    def learner_rows(self, asks: BoolArray) -> BoolArray:
        """Those of the asking rows that are to be trained on, ``(n,)``."""
        rows = asks & ~self.tainted if self.is_tainted else asks
        return rows if self.seats is None else rows & (self.seats == LEARNER_SEAT)


@dataclass(slots=True, eq=False)
class Member:
    """A session taking part in the run."""

    number: int
    """Unique in this attempt, in order of joining."""
    name: str
    role: Role
    joined_at: float
    groups: tuple[Group, ...] = ()
    ended: bool = False
    is_present: bool = True
    """Whether a client stands behind it. One that came with a checkpoint is awaited by name."""
    is_connected: bool = True
    """Whether its client can be reached. One that was cut off may yet come back."""

    @property
    def size(self) -> int:
        """Number of slots of all groups."""
        return sum(group.size for group in self.groups)

    @property
    def entered(self) -> bool:
        """Every group's first step has arrived."""
        return all(group.entered for group in self.groups)

    @property
    def is_parked(self) -> bool:
        """Every group has its request at the server."""
        return all(group.waiting is not None for group in self.groups)


class Roster:
    """The sessions taking part, in order of joining."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.trainers: list[Member] = []
        """Train sessions among them, and those awaited from a checkpoint."""
        self._next_number = 0

    def admit(self, name: str, role: Role, now: float) -> Member:
        """Count a session in, without groups yet."""
        member = Member(number=self._next_number, name=name, role=role, joined_at=now)
        self._next_number += 1
        self.members.append(member)
        if role is Role.TRAIN:
            self.trainers.append(member)
        return member

    def remove(self, member: Member) -> None:
        """A session is over."""
        member.ended = True
        self.members.remove(member)
        if member.role is Role.TRAIN:
            self.trainers.remove(member)

    def train_groups(self) -> Iterator[Group]:
        """Groups of the train sessions, in order."""
        return (group for member in self.trainers for group in member.groups)
