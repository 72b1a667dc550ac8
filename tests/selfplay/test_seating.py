"""When snapshots begin and cease to play."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from royale_client.wire.messages import Hello
from royale_client.wire.seating import seating_features
from royale_server.config import Pair, ServerConfig
from royale_server.endpoint.seating import Seating
from royale_server.scheduler import Group, Request, Role, Scheduler, SchedulerConfig
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import ACTION, OBSERVATION

PAIR = Pair(policy="-", policy_variant="-", algo="-", algo_variant="-")


class Keeper:
    """Where the weights would be: notes what it is told."""

    def __init__(self, *snapshots: int) -> None:
        self.snapshots = snapshots
        self.told: list[str] = []
        self.events: list[str] = []
        self.learner = SimpleNamespace(evaluates=False, policy_version=0)
        self.opponents = SimpleNamespace(
            seat=lambda version: self.told.append(f"seat {version}"),
            unseat=lambda version: self.told.append(f"unseat {version}"),
            forget=lambda versions: self.told.extend(f"forget {v}" for v in versions),
        )

    def event(self, kind: str, message: str, **facts: object) -> None:
        self.events.append(f"{kind}: {message}")

    def pin(self, code: int, *, greedy: bool) -> None:
        """Rounds of evaluation have weights of their own, which are no snapshots."""

    def unpin(self, codes: list[int]) -> None:
        """See `pin`."""

    def take_snapshot(self, version: int) -> None:
        self.told.append(f"take {version}")


def seating(keeper: Keeper, **settings: Any) -> Seating:
    selfplay = SelfPlayConfig(**{"mix": "pool=1", "pool_size": 3, **settings})
    config = ServerConfig(pair=PAIR, policy=None, algo=None, selfplay=selfplay)
    return Seating(
        config,
        keeper,  # type: ignore[arg-type]
        lambda job: job(),
        keeper.event,
        evaluated=lambda round_, is_last: None,
    )


def join(tables: Seating, scheduler: Scheduler | None = None, **changes: Any) -> Group:
    """A client with two battles."""
    features = ("snapshot", *seating_features(()))
    hello = Hello(
        client_name="a",
        process_id="p",
        env_id="Duel-v0",
        observation_space=OBSERVATION,
        action_space=ACTION,
        groups=(4,),
        environments=np.array([0, 0, 1, 1]),
        seats=np.array([0, 1, 0, 1]),
        **{"features": features, **changes},
    )
    scheduler = scheduler or Scheduler(SchedulerConfig(), target=100)
    member = scheduler.join("a", Role(hello.role), (4,), 0.0)
    tables.joined(member, hello, 0)
    return member.groups[0]


def all_end(tables: Seating, group: Group) -> None:
    """Every episode ends, and the answer is sent."""
    request = Request(
        number=1, asks=np.zeros(4, np.bool_), ended=np.ones(4, np.bool_), has_feedback=True
    )
    tables.requested(group, request)
    group.episodes = group.episodes + 1
    tables.unsent(group)


def test_who_may_play_changes_with_learn_steps_alone() -> None:
    keeper = Keeper()
    tables = seating(keeper, snapshot_every=2)
    group = join(tables)
    tables.learned(1)
    assert keeper.told == []
    tables.learned(2)
    assert keeper.told == ["take 2", "seat 2"]
    all_end(tables, group)  # the episodes after the next are played against 2
    tables.learned(4)
    assert keeper.told[2:] == ["take 4", "seat 4"]
    tables.learned(6)
    assert keeper.told[4:] == ["take 6"]  # 2 is to make place, and has battles to finish
    for _ in range(3):
        all_end(tables, group)
    assert keeper.told[5:] == []  # it has finished them, whenever that was heard
    tables.learned(7)
    assert keeper.told[5:] == ["unseat 2", "seat 6"]
    kept = "opponent_kept: the policy of version {} is kept as an opponent"
    assert keeper.events == [kept.format(version) for version in (2, 4, 6)]


def test_snapshots_are_taken_only_where_somebody_plays_them() -> None:
    keeper = Keeper()
    tables = seating(keeper, snapshot_every=1)
    join(tables, features=("snapshot",))  # follows no assignments
    join(tables, role="eval")
    tables.learned(1)
    assert keeper.told == []


def test_a_run_resumed_without_its_clients_lets_its_newest_snapshot_play() -> None:
    keeper = Keeper(3, 5, 7)
    seating(keeper)
    assert keeper.told[0] == "seat 7"
    assert len(keeper.told) == 2


def test_a_client_that_left_holds_no_snapshot() -> None:
    keeper = Keeper(3, 4)
    tables = seating(keeper, snapshot_every=1)
    assert keeper.told == ["seat 4", "seat 3"]
    scheduler = Scheduler(SchedulerConfig(), target=100)
    clients = [join(tables, scheduler).member for _ in range(4)]
    tables.learned(5)
    assert keeper.told[2:] == ["take 5"]  # 4 is to make place for it, and somebody plays against 4
    for client in clients:
        scheduler.leave(client, 0.0)
    tables.learned(6)
    assert keeper.told[3:5] == ["take 6", "unseat 4"]


def test_a_client_without_bots_is_named_where_bots_are_to_play() -> None:
    keeper = Keeper()
    join(seating(keeper, mix="pool=0.5,scripted=0.5"))
    assert keeper.events == [
        "no_bots: client a offers no scripted bots: the policy plays those battles itself"
    ]
