"""Who is here: sessions, their groups, and the one request a group may have waiting.

Records only; the rules that read them live beside it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


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
    payload: Any = None
    """The received message; never looked into here."""
    received_at: float = 0.0
    learner_rows: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    """Rows that ask and are to be trained on, ``(n,)``; filled by the scheduler."""
    num_asking: int = 0
    num_learner: int = 0


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
    block: int | None = None
    """First of the consecutive cells of *all* its rows, while each of them is reserved; else None.
    The usual state: what it allows costs the same for one row and for a thousand."""
    is_tainted: bool = False
    """Some row's running episode is not trained on."""
    rows: IntArray = field(init=False)
    """0, 1, …: its rows, ``(n,)``."""
    slot_numbers: IntArray = field(init=False)
    """The slots of these rows, ``(n,)``."""
    everyone: BoolArray = field(init=False)
    """True for each row, ``(n,)``."""

    def __post_init__(self) -> None:
        self.rows = np.arange(self.size)
        self.slot_numbers = self.rows + self.start
        self.everyone = np.ones(self.size, np.bool_)
        for shared in (self.rows, self.slot_numbers, self.everyone):
            shared.flags.writeable = False

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.stop - self.start

    @property
    def slots(self) -> slice:
        """Its slots as an index into anything kept per slot."""
        return slice(self.start, self.stop)


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
