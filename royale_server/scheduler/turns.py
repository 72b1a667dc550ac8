"""Where a group's turn begins and ends: from its answer to its next request (rule 4).

Tells those who measure turns or wait for them. Never decides who is late.
"""

from __future__ import annotations

from collections.abc import Sequence

from royale_server.scheduler.closing import Closing
from royale_server.scheduler.commands import Notice
from royale_server.scheduler.dispatcher import Dispatcher
from royale_server.scheduler.outbox import Outbox
from royale_server.scheduler.quorum import Quorum
from royale_server.scheduler.roster import Group, Member
from royale_server.scheduler.timeouts import Timeouts


class TurnTaking:
    """Begins and ends turns.

    Args:
        quorum: Measures the turns of train groups.
        dispatcher: Waits for them with the next round.
        closing: Waits for the cells whose outcome they bring.
        timeouts: Waits for them at most so long.
        outbox: Where it is said who is late.
    """

    def __init__(
        self,
        *,
        quorum: Quorum[Group],
        dispatcher: Dispatcher,
        closing: Closing,
        timeouts: Timeouts,
        outbox: Outbox,
    ) -> None:
        self._quorum = quorum
        self._dispatcher = dispatcher
        self._closing = closing
        self._timeouts = timeouts
        self._outbox = outbox

    def begin(self, groups: Sequence[Group], now: float) -> None:
        """These groups are answered, and owe a request unless they are gone."""
        running = self._timeouts.running(now)
        owing = self._closing.owing
        for group in groups:
            group.in_flight = False
            if group.member.ended:
                continue
            group.owes_since = now
            group.owes_since_running = running
            if group.reserved:
                owing[group] = None
        self._dispatcher.answered(groups, now)
        self._timeouts.await_feedback(now)

    def end(self, group: Group, now: float) -> None:
        """A group's request is here; its first step lets it into the quorum."""
        if not group.entered:
            group.entered = True
            if group.trains:
                self._quorum.enter(group, group.member)
            return
        assert group.owes_since is not None, "a request came while one was unanswered"
        duration_s = now - group.owes_since
        group.owes_since = None
        self._closing.owing.pop(group, None)
        if group.trains:
            change = self._quorum.turn_ended(group, duration_s)
            if change is not None:
                self._say_quorum(group, returned=change, duration_s=duration_s)

    def void(self, group: Group) -> None:
        """The group's last answer never arrived: its turn does not count."""
        group.owes_since = None
        self._closing.owing.pop(group, None)

    def go_on(self, member: Member, now: float) -> None:
        """A session that was cut off is back: what it owes is awaited from now on."""
        running = self._timeouts.running(now)
        for group in member.groups:
            if group.owes_since is not None:
                group.owes_since_running = running
                self._timeouts.await_feedback(now)
        self._dispatcher.refresh(member)

    def _say_quorum(self, group: Group, *, returned: bool, duration_s: float) -> None:
        verb = "is on time again: waited for" if returned else "is late: no longer waited for"
        text = f"{group.member.name}/{group.index} {verb} (last turn {duration_s * 1e3:.0f} ms)"
        self._outbox.commands.append(Notice("quorum", text))
