"""The scheduler core without a network: what the rules cost per request."""

from __future__ import annotations

import numpy as np

from royale_server.bench import yardstick
from royale_server.bench.work.timing import microseconds
from royale_server.scheduler import (
    Group,
    Infer,
    Learn,
    Request,
    Role,
    Scheduler,
    SchedulerConfig,
)

TURN_S = 0.01


def measure(*, clients: int, slots: int, seconds: float) -> dict[str, float]:
    """Return microseconds per request, batches and learn steps included.

    Args:
        clients: Sessions.
        slots: Slots of each.
        seconds: Length of the window.
    """
    rounds = _Rounds(clients, slots)
    return {"us_per_request": microseconds(rounds.play, seconds)}


class _Rounds:
    """Sessions in step with each other; what the scheduler commands is done at once."""

    def __init__(self, clients: int, slots: int) -> None:
        self._target = clients * slots * yardstick.STEPS
        config = SchedulerConfig(min_clients=clients)
        self._scheduler = Scheduler(config, target=self._target)
        self._groups = [
            self._scheduler.join(f"client-{k}", Role.TRAIN, (slots,), 0.0).groups[0]
            for k in range(clients)
        ]
        self._asks = np.ones(slots, np.bool_)
        self._none = np.zeros(slots, np.bool_)
        self._ended = self._none.copy()
        self._ended[0] = True
        self._now = 0.0
        self._number = 0

    def play(self) -> int:
        """Let every session send a request; return their number."""
        self._now += TURN_S
        self._number += 1
        for group in self._groups:
            self._request(group)
        return len(self._groups)

    def _request(self, group: Group) -> None:
        request = Request(
            number=self._number,
            asks=self._asks,
            ended=self._ended if self._number > 1 else self._none,
            has_feedback=self._number > 1,
        )
        self._scheduler.request(group, request, self._now)
        while commands := self._scheduler.advance(self._now):
            self._carry_out(commands[-1])

    def _carry_out(self, command: object) -> None:
        scheduler = self._scheduler
        if isinstance(command, Infer):
            scheduler.inferred(self._now)
        elif isinstance(command, Learn):
            version = scheduler.ledger.version + 1
            scheduler.learned(self._now, version=version, target=self._target)
        else:
            raise TypeError(f"a plain schedule leads to no {type(command).__name__}")
