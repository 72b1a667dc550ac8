"""Who plays each slot of a group: the server's policies, or bots that are played here.

Keeps the server's assignments in a queue for each slot, takes the next one when an episode begins,
and fills in the actions of bots. Without assignments the server plays every slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import BoolArray
from royale_client.envs.arena.bots import Bot, bot_keys, make_bot
from royale_client.envs.arena.rules import NO_OP, SEATS
from royale_client.envs.arena.state import Battles
from royale_client.wire.seating import (
    Player,
    SeatAssignment,
    read_assignments,
    write_assignments,
)

_POLICY = "policy"


class Seats:
    """The slots of a group.

    Args:
        num_slots: Seats of all battles.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._queues: list[deque[SeatAssignment]] = [deque() for _ in range(num_slots)]
        self._names: list[str] = [""] * num_slots
        """The bot that plays each slot; empty where the server does."""
        self._policies: list[str] = [_POLICY] * num_slots
        """What the server told of who plays there otherwise; for people."""
        self._bots: dict[str, tuple[Bot, BoolArray]] = {}
        """By name, the bots that play now, and for which seats, ``(N, 2)``."""

    def assign(self, assignments: Iterable[SeatAssignment], *, afresh: bool) -> None:
        """Take further assignments; see `SeatedDriver.assign`.

        Raises:
            ValueError: A bot that there is not.
        """
        if afresh:
            self._queues = [deque() for _ in range(self._num_slots)]
        for assignment in assignments:
            if assignment.player is Player.SCRIPTED:
                self._bots.setdefault(assignment.name, (make_bot(assignment.name), self._nobody()))
            self._queues[assignment.slot].append(assignment)

    def begin(self, slots: npt.NDArray[np.int64]) -> BoolArray | None:
        """Begin the next episode of some slots.

        Returns:
            Which of all slots ask the server, ``(n,)``; None if all do.
        """
        for slot in slots.tolist():
            queue = self._queues[slot]
            following = queue.popleft() if queue else None
            is_bot = following is not None and following.player is Player.SCRIPTED
            self._names[slot] = following.name if following is not None and is_bot else ""
            self._policies[slot] = _described(following)
        self._seat()
        asks = np.array([not name for name in self._names])
        return None if asks.all() else asks

    def actions(
        self, battles: Battles, acted: BoolArray | None, chosen: npt.NDArray[Any]
    ) -> npt.NDArray[np.int32]:
        """Return the actions of all seats.

        Args:
            battles: N battles.
            acted: Which slots asked the server; None if all did.
            chosen: What it answered, one for each of them.

        Returns:
            ``(N, 2)``.
        """
        if acted is None:
            return chosen.reshape(-1, SEATS).astype(np.int32)
        actions = np.full(self._num_slots, NO_OP, np.int32)
        actions[acted] = chosen
        by_seat = actions.reshape(-1, SEATS)
        keys = bot_keys(battles)
        for bot, seats in self._bots.values():
            if seats.any():
                by_seat[seats] = bot.act(battles, seats, keys)[seats]
        return by_seat

    def players(self, battle: int) -> tuple[str, ...]:
        """Return who plays the seats of a battle, for people."""
        slots = range(battle * SEATS, (battle + 1) * SEATS)
        return tuple(self._names[slot] or self._policies[slot] for slot in slots)

    def snapshot(self) -> dict[str, Any]:
        """Return who plays, and who will, as plain data."""
        queued = [assignment for queue in self._queues for assignment in queue]
        return {"names": list(self._names), "queued": list(write_assignments(queued))}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `snapshot` returned.

        Raises:
            ValueError: It is of another number of slots, or names a bot that there is not.
            ProtocolError: An assignment is none.
        """
        names: Sequence[str] = state["names"]
        if len(names) != self._num_slots:
            raise ValueError(f"seats of {len(names)} slots, expected {self._num_slots}")
        fresh = Seats(self._num_slots)
        fresh.assign(read_assignments(state["queued"], self._num_slots), afresh=True)
        for name in filter(None, names):
            fresh._bots.setdefault(name, (make_bot(name), fresh._nobody()))
        self._queues, self._bots, self._names = fresh._queues, fresh._bots, list(names)
        self._policies = fresh._policies
        self._seat()

    def _seat(self) -> None:
        """Note for which seats each bot plays."""
        by_seat = np.array(self._names).reshape(-1, SEATS)
        self._bots = {name: (bot, by_seat == name) for name, (bot, _) in self._bots.items()}

    def _nobody(self) -> BoolArray:
        return np.zeros((self._num_slots // SEATS, SEATS), np.bool_)


def _described(assignment: SeatAssignment | None) -> str:
    """Name a policy of the server."""
    if assignment is None or assignment.player is Player.LEARNER:
        return _POLICY
    return f"{assignment.player.value} {assignment.name}"
