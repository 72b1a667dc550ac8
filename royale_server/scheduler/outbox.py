"""What comes out of the scheduler: commands, and when it wants to be asked again.

Collects what the rules say, in order; knows none of them.
"""

from __future__ import annotations

import math

from royale_server.scheduler.commands import Command


class Outbox:
    """Commands not yet taken, and the next time something may be due."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        """In the order in which the caller carries them out."""
        self.wake_at = math.inf

    def wake(self, at: float) -> None:
        """Ask to be called again no later than this."""
        self.wake_at = min(self.wake_at, at)
