"""Who plays each slot now and next, and what clients are told of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_client.wire.errors import ContractError
from royale_client.wire.seating import Player
from royale_server.selfplay.assignment import AssignmentSource, Table
from royale_server.selfplay.book import Layout, SeatBook
from royale_server.selfplay.config import SelfPlayConfig
from royale_server.selfplay.pool import Pool, PoolState

BOTS = ("left", "right")


def make_book(mix: str = "scripted=1", entries: tuple[int, ...] = ()) -> SeatBook:
    config = SelfPlayConfig(mix=mix)
    source = AssignmentSource(config, seed=0)
    state = PoolState(residents=entries[-2:])
    return SeatBook(source, Pool(config, seed=0, entries=entries, state=state))


def pairs(count: int, client: str = "a") -> Layout:
    numbers = np.arange(2 * count)
    return Layout.of(client, numbers // 2, numbers % 2, BOTS)


def mask(*rows: int, size: int = 4) -> np.ndarray:
    return np.isin(np.arange(size), rows)


def seated(mix: str = "scripted=1", entries: tuple[int, ...] = (), first: int = 0) -> SeatBook:
    """A book with two battles of one client."""
    book = make_book(mix, entries)
    book.add_slots(first + 4)
    book.welcome("a", pairs(2), first, 0)
    book.begin_afresh("a")
    return book


def test_slots_are_laid_out_by_environment_and_seat_whatever_their_order() -> None:
    environments, seats = np.array([7, 2, 7, 5, 2, 2]), np.array([1, 0, 0, 0, 2, 1])
    layout = Layout.of("a", environments, seats, BOTS)
    # Environment 2 has the slots 1, 5, 4; 7 has 2, 0; the one of one seat is left out.
    assert layout.table == Table("a", (3, 2), BOTS)
    assert [slots.tolist() for slots in layout.slots] == [[1, 5, 4], [2, 0]]
    assert layout.environment.tolist() == [1, 0, 1, -1, 0, 0]


def test_a_welcome_tells_the_first_two_episodes_of_every_seat() -> None:
    book = make_book()
    book.add_slots(4)
    told = book.welcome("a", pairs(2), 0, 5)
    assert [(a.slot, a.episode) for a in told] == [(s, e) for e in (5, 6) for s in range(4)]
    for first, second in zip(told[::2], told[1::2], strict=True):
        assert {first.player, second.player} == {Player.LEARNER, Player.SCRIPTED}
        assert first.name + second.name in BOTS
    book.begin_afresh("a")
    now = [book.describe(slot) for slot in range(4)]
    assert now == [f"{a.player.value} {a.name}".rstrip() for a in told[:4]]


def test_an_episode_that_ends_brings_the_next_and_the_answer_tells_the_one_after() -> None:
    book = seated()
    before = book.state().next_seats.tolist()
    book.ended("a", 0, mask(2, 3), mask(0, 1, 2, 3), np.array([0, 0, 0, 0]))
    now = book.seats(slice(0, 4))
    assert now is not None
    assert now[2:].tolist() == before[2:]
    told = book.take_unsent("a", 0, np.array([0, 0, 1, 1]))
    assert [(a.slot, a.episode) for a in told] == [(2, 2), (3, 2)]
    assert book.take_unsent("a", 0, np.array([0, 0, 1, 1])) == []


def test_numbers_told_are_those_within_the_client() -> None:
    book = seated(first=10)
    book.ended("a", 12, mask(0, 1, size=2), mask(0, size=2), np.array([0, 0]))
    assert [a.slot for a in book.take_unsent("a", 12, np.array([1, 1]))] == [2, 3]
    assert book.opponent_of("a", 13) == book.describe(12)


def test_a_row_that_asks_although_a_bot_plays_it_is_refused_by_its_number() -> None:
    book = seated()
    seats = book.seats(slice(0, 4))
    assert seats is not None
    book.check_asking(0, seats == 0)
    bot = int((seats < 0).argmax())
    with pytest.raises(ContractError, match=f"row {bot}.*scripted (left|right)"):
        book.check_asking(0, (seats == 0) | mask(bot))


def test_seats_of_an_environment_end_together_unless_the_client_leaves() -> None:
    with pytest.raises(ContractError, match="row 3"):
        seated().ended("a", 0, mask(2), mask(0, 1, 2), np.zeros(4, np.int64))
    seated().ended("a", 0, mask(2), mask(), np.zeros(4, np.int64))  # a farewell: nobody asks


def test_slots_of_learners_alone_are_named_by_nothing() -> None:
    book = seated("mirror=1")
    assert book.seats(slice(0, 4)) is None
    assert book.in_use() == set()
    assert book.opponent_of("a", 0) == "learner"


def test_snapshots_that_play_or_are_promised_are_in_use_until_their_client_is_gone() -> None:
    book = seated("pool=1", entries=(4, 8))
    told = {int(code) for code in book.state().next_seats if code > 0}
    assert told <= book.in_use() <= {4, 8}
    assert book.in_use()
    book.leave("a", slice(0, 4))
    assert book.in_use() == set()
    assert "a" not in book


def test_what_a_client_may_yet_begin_with_is_in_use_until_it_is_known() -> None:
    book = make_book("pool=1", entries=(4,))
    book.add_slots(4)
    book.welcome("a", pairs(2), 0, 0)
    assert book.in_use() == {4}
    book.go_on("a")
    assert book.in_use() == set()


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_book_goes_through_a_checkpoint(data: st.DataObject) -> None:
    mix, entries = "mirror=0.25,pool=0.25,scripted=0.5", (3, 6)
    book, episodes = seated(mix, entries), np.zeros(4, np.int64)
    for _ in range(data.draw(st.integers(0, 5))):
        over = data.draw(st.sampled_from([mask(0, 1), mask(2, 3), mask(0, 1, 2, 3)]))
        book.ended("a", 0, over, mask(), episodes)
        episodes = episodes + over
        if data.draw(st.booleans()):
            book.take_unsent("a", 0, episodes)
    now = book.seats(slice(0, 4))
    again = make_book(mix, entries)
    again.load(book.state(), np.zeros(4, np.int64) if now is None else now)
    again.welcome("a", pairs(2), 0, 50)
    again.go_on("a")
    for one in (book, again):
        one.ended("a", 0, mask(0, 1), mask(), episodes)
    episodes = episodes + mask(0, 1)
    assert again.take_unsent("a", 0, episodes) == book.take_unsent("a", 0, episodes)
    assert [again.describe(s) for s in range(4)] == [book.describe(s) for s in range(4)]
    assert again.in_use() == book.in_use()
