"""When a rest point is reached, and who is waited for until then (rule 14).

Knows since when rest is asked for and who has yet to come. Never knows what it is for.
"""

from __future__ import annotations

import math

from royale_server.scheduler.closing import Closing
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.frames import Frames
from royale_server.scheduler.outbox import Outbox
from royale_server.scheduler.roster import Group, Roster


class Rest:
    """The rest point that was asked for, if any.

    Args:
        close_wait_s: How long reserved cells are waited for, seconds.
        roster: Who has to have its request at the server.
        dispatcher: Says who is late.
        closing: Gives up what does not come.
        frames: Where what is parked serves as bootstrap.
        outbox: Where it says when to look again.
    """

    def __init__(
        self,
        close_wait_s: float,
        *,
        roster: Roster,
        dispatcher: Dispatcher,
        closing: Closing,
        frames: Frames,
        outbox: Outbox,
    ) -> None:
        self._close_wait_s = close_wait_s
        self._roster = roster
        self._dispatcher = dispatcher
        self._closing = closing
        self._frames = frames
        self._outbox = outbox
        self.since: float | None = None
        """From when on the wait is counted; None while no rest is asked for."""
        self.is_reached = False

    def ask(self, now: float) -> None:
        """Ask for a rest point, if none is asked for."""
        if self.since is None:
            self.since = now

    def count_from(self, now: float) -> None:
        """Whoever is waited for has had no turn before."""
        if self.since is not None:
            self.since = now

    def end(self) -> bool:
        """End a rest point; return whether it was reached."""
        was_reached = self.is_reached
        self.since, self.is_reached = None, False
        return was_reached

    def approach(self, now: float, since: float) -> bool:
        """Give up what a rest does not wait for, unless somebody is awaited.

        Returns:
            Whether the rest point is reached by it.
        """
        groups = self._roster.train_groups()
        missing = [group for group in groups if group.entered and group.waiting is None]
        if missing and self._dispatcher.is_deterministic:
            return False
        if any(self.is_awaited(group, now, since) for group in missing):
            return False
        for group in list(self._closing.owing):
            self._closing.revoke(group)
        self._closing.cut()
        self.bootstrap_unsaved()
        self.is_reached = True
        return True

    def is_awaited(self, group: Group, now: float, since: float) -> bool:
        """Whether a rest still waits for this group: nobody waits for one that is late anyway."""
        until = since + self._close_wait_s
        if not group.reserved:
            on_time = self._dispatcher.waits_for(group)
            until = min(until, self._dispatcher.late_at(group) if on_time else -math.inf)
        if now >= until:
            return False
        self._outbox.wake(until)
        return True

    def bootstrap_unsaved(self) -> None:
        """What a session of which only one group is parked shows: a checkpoint holds no more of it.

        If the run goes on, the frame that follows comes before this.
        """
        for member in self._roster.trainers:
            if not member.is_parked:
                for group in member.groups:
                    self._frames.bootstrap(group)
