"""Who sits where: exact counts, keyed layouts, and what one thing does not change of another."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from royale_server.selfplay.assignment import MIRROR, Assignment, AssignmentSource, Table
from royale_server.selfplay.config import SelfPlayConfig

MIXES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(
    lambda parts: (min(parts) * 5, (max(parts) - min(parts)) * 5, (20 - max(parts)) * 5)
)
"""Shares of mirror, pool and scripted in percent, adding up to 100."""
NAMES = st.text("abc-", min_size=1, max_size=4)
SNAPSHOTS = st.lists(st.integers(1, 99), min_size=1, max_size=3, unique=True)
BOTS = ("random", "heuristic")


def source(mix: tuple[int, int, int], seed: int = 0) -> AssignmentSource:
    mirror, pool, scripted = (share / 100 for share in mix)
    text = f"mirror={mirror},pool={pool},scripted={scripted}"
    return AssignmentSource(SelfPlayConfig(mix=text), seed=seed)


def table(client: str = "a", environments: int = 20, bots: tuple[str, ...] = BOTS) -> Table:
    return Table(client=client, seats=(2,) * environments, bots=bots)


def dealt(
    cards: AssignmentSource, where: Table, episode: int, snapshots: tuple[int, ...] = (7,)
) -> list[Assignment]:
    return [cards.assign(where, i, episode, snapshots) for i in range(len(where.seats))]


def kind(assignment: Assignment) -> str:
    if assignment.snapshot is not None:
        return "pool"
    return "mirror" if assignment.bot is None else "scripted"


def half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


@settings(deadline=None, max_examples=60)
@given(mix=MIXES, environments=st.integers(1, 40), seed=st.integers(0, 9), episodes=st.just(6))
def test_counts_are_exact_in_every_episode_and_no_rounding_adds_up(
    mix, environments, seed, episodes
) -> None:
    mirror, pool, scripted = mix
    cards = source(mix, seed)
    total: Counter[str] = Counter()
    for episode in range(episodes):
        counts = Counter(kind(a) for a in dealt(cards, table(environments=environments), episode))
        assert counts == +Counter(cards.counts(environments, episode))
        total += counts
        battles = environments * (episode + 1)
        # Half up of the share of all battles so far; the rest in proportion, half up as well.
        assert total["mirror"] == half_up(mirror * battles, 100)
        rest = battles - total["mirror"]
        assert total["pool"] == (half_up(pool * rest, pool + scripted) if pool + scripted else 0)
        assert total["scripted"] == rest - total["pool"]


def test_the_default_mixture_of_twenty_battles_is_ten_seven_and_three() -> None:
    cards = AssignmentSource(SelfPlayConfig(), seed=3)
    for episode in range(50):
        counts = Counter(kind(a) for a in dealt(cards, table(), episode))
        assert counts == {"mirror": 10, "pool": 7, "scripted": 3}


def test_a_client_with_one_battle_meets_every_kind_in_turn() -> None:
    cards = AssignmentSource(SelfPlayConfig(), seed=0)
    kinds = [kind(cards.assign(table(environments=1), 0, episode, (7,))) for episode in range(20)]
    assert Counter(kinds) == {"mirror": 10, "pool": 7, "scripted": 3}
    assert kinds[:4].count("mirror") == 2


@settings(deadline=None, max_examples=40)
@given(mix=MIXES, name=NAMES, others=st.lists(NAMES, max_size=3), seed=st.integers(0, 99))
def test_battles_depend_on_their_own_client_and_episode_alone(mix, name, others, seed) -> None:
    alone = source(mix, seed)
    expected = [dealt(alone, table(name), episode) for episode in range(3)]
    together = source(mix, seed)
    found = []
    for episode in reversed(range(3)):  # whatever was asked before
        for other in others:
            dealt(together, table(other, environments=5), episode)
        found.append(dealt(together, table(name), episode))
    assert found[::-1] == expected


@settings(deadline=None, max_examples=40)
@given(mix=MIXES, one=SNAPSHOTS, other=SNAPSHOTS, episode=st.integers(0, 1000))
def test_other_snapshots_change_neither_the_kinds_nor_the_learners_seats(
    mix, one, other, episode
) -> None:
    cards = source(mix)
    first = dealt(cards, table(), episode, tuple(one))
    second = dealt(cards, table(), episode, tuple(other))
    assert [(kind(a), a.learner_seat, a.bot) for a in first] == [
        (kind(a), a.learner_seat, a.bot) for a in second
    ]


def test_other_bots_change_neither_the_kinds_nor_the_learners_seats() -> None:
    cards = AssignmentSource(SelfPlayConfig(), seed=0)
    first = dealt(cards, table(bots=("push",)), 4)
    second = dealt(cards, table(bots=("noop", "random", "defend")), 4)
    assert [(kind(a), a.learner_seat, a.snapshot) for a in first] == [
        (kind(a), a.learner_seat, a.snapshot) for a in second
    ]


def test_seats_and_opponents_and_places_are_drawn_evenly() -> None:
    cards = AssignmentSource(SelfPlayConfig(mix="mirror=0.2,pool=0.4,scripted=0.4"), seed=1)
    seats: Counter[object] = Counter()
    who: Counter[object] = Counter()
    mirrors = 0
    for episode in range(500):
        battles = dealt(cards, table(environments=10), episode, (3, 8))
        seats.update(a.learner_seat for a in battles)
        who.update(a.snapshot or a.bot for a in battles)
        mirrors += battles[0] == MIRROR
    # 1000 mirror battles, 2000 of each other kind; standard deviations below 35.
    assert seats[None] == 1000
    assert abs(seats[0] - 2000) < 160
    for opponent in (3, 8, *BOTS):
        assert abs(who[opponent] - 1000) < 120
    assert abs(mirrors - 100) < 45  # in environment 0: 500 times 0.2


def test_while_there_is_no_snapshot_scripted_bots_take_the_battles_of_the_pool() -> None:
    cards = AssignmentSource(SelfPlayConfig(), seed=0)
    before, after = dealt(cards, table(), 0, ()), dealt(cards, table(), 0, (1,))
    assert Counter(map(kind, before)) == {"mirror": 10, "scripted": 10}
    assert [a.learner_seat for a in before] == [a.learner_seat for a in after]


def test_without_bots_the_policy_plays_itself() -> None:
    cards = AssignmentSource(SelfPlayConfig(), seed=0)
    where = table(bots=())
    assert dealt(cards, where, 0, ()) == [MIRROR] * 20
    assert Counter(kind(a) for a in dealt(cards, where, 0)) == {"mirror": 13, "pool": 7}


def test_the_learners_seat_is_one_of_its_environments() -> None:
    cards = AssignmentSource(SelfPlayConfig(mix="pool=1"), seed=0)
    where = Table(client="a", seats=(2, 3, 5), bots=())
    for environment, num_seats in enumerate(where.seats):
        drawn = {cards.assign(where, environment, e, (1,)).learner_seat for e in range(100)}
        assert drawn == set(range(num_seats))
