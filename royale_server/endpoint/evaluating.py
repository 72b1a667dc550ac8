"""Clients of role ``eval`` whose seats the server assigns: joins the desk with clients and engine.

Tells them who plays, says in their requests which pinned policy each row is for, has weights
pinned and let go, and passes on the rounds that are complete. What is played is ``evaluation``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from royale_client.wire.messages import Hello, Step
from royale_client.wire.seating import ASSIGNMENTS, offered_bots, write_assignments
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import RefusedError
from royale_server.evaluation.desk import RESULT_METRICS, EvaluationDesk, Round, result_of
from royale_server.model.engine import Engine
from royale_server.scheduler import Group, Member, Request, Role
from royale_server.selfplay.book import LEARNER, NOWHERE, Layout, SeatBook
from royale_server.selfplay.pool import Pool

logger = logging.getLogger(__name__)

Data = tuple[dict[str, Any], ...]
SEATS = 2


class Complete(Protocol):
    """Takes a complete round."""

    def __call__(self, round_: Round, *, is_last: bool) -> None:
        """Args: the round, and whether no other follows."""


class Evaluation:
    """Who plays which evaluation battle of whose environments.

    Args:
        config: Settings of the server.
        engine: Where pinned policies live; only its jobs are made here.
        submit: Has the model thread do a job, after those before it.
        complete: Takes complete rounds.
    """

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        submit: Callable[[Callable[[], None]], None],
        complete: Complete,
    ) -> None:
        self._config = config.evaluate
        self._engine = engine
        self._submit = submit
        self._complete = complete
        self._only = engine.learner.evaluates
        self._desk = EvaluationDesk(config.evaluate, seed=config.seed, once=self._only)
        self._book = SeatBook(self._desk, Pool(config.selfplay, seed=config.seed))
        self._layouts: dict[Member, Layout] = {}
        self._pins = np.zeros(0, np.int64)
        """What stands for the pinned policy that plays each slot."""
        self._pinned: set[int] = set()

    def __contains__(self, member: Member) -> bool:
        return member in self._layouts

    # --- clients ----------------------------------------------------------------------------

    def add_slots(self, count: int) -> None:
        """Follow further slots of the run, in the order in which they are numbered."""
        self._book.add_slots(count)
        self._pins = np.concatenate([self._pins, np.zeros(count, np.int64)])

    def check(self, hello: Hello) -> None:
        """Refuse a client that cannot play the rounds.

        Raises:
            RefusedError: Saying what it lacks.
        """
        if Role(hello.role) is Role.TRAIN:
            if self._only:
                raise RefusedError(
                    "this server evaluates a policy and trains none",
                    where="hello.role",
                    got="train",
                    expected="eval",
                    remedy="start the client with --role eval",
                )
            return
        if not takes_part(hello):
            self._refuse_unseated()
            return
        self._check_seats(hello)
        offered = offered_bots(hello.features)
        lacking = [name for name in self._config.bots if name not in offered]
        if lacking:
            raise RefusedError(
                f"the client has no scripted bot named {' or '.join(lacking)}",
                where="hello.features",
                got=f"{', '.join(offered) or 'no bots'}",
                expected=f"{', '.join(self._config.bots)} of --evaluate.against",
                remedy="name bots that the client offers, or run a client that offers these",
            )

    def _refuse_unseated(self) -> None:
        if self._only:
            raise RefusedError(
                "rounds are played in environments of two seats that the server assigns",
                where="hello.features",
                got="no assignments",
                expected=ASSIGNMENTS,
                remedy="run a client such as royale-env-client arena --role eval",
            )

    @staticmethod
    def _check_seats(hello: Hello) -> None:
        table = _layout(hello, "").table
        if len(table.seats) % 2 or set(table.seats) != {SEATS}:
            raise RefusedError(
                "every deal is played from both sides, in two environments of two seats",
                where="hello.environments",
                got=f"{len(table.seats)} environments of {sorted(set(table.seats))} seats",
                expected="an even number of environments of 2 seats",
                remedy="start the client with an even --num-envs",
            )
        declared = {metric.name for metric in hello.episode_metrics}
        if not declared.issuperset(RESULT_METRICS):
            raise RefusedError(
                "the environment does not say who won",
                where="hello.episode_metrics",
                got=", ".join(sorted(declared)[:8]) or "none",
                expected=" and ".join(RESULT_METRICS),
                remedy="declare these episode metrics as ratios: (won, decided), (drawn, ended)",
            )

    def joined(self, member: Member, hello: Hello, episode: int) -> Data:
        """A client takes part; return the assignments of its welcome."""
        if not takes_part(hello):
            return ()
        self._let_go()
        layout = self._layouts[member] = _layout(hello, _key(member))
        first = member.groups[0].start
        told = self._book.welcome(member, layout, first, episode)
        self._book.begin_afresh(member)
        for environment in range(len(layout.slots)):
            self._begin(member, environment, episode)
        return write_assignments(told)

    def _let_go(self) -> None:
        """Deal again what clients that are gone did not finish."""
        for member in [m for m in self._layouts if m.ended]:
            del self._layouts[member]
            self._desk.left(_key(member))
            first = member.groups[0].start
            self._book.leave(member, slice(first, first + member.size))

    # --- requests ---------------------------------------------------------------------------

    def requested(self, group: Group, request: Request) -> None:
        """Take results, and say in a request which policy each row is for from now on.

        Raises:
            ContractError: The client does not follow its assignments.
        """
        member, start, ended = group.member, group.start, request.ended
        if ended.any():
            self._let_go()
            self._book.ended(member, start, ended, request.asks, group.episodes)
            self._take_results(group, request)
        self._book.check_asking(start, request.asks)
        seats = self._book.seats(group.slots)
        pins = self._pins[group.slots]
        request.seats = pins.copy() if seats is None else np.where(seats == LEARNER, pins, seats)

    def _take_results(self, group: Group, request: Request) -> None:
        member, layout = group.member, self._layouts[group.member]
        step: Step = request.payload
        offset = group.start - member.groups[0].start
        results = {r["row"] + offset: result_of(r.get("metrics", {})) for r in step.episodes}
        over = layout.environment[offset + request.ended.nonzero()[0]]
        for environment in np.unique(over[over != NOWHERE]).tolist():
            slot = int(layout.slots[environment][environment % SEATS])
            episode = int(group.episodes[slot - offset])
            self._over(member, environment, episode, results.get(slot))

    def _over(self, member: Member, environment: int, episode: int, result: int | None) -> None:
        done = self._desk.over(_key(member), environment, episode, result)
        self._begin(member, environment, episode + 1)
        if done is not None:
            self._complete(done, is_last=self._desk.is_done)

    def _begin(self, member: Member, environment: int, episode: int) -> None:
        """A battle begins: its rows are for the policy that its round has pinned."""
        round_ = self._desk.round_of(_key(member), environment, episode)
        self._pin(round_)
        slots = self._layouts[member].slots[environment] + member.groups[0].start
        self._pins[slots] = round_.code

    def _pin(self, round_: Round) -> None:
        if round_.code in self._pinned:
            return
        idle = self._pinned - self._desk.in_use()
        self._pinned = (self._pinned - idle) | {round_.code}
        self._submit(partial(_pin, self._engine, round_, sorted(idle)))

    def players(self, group: Group, step: Step) -> dict[int, dict[str, str]]:
        """Who played the episodes that a step reports as ended, by row, before `requested`."""
        described: dict[int, dict[str, str]] = {}
        member, layout = group.member, self._layouts[group.member]
        offset = group.start - member.groups[0].start
        for row in (record["row"] for record in step.episodes):
            environment = int(layout.environment[row + offset])
            episode = int(group.episodes[row])
            round_ = self._desk.round_of(_key(member), environment, episode)
            names = (f"version {round_.version}", round_.opponent)
            is_policy = row + offset == layout.slots[environment][environment % SEATS]
            player, opponent = names if is_policy else names[::-1]
            described[row] = {"player": player, "opponent": opponent}
        return described

    def unsent(self, group: Group) -> Data:
        """Return the assignments that go with the answer to a group."""
        told = self._book.take_unsent(group.member, group.start, group.episodes)
        return write_assignments(told)


def takes_part(hello: Hello) -> bool:
    """Whether rounds are played with this client."""
    return (
        Role(hello.role) is Role.EVAL
        and ASSIGNMENTS in hello.features
        and bool(_layout(hello, "").slots)
    )


def _layout(hello: Hello, name: str) -> Layout:
    numbers = np.arange(hello.num_slots)
    environments = numbers if hello.environments is None else hello.environments
    seats = np.zeros_like(numbers) if hello.seats is None else hello.seats
    return Layout.of(name, environments, seats, offered_bots(hello.features))


def _key(member: Member) -> str:
    """Name a session: a client that comes back has deals of its own."""
    return f"{member.number} {member.name}"


def _pin(engine: Engine, round_: Round, idle: list[int]) -> None:
    """On the model thread: copy the weights as they are now, and note their version."""
    engine.unpin(idle)
    engine.pin(round_.code)
    round_.version = engine.learner.policy_version
