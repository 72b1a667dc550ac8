"""Clients of role ``eval`` whose seats nobody assigns: the policy plays all of them by itself.

Says in their requests which pinned policy each row is for, and passes on the rounds that are
complete. Which episode counts for which round is ``evaluation.episodes``'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from royale_client.wire.messages import Hello, Step
from royale_server.endpoint.pinning import PinnedRound, Pins
from royale_server.evaluation.episodes import EpisodeDesk, EpisodeRound
from royale_server.scheduler import Group, Member, Request


class EvaluationAlone:
    """Episodes of evaluation rounds, slot by slot.

    Args:
        desk: Says which episode counts for which round.
        pins: Who plays each slot.
        greedy: Whether the policy takes its most likely actions.
    """

    def __init__(self, desk: EpisodeDesk, pins: Pins, *, greedy: bool) -> None:
        self._desk = desk
        self._pins = pins
        self._greedy = greedy
        self._env_ids: dict[Member, str] = {}
        self._asked = np.zeros(0, np.int64)
        """Actions that each slot has asked for in its running episode."""
        self._is_first = np.zeros(0, np.bool_)
        """Whether a slot's running episode is its first in the session."""

    def __contains__(self, member: Member) -> bool:
        return member in self._env_ids

    def add_slots(self, count: int) -> None:
        """Follow further slots of the run, in the order in which they are numbered."""
        self._asked = np.concatenate([self._asked, np.zeros(count, np.int64)])
        self._is_first = np.concatenate([self._is_first, np.ones(count, np.bool_)])

    def joined(self, member: Member, hello: Hello) -> None:
        """A client takes part."""
        self._let_go()
        self._env_ids[member] = hello.env_id
        first = member.groups[0].start
        for slot in range(first, first + member.size):
            self._begin(member, slot)

    def requested(self, group: Group, request: Request) -> list[EpisodeRound]:
        """Take returns, and say in a request which policy each row is for from now on.

        Returns:
            The rounds that are complete by it.
        """
        done = self._take_results(group, request) if request.ended.any() else []
        self._asked[group.slots] += request.asks
        request.seats = self._pins.of(group.slots)
        return done

    def players(self, group: Group, step: Step) -> dict[int, dict[str, Any]]:
        """Who played the episodes that a step reports as ended, by row, before `requested`."""
        rows = [record["row"] for record in step.episodes]
        return {
            row: played_by(self._desk.round_of(group.member, group.start + row)) for row in rows
        }

    def _take_results(self, group: Group, request: Request) -> list[EpisodeRound]:
        self._let_go()
        step: Step = request.payload
        records = {record["row"]: record for record in step.episodes}
        done = []
        for row in request.ended.nonzero()[0].tolist():
            slot = group.start + row
            record = records.get(row)
            is_whole = record is not None and self._is_whole(slot, record["length"])
            result = (record["return"], record["length"]) if record and is_whole else None
            complete = self._desk.over(group.member, slot, result)
            self._is_first[slot] = False
            self._begin(group.member, slot)
            if complete is not None:
                done.append(complete)
        return done

    def _is_whole(self, slot: int, length: int) -> bool:
        """Whether an episode was played in this session from its begin.

        A client that lost its session goes on with its episode in the next one: then the record
        tells of more steps than were asked for here.
        """
        return not self._is_first[slot] or length <= self._asked[slot]

    def _begin(self, member: Member, slot: int) -> None:
        self._asked[slot] = 0
        round_ = self._desk.begin(member, slot, self._env_ids[member])
        self._pins.play(round_, slice(slot, slot + 1), greedy=self._greedy)

    def _let_go(self) -> None:
        """Have others play what clients that are gone did not finish."""
        for member in [m for m in self._env_ids if m.ended]:
            del self._env_ids[member]
            self._desk.left(member)


def played_by(round_: PinnedRound) -> dict[str, Any]:
    """Describe who played an episode, for its record."""
    return {
        "player": f"version {round_.version}",
        "first_policy_version": round_.version,
        "last_policy_version": round_.version,
    }
