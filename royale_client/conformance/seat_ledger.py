"""Who plays which seat, episode by episode, and whether requests keep to it. Knows no connection.

Both halves of the suite have one: to make assignments up and hold a client to them, and to follow
those of a server and see that they are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from royale_client.conformance.scenario import ViolationError
from royale_client.wire.messages import Hello, Step
from royale_client.wire.seating import Player, SeatAssignment
from royale_client.wire.turns import BoolArray


class SeatLedger:
    """The seats of one client, all of them in environments of several.

    Args:
        hello: Of the client.
        assignments: Those of the welcome.

    Raises:
        ViolationError: They are not the first two episodes of each slot.
    """

    def __init__(self, hello: Hello, assignments: Iterable[SeatAssignment]) -> None:
        self._groups = hello.groups
        self._environments = environments_of(hello)
        self._told: list[list[SeatAssignment]] = [[] for _ in range(hello.num_slots)]
        self._awaits_reset = np.zeros(hello.num_slots, np.bool_)
        for assignment in assignments:
            self._told[assignment.slot].append(assignment)
        for slot, told in enumerate(self._told):
            ordinals = [assignment.episode for assignment in told]
            if len(told) != 2 or ordinals[1] != ordinals[0] + 1:
                text = f"slot {slot} is told of the episodes {ordinals}, expected the first two"
                raise ViolationError(("P67",), text)

    def slots_of(self, group: int) -> slice:
        """The slots of a group."""
        first = sum(self._groups[:group])
        return slice(first, first + self._groups[group])

    def are_scripted(self, group: int, ahead: int = 0) -> BoolArray:
        """Which rows of a group are played by bots. Shape ``(n,)``.

        Args:
            group: Number of the group.
            ahead: 0 for the episodes under way, 1 for those after them.
        """
        told = self._told[self.slots_of(group)]
        return np.array([episodes[ahead].player is Player.SCRIPTED for episodes in told])

    def check(self, step: Step) -> list[int]:
        """Hold a request to the assignments; episodes that ended give way to the next ones.

        Returns:
            The slots whose episode ended.

        Raises:
            ViolationError: A bot's row asks, another does not, or seats end apart.
        """
        slots = self.slots_of(step.group)
        rows = slots.stop - slots.start
        asks = np.ones(rows, np.bool_) if step.asks is None else step.asks
        ended = np.zeros(rows, np.bool_)
        if step.terminated is not None and step.truncated is not None:
            ended = step.terminated | step.truncated
        gone = [slots.start + row for row in np.flatnonzero(ended).tolist()]
        for slot in gone:
            self._told[slot].pop(0)
        self._awaits_reset[gone] = True
        if not (gone and not asks.any()):  # a farewell may end anything
            self._check_environments(step.group, step.request, asks, ended)
        return gone

    def tell(self, slots: Sequence[int], assignments: Iterable[SeatAssignment]) -> None:
        """Take the assignments that go with an answer.

        Args:
            slots: Whose episodes ended in the request.
            assignments: Those of the answer.

        Raises:
            ViolationError: They are not the episode after the next of exactly these slots.
        """
        told = {assignment.slot: assignment for assignment in assignments}
        wanted = {slot: self._told[slot][-1].episode + 1 for slot in slots}
        found = {slot: assignment.episode for slot, assignment in told.items()}
        if found != wanted:
            text = f"told of the episodes {found} by slot, expected {wanted}"
            raise ViolationError(("P67",), text)
        for slot, assignment in told.items():
            self._told[slot].append(assignment)

    def _check_environments(
        self, group: int, request: int, asks: BoolArray, ended: BoolArray
    ) -> None:
        slots = self.slots_of(group)
        scripted = self.are_scripted(group)
        environments = self._environments[slots]
        for environment in np.unique(environments).tolist():
            rows = environments == environment
            at = f"request {request} of group {group}, environment {environment}"
            if ended[rows].any() and not ended[rows].all():
                raise ViolationError(("P69",), f"{at}: some seats end and others do not")
            if (asks & scripted)[rows].any():
                raise ViolationError(("P68",), f"{at}: the row of a bot asks")
            awaits = self._awaits_reset[slots][rows].any()
            is_silent = not asks[rows].any()
            if not (asks | scripted)[rows].all() and not (is_silent and awaits):
                raise ViolationError(("P68",), f"{at}: a row that no bot plays does not ask")
            if not is_silent:
                self._awaits_reset[slots] &= ~rows


def environments_of(hello: Hello) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Environment of each slot. Shape ``(n,)``."""
    own = np.arange(hello.num_slots)
    return own if hello.environments is None else np.asarray(hello.environments)


def seats_of(hello: Hello) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Seat of each slot in its environment. Shape ``(n,)``."""
    return np.zeros(hello.num_slots, int) if hello.seats is None else np.asarray(hello.seats)
