"""Restarts of the simulated server: what is saved at a rest, and how its clients come back.

The process ends at a rest point. Another one loads what was saved; clients that were saved are
awaited and come back as the plan's fates say, all others join anew.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING

from royale_server.scheduler import Member, Role, SchedulerState
from tests.scheduler.actors import Client, begin_afresh

if TYPE_CHECKING:
    from tests.scheduler.world import World

ASK_AGAIN_S = 0.05
LATE_S = 1.0
"""Beyond the first-step time-out of the random plans."""
AWAITED_FOR_EVER_S = 1.5
"""When a client comes back after all that an ordered run never ceases to await."""


class Restarts:
    """Ends the scheduler of a world at a rest point, and begins another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_asked = False
        self._state: SchedulerState | None = None
        self.count = 0
        self.came: Counter[str] = Counter()
        """How often clients came back, by the way in which they did."""

    def ask(self) -> None:
        """Save and end at the next rest point."""
        world = self._world
        dispatcher = world.scheduler.dispatcher
        has_begun = dispatcher.started or not dispatcher.is_ordered
        if self._is_asked or world.is_rested or not has_begun:
            world.at(ASK_AGAIN_S, self.ask)
            return
        self._is_asked = True
        world.ask_for_rest()

    def rested(self) -> bool:
        """Save if that was asked for. Says whether this process ends."""
        if self._is_asked and self._state is None:
            self._state = deepcopy(self._world.scheduler.state())
            self._world.at(0.0, self._restart)
        return self._is_asked

    def _restart(self) -> None:
        world, state = self._world, self._state
        assert state is not None
        self._is_asked, self._state = False, None
        self.count += 1
        scheduler = world.begin_process()
        members = {member.name: member for member in scheduler.load(state, world.now)}
        world.books.restart(scheduler.ledger, state.books.cells.tolist())
        for client in list(world.clients):
            saved = members.get(client.member.name)
            if saved is not None:
                self._await(client, saved)
            elif not client.is_gone:
                self._join_anew(client)
        world.advance()

    def _join_anew(self, client: Client) -> None:
        """Nothing was saved of it: to the new server it is somebody new."""
        world = self._world
        client.is_gone = True
        delay = world.timing.random() * world.plan.return_s
        if client.role is Role.EVAL:
            world.at(delay, world.meet, client.index + 100, client.sizes, Role.EVAL)
        elif not (world.plan.silent_group and client.index == 0):
            world.come_back(client, delay)

    def _await(self, client: Client, member: Member) -> None:
        world = self._world
        was_gone, client.is_gone = client.is_gone, False
        client.member, client.is_absent = member, True
        for cg, group in zip(client.groups, member.groups, strict=True):
            cg.group = group
            world.by_group[group] = cg
        fate = "expired" if was_gone else world.timing.choice(world.plan.fates)
        delay = world.timing.random() * (LATE_S if fate == "late" else world.plan.return_s)
        if fate == "expired":
            delay = AWAITED_FOR_EVER_S
        world.at(max(delay, client.hung_until - world.now), self._come, client, member, fate)

    def _come(self, client: Client, member: Member, fate: str) -> None:
        if client.member is not member:
            return  # the server was restarted again
        self.came["too late" if member.ended else fate] += 1
        if member.ended:
            return  # its place was given away, and it came as somebody new
        client.is_absent = False
        how = {"fresh": self._begin_afresh, "changed": self._come_as_another}
        how.get(fate, self._come_back)(client, member)
        self._world.advance()

    def _come_back(self, _client: Client, member: Member) -> None:
        self._world.scheduler.returned(member, self._world.now)

    def _begin_afresh(self, client: Client, member: Member) -> None:
        world = self._world
        world.scheduler.restart(member, world.now)
        for cg in client.groups:
            begin_afresh(cg)
            world.forget_punctuality(cg.group)
            world.at(world.timing.random() * 0.01, world.step, cg)

    def _come_as_another(self, client: Client, member: Member) -> None:
        world = self._world
        client.is_gone = True
        world.scheduler.leave(member, world.now)
        world.meet(client.index + 100, client.sizes[::-1], Role.TRAIN)
