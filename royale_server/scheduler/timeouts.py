"""The time-outs, and the clock they run on (rules 4 and 10).

Knows sessions, times and settings: who owes its first step or an answer to an action, and since
when. Never ends a session itself, and knows nothing of frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from royale_server.scheduler.config import SchedulerConfig
from royale_server.scheduler.roster import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A session that owes something for too long."""

    member: Member
    what: str
    """What did not come, for the message."""
    flag: str
    """The setting of the server that allows more time."""


class Timeouts:
    """Deadlines of the sessions; the clock stands still while learning and at rest."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._first_step_s = config.first_step_timeout_s
        self._feedback_s = config.feedback_wait_timeout_s
        self._frozen_since: float | None = None
        self._frozen_s = 0.0
        self.next_at = math.inf
        """When a deadline has to be looked at again."""

    # --- the clock -----------------------------------------------------------------------

    def running(self, now: float) -> float:
        """Read the clock that stands still while learning and at rest."""
        stopped = 0.0 if self._frozen_since is None else now - self._frozen_since
        return now - self._frozen_s - stopped

    def freeze(self, now: float) -> None:
        """Stop the clock, if it is not stopped."""
        if self._frozen_since is None:
            self._frozen_since = now

    def thaw(self, now: float) -> None:
        """Let the clock go on, if it is stopped."""
        if self._frozen_since is not None:
            self._frozen_s += now - self._frozen_since
            self._frozen_since = None
            self.next_at = now  # deadlines were not looked at while the clock stood still

    # --- deadlines -----------------------------------------------------------------------

    def await_first_step(self, now: float) -> None:
        """A session has come, and owes the first step of each group."""
        self.next_at = min(self.next_at, now + self._first_step_s)

    def await_feedback(self, now: float) -> None:
        """A group has got its answer, and owes the next request."""
        look_at = now + self._feedback_s
        if look_at < self.next_at:  # noqa: PLR1730  # once a request, at a tenth of min's cost
            self.next_at = look_at

    def overdue(self, members: Sequence[Member], now: float, *, is_ordered: bool) -> list[Overdue]:
        """Look at every deadline.

        Args:
            members: Sessions taking part.
            now: Seconds.
            is_ordered: Whether the run waits for sessions that are not present.
        """
        self.next_at = math.inf
        late = []
        for member in members:
            first_step_left_s = self.first_step_left_s(member, now, is_ordered=is_ordered)
            feedback_left_s = self.feedback_left_s(member, now)
            if first_step_left_s <= 0:
                what = f"no first step from every group within {self._first_step_s:g} s"
                late.append(Overdue(member=member, what=what, flag="--first-step-timeout"))
            elif feedback_left_s <= 0:
                what = f"no answer to an action within {self._feedback_s:g} s"
                late.append(Overdue(member=member, what=what, flag="--feedback-wait-timeout"))
            else:
                self.next_at = min(self.next_at, now + min(first_step_left_s, feedback_left_s))
        return late

    def first_step_left_s(self, member: Member, now: float, *, is_ordered: bool) -> float:
        """Seconds the session has for the first step of each group; infinite once it is there."""
        if member.entered and (member.is_present or is_ordered):
            return math.inf
        return member.joined_at + self._first_step_s - now

    def feedback_left_s(self, member: Member, now: float) -> float:
        """Seconds until the session owes a request for too long; its clock may stand still.

        So it does while the client is cut off: how long that may last is not decided here.
        """
        owed = [g.owes_since_running for g in member.groups if g.owes_since is not None]
        if not owed or self._frozen_since is not None or not member.is_connected:
            return math.inf
        return min(owed) + self._feedback_s - self.running(now)
