"""Self-play at the server: joins the book of seats and the pool with clients and the model thread.

Tells clients who plays, tells the scheduler whose rows are whose, and the engine which snapshots to
keep and to let play. Decides none of it: see ``royale_server.selfplay``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from royale_client.wire.messages import Hello, Step
from royale_client.wire.seating import ASSIGNMENTS, offered_bots, write_assignments
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import RefusedError
from royale_server.endpoint.evaluating import Complete, Evaluation
from royale_server.model.engine import Engine
from royale_server.model.opponents import Opponents
from royale_server.scheduler import Group, Member, Request, Role
from royale_server.selfplay.assignment import AssignmentSource
from royale_server.selfplay.book import Layout, SavedSeating, SeatBook
from royale_server.selfplay.pool import Pool, PoolChange

logger = logging.getLogger(__name__)

Job = Callable[[], None]
Event = Callable[..., None]
Data = tuple[dict[str, Any], ...]


class Seating:
    """Who plays which seat of whose environments.

    Args:
        config: Settings of the server.
        engine: Where snapshots live; only its jobs are made here.
        submit: Has the model thread do a job, after those before it.
        event: Takes what a person should be able to read in the events of the run.
        evaluated: Takes complete rounds of evaluation.
        saved: What a checkpoint knew, and who plays each slot in it.
    """

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        submit: Callable[[Job], None],
        event: Event,
        *,
        evaluated: Complete,
        saved: tuple[SavedSeating, np.ndarray[Any, np.dtype[np.int64]]] | None = None,
    ) -> None:
        self._config = config.selfplay
        self._engine = engine
        self._submit = submit
        self._event = event
        self._pool = Pool(
            self._config,
            seed=config.seed,
            entries=engine.snapshots,
            state=None if saved is None else saved[0].pool,
        )
        self._book = SeatBook(AssignmentSource(self._config, seed=config.seed), self._pool)
        self._members: dict[Member, slice] = {}
        self._evaluation = Evaluation(config, engine, submit, evaluated)
        if saved is not None:
            self._book.load(*saved)
            self._evaluation.add_slots(len(saved[1]))
            self._carry_out(PoolChange(seat=self._pool.state().residents))
        else:
            self._carry_out(self._settled())

    @property
    def _keeps_pool(self) -> bool:
        return bool(self._config.shares["pool"])

    # --- clients ----------------------------------------------------------------------------

    def expect(self, members: Collection[Member]) -> None:
        """Keep the seats of clients of a checkpoint until they are back."""
        for member in members:
            self._members[member] = _slots(member)

    def joined(self, member: Member, hello: Hello, episode: int) -> Data:
        """A client with new slots takes part; return the assignments of its welcome."""
        self._book.add_slots(member.size)
        self._evaluation.add_slots(member.size)
        if member.role is Role.EVAL:
            return self._evaluation.joined(member, hello, episode)
        told = self.came_back(member, hello, episode)
        if member in self._book:
            self._book.begin_afresh(member)
        return told

    def came_back(self, member: Member, hello: Hello, episode: int) -> Data:
        """A client takes its place again; return what it is told should it begin afresh.

        Args:
            member: Its part in the run.
            hello: Its hello.
            episode: Ordinal of the first episode if it does.
        """
        layout = self._layout(member.name, hello)
        if not layout.slots:
            self._book.leave(member, _slots(member))
            return ()
        self._members[member] = _slots(member)
        return write_assignments(
            self._book.welcome(member, layout, member.groups[0].start, episode)
        )

    def check(self, hello: Hello) -> None:
        """Refuse a client that does not offer the bots that this run names, or has no role in it.

        Raises:
            RefusedError: Naming what it lacks.
        """
        self._evaluation.check(hello)
        if ASSIGNMENTS not in hello.features or Role(hello.role) is not Role.TRAIN:
            return
        offered = offered_bots(hello.features)
        lacking = [name for name in self._config.scripted if name not in offered]
        if lacking:
            raise RefusedError(
                f"the client has no scripted bot named {' or '.join(lacking)}",
                where="hello.features",
                got=f"{', '.join(offered) or 'no bots'}",
                expected=f"{', '.join(self._config.scripted)} of --selfplay.scripted",
                remedy="name bots that the client offers, or run a client that offers these",
            )

    def _layout(self, name: str, hello: Hello) -> Layout:
        """Which seats the client's slots are; none if it follows no assignments."""
        numbers = np.arange(hello.num_slots)
        if Role(hello.role) is not Role.TRAIN or ASSIGNMENTS not in hello.features:
            return Layout.of(name, numbers, numbers, ())
        environments = numbers if hello.environments is None else hello.environments
        seats = np.zeros_like(numbers) if hello.seats is None else hello.seats
        bots = self._config.scripted or offered_bots(hello.features)
        layout = Layout.of(name, environments, seats, bots)
        if layout.slots and self._config.shares["scripted"] and not bots:
            text = f"client {name} offers no scripted bots: the policy plays those battles itself"
            logger.warning("%s", text)
            self._event("no_bots", text, client=name)
        return layout

    def restarted(self, member: Member) -> None:
        """The episodes of a client that is back begin anew."""
        if member in self._book:
            self._book.begin_afresh(member)

    def returned(self, member: Member) -> None:
        """The episodes of a client that is back go on where they were."""
        if member in self._book:
            self._book.go_on(member)

    # --- requests ---------------------------------------------------------------------------

    def requested(self, group: Group, request: Request) -> None:
        """Say in a request whose rows are whose from now on.

        Raises:
            ContractError: The client does not follow its assignments.
        """
        if group.member in self._evaluation:
            self._evaluation.requested(group, request)
        if group.member not in self._book:
            return
        start, ended = group.start, request.ended
        if ended.any():
            self._book.ended(group.member, start, ended, request.asks, group.episodes)
        self._book.check_asking(start, request.asks)
        request.seats = self._book.seats(group.slots)

    def players(self, group: Group, step: Step) -> dict[int, dict[str, Any]]:
        """Who played the episodes that a step reports as ended, by row. Call it before `requested`.

        Empty for clients that follow no assignments.
        """
        book, member = self._book, group.member
        if step.episodes and member in self._evaluation:
            return self._evaluation.players(group, step)
        if member not in book or not step.episodes:
            return {}
        rows = [record["row"] for record in step.episodes]
        return {
            row: {
                "player": book.describe(group.start + row),
                "opponent": book.opponent_of(member, group.start + row),
            }
            for row in rows
        }

    def unsent(self, group: Group) -> Data:
        """Return the assignments that go with the answer to a group."""
        if group.member in self._evaluation:
            return self._evaluation.unsent(group)
        if group.member not in self._book:
            return ()
        return write_assignments(self._book.take_unsent(group.member, group.start, group.episodes))

    # --- snapshots of the policy --------------------------------------------------------------

    def learned(self, version: int) -> None:
        """A learn step is done: take a snapshot if one is due, and see who may play now.

        Rounds of evaluation learn of it, too.

        Who may play changes here and nowhere else. When episodes end, and in which order clients
        say so, is chance; by a learn step of a run with fixed rounds every group has said it.
        """
        self._evaluation.learned(version)
        is_due = version % self._config.snapshot_every == 0
        if is_due and self._keeps_pool and self._book.clients:
            self._submit(partial(self._engine.take_snapshot, version))
            text = f"the policy of version {version} is kept as an opponent"
            self._event("opponent_kept", text, version=version)
            self._carry_out(self._pool.add(version, self._in_use()))
        else:
            self._carry_out(self._settled())

    def _settled(self) -> PoolChange:
        if self._keeps_pool:
            return self._pool.settle(self._in_use())
        # A run that is resumed without a pool may have battles under way against its snapshots.
        return self._pool.wind_up(self._in_use())

    def _in_use(self) -> set[int]:
        for member in [m for m in self._members if m.ended]:
            self._book.leave(member, self._members.pop(member))
        return self._book.in_use()

    def _carry_out(self, change: PoolChange) -> None:
        if change != PoolChange():
            opponents = self._engine.opponents
            self._submit(partial(_change, opponents, change))

    # --- checkpoints --------------------------------------------------------------------------

    def state(self) -> SavedSeating:
        """Copy what decides the future, at rest."""
        return self._book.state()


def _change(opponents: Opponents, change: PoolChange) -> None:
    for version in change.unseat:
        opponents.unseat(version)
    for version in change.seat:
        opponents.seat(version)
    opponents.forget(change.forget)


def _slots(member: Member) -> slice:
    first = member.groups[0].start
    return slice(first, first + member.size)
