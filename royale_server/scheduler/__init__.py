"""The frame rules: who is asked, which frames count, when to learn.

Pure: no I/O, no clock, no threads, no torch. Time is an argument, the outcome is a
list of commands; every rule is tested without a socket or a sleep.

    Quorum         who is on time            numbers and times only
    FrameLedger    what became of each frame tags, reasons, counts; over
      Cells          which cells are free      states, tags, what comes next
      Slots          what a slot did last      its open cell, last frame, numbers
      Spans          slots that are alike      one note for a whole group
    Collection     open or closed            target, phase, closing times
    Dispatcher     which requests run next   barrier, mini-batch, dynamic, deterministic
    Scheduler      asks the four, keeps the roster, emits the commands
    SchedulerState what of it is in a checkpoint
"""

from royale_server.scheduler.books import LedgerBooks
from royale_server.scheduler.commands import (
    Answer,
    Bootstrap,
    Bridge,
    Command,
    Effect,
    EndRun,
    EndSession,
    Infer,
    InferItem,
    Learn,
    Notice,
    Record,
    Rested,
)
from royale_server.scheduler.config import Dispatch, SchedulerConfig
from royale_server.scheduler.ledger import Discard, FrameLedger
from royale_server.scheduler.roster import Group, Member, Request, Role, Span
from royale_server.scheduler.scheduler import Scheduler
from royale_server.scheduler.state import SavedGroup, SavedMember, SchedulerState, Turns

__all__ = [
    "Answer",
    "Bootstrap",
    "Bridge",
    "Command",
    "Discard",
    "Dispatch",
    "Effect",
    "EndRun",
    "EndSession",
    "FrameLedger",
    "Group",
    "Infer",
    "InferItem",
    "Learn",
    "LedgerBooks",
    "Member",
    "Notice",
    "Record",
    "Request",
    "Rested",
    "Role",
    "SavedGroup",
    "SavedMember",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerState",
    "Span",
    "Turns",
]
