"""The frame rules: who is asked, which frames count, when to learn.

Pure: no I/O, no clock, no threads, no torch. Time is an argument, the outcome is a
list of commands; every rule is tested without a socket or a sleep.

Each part knows one thing, and says so at the top of its module:

    Scheduler     the order of the rules; takes events, emits the commands
    Roster        who takes part: sessions and their groups
    Waiting       whose requests are here: queued, parked, held
    Quorum        who is on time: numbers and times only          rule 4
    TurnTaking    where a turn begins and ends                    rule 4
    Dispatcher    which requests run next                         rules 4, 5
    Batches       what such a batch is: rows, cells, noise keys   rule 5
    Collection    open or closed: target, phase, closing times    rules 1, 2, 12
    Closing       what a closed one waits for: cut, revoked       rules 2, 3
    Frames        outcomes, bootstraps: notes for the model       rules 6, 8
    FrameLedger   what became of each frame, and the sum of it    rules 6, 7
      Cells, Slots, Spans: the columns it is kept in
    Timeouts      who owes too long, by a clock that may stop     rules 4, 10
    Rest          who is waited for until a rest is reached       rule 14
    Continuation  what of it is in a checkpoint and out of one    rule 14
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
from royale_server.scheduler.roster import LEARNER_SEAT, Group, Member, Request, Role, Span
from royale_server.scheduler.scheduler import Scheduler
from royale_server.scheduler.state import SavedGroup, SavedMember, SchedulerState, Turns

__all__ = [
    "LEARNER_SEAT",
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
