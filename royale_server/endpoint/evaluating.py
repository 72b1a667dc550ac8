"""Clients of role ``eval``: joins the desks of evaluation with clients and engine.

Tells those whose seats the server assigns who plays, says in requests which pinned policy each row
is for, and passes on the rounds that are complete. What is played is ``evaluation``'s; clients that
follow no assignments are ``evaluating_alone``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from royale_client.wire.messages import Hello, Step
from royale_client.wire.seating import ASSIGNMENTS, offered_bots, write_assignments
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import RefusedError
from royale_server.endpoint.evaluating_alone import EvaluationAlone, played_by
from royale_server.endpoint.pinning import Pins
from royale_server.evaluation.desk import RESULT_METRICS, EvaluationDesk, Round, result_of
from royale_server.evaluation.episodes import EpisodeDesk, EpisodeRound
from royale_server.model.engine import Engine
from royale_server.scheduler import Group, Member, Request, Role
from royale_server.selfplay.book import LEARNER, NOWHERE, Layout, SeatBook
from royale_server.selfplay.pool import Pool

logger = logging.getLogger(__name__)

Data = tuple[dict[str, Any], ...]
SEATS = 2


class Complete(Protocol):
    """Takes a complete round."""

    def __call__(self, round_: Round | EpisodeRound, *, is_last: bool) -> None:
        """Args: the round, and whether no other follows."""


class Evaluation:
    """Who plays which evaluation episode of whose environments.

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
        self._complete = complete
        self._only = engine.learner.evaluates
        self._desk = EvaluationDesk(config.evaluate, seed=config.seed, once=self._only)
        self._episodes = EpisodeDesk(config.evaluate, once=self._only)
        self._book = SeatBook(self._desk, Pool(config.selfplay, seed=config.seed))
        self._layouts: dict[Member, Layout] = {}
        self._pins = Pins(engine, submit, self._in_use)
        self._alone = EvaluationAlone(
            self._episodes, self._pins, greedy=config.evaluate.is_greedy_alone
        )

    def _in_use(self) -> set[int]:
        return self._desk.in_use() | self._episodes.in_use()

    def __contains__(self, member: Member) -> bool:
        return member in self._layouts or member in self._alone

    # --- clients ----------------------------------------------------------------------------

    def add_slots(self, count: int) -> None:
        """Follow further slots of the run, in the order in which they are numbered."""
        self._book.add_slots(count)
        self._pins.add_slots(count)
        self._alone.add_slots(count)

    def learned(self, version: int) -> None:
        """A learn step is done."""
        self._episodes.learned(version)

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
        if not is_seated(hello):
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
        if not is_seated(hello):
            self._alone.joined(member, hello)
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
        if group.member in self._alone:
            for done in self._alone.requested(group, request):
                self._complete(done, is_last=self._is_done)
            return
        member, start, ended = group.member, group.start, request.ended
        if ended.any():
            self._let_go()
            self._book.ended(member, start, ended, request.asks, group.episodes)
            self._take_results(group, request)
        self._book.check_asking(start, request.asks)
        seats = self._book.seats(group.slots)
        pins = self._pins.of(group.slots)
        request.seats = pins if seats is None else np.where(seats == LEARNER, pins, seats)

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
            self._complete(done, is_last=self._is_done)

    @property
    def _is_done(self) -> bool:
        """Whether no round follows in any kind of environment that has taken part."""
        return all(desk.is_done for desk in (self._desk, self._episodes) if desk.has_begun)

    def _begin(self, member: Member, environment: int, episode: int) -> None:
        """A battle begins: its rows are for the policy that its round has pinned."""
        round_ = self._desk.round_of(_key(member), environment, episode)
        slots = self._layouts[member].slots[environment] + member.groups[0].start
        self._pins.play(round_, slots, greedy=self._config.is_greedy_in_battles)

    def players(self, group: Group, step: Step) -> dict[int, dict[str, Any]]:
        """Who played the episodes that a step reports as ended, by row, before `requested`."""
        if group.member in self._alone:
            return self._alone.players(group, step)
        described: dict[int, dict[str, Any]] = {}
        member, layout = group.member, self._layouts[group.member]
        offset = group.start - member.groups[0].start
        for row in (record["row"] for record in step.episodes):
            environment = int(layout.environment[row + offset])
            episode = int(group.episodes[row])
            round_ = self._desk.round_of(_key(member), environment, episode)
            played = played_by(round_)
            if row + offset == layout.slots[environment][environment % SEATS]:
                described[row] = {**played, "opponent": round_.opponent}
            else:
                described[row] = {"player": round_.opponent, "opponent": played["player"]}
        return described

    def unsent(self, group: Group) -> Data:
        """Return the assignments that go with the answer to a group."""
        if group.member in self._alone:
            return ()
        told = self._book.take_unsent(group.member, group.start, group.episodes)
        return write_assignments(told)


def is_seated(hello: Hello) -> bool:
    """Whether the server assigns the seats of this client, to play rounds of battles."""
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
