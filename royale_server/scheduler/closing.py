"""What a closed collection waits for, and what it does not (rules 1 to 3).

Knows which groups owe the outcome of reserved cells, and who waits for them. Never learns: it
only gives up what nobody should wait for.
"""

from __future__ import annotations

from royale_server.scheduler.collection import Collection
from royale_server.scheduler.commands import Notice
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.ledger import Discard, FrameLedger
from royale_server.scheduler.outbox import Outbox
from royale_server.scheduler.roster import Group, Roster
from royale_server.scheduler.waiting import Waiting


class Closing:
    """Cuts and revokes reserved cells.

    Args:
        roster: Whose cells may be reserved.
        ledger: Counts them.
        collection: Says whether it is closed, and since when.
        dispatcher: Says who is late.
        waiting: Who is parked meanwhile.
        frames: Where cells are given up.
        outbox: Where it is said.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        ledger: FrameLedger,
        collection: Collection,
        dispatcher: Dispatcher,
        waiting: Waiting,
        frames: Frames,
        outbox: Outbox,
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._collection = collection
        self._dispatcher = dispatcher
        self._waiting = waiting
        self._frames = frames
        self._outbox = outbox
        self.owing: dict[Group, None] = {}
        """Groups that were answered and owe the outcome of reserved cells."""

    @property
    def is_open(self) -> bool:
        """Whether learner rows may be inferred."""
        ledger = self._ledger
        return self._collection.is_open(
            complete=ledger.num_complete,
            reserved=ledger.num_reserved,
            stored_total=ledger.stored_total,
        )

    def settle(self, now: float) -> None:
        """Give up what a closed collection should not wait for (rules 2 and 3)."""
        self._collection.note_closed(now)
        if self.owing and not self._dispatcher.is_deterministic:
            self.revoke_late(now)
        if self._ledger.num_reserved and not self.owing and not self.is_open:
            self.cut_silent_rows()

    def cut_silent_rows(self) -> None:
        """Only silent rows of parked requests are left, and parked is what they stay."""
        at_once = self._waiting.without_learner_rows
        if not self._dispatcher.is_ordered and any(
            group.reserved and group in at_once for group in self._roster.train_groups()
        ):
            return  # that request is answered at once, and its silent rows may yet finish
        self.cut()

    def cut(self) -> None:
        """Give up every cell that is reserved still."""
        for group in self._roster.train_groups():
            if group.reserved:
                self._frames.give_up(group, Discard.CUT)

    def revoke_late(self, now: float) -> None:
        """Stop waiting for groups that have had their time while others wait for them."""
        for group in self.owing:
            late_at = self._dispatcher.late_at(group)
            if now < late_at:
                self._outbox.wake(late_at)
                return  # somebody on time is waited for anyway
        parked = {group.member for group in self._waiting.parked}
        for group in list(self.owing):
            if parked <= {group.member}:
                continue  # nobody else waits for these cells
            due = self._collection.revoke_at(in_quorum=self._dispatcher.waits_for(group))
            if now < due:
                self._outbox.wake(due)
            else:
                self.revoke(group)

    def revoke(self, group: Group) -> None:
        """Wait no longer for the cells of a group."""
        count = self._frames.give_up(group, Discard.LATE)
        self.owing.pop(group, None)
        text = f"{group.member.name}/{group.index} kept a learn step waiting: {count} frames"
        self._outbox.commands.append(Notice("revoked", f"{text} given up as late"))
