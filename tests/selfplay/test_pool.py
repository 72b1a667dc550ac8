"""Which snapshots are kept and which play."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from royale_server.selfplay.config import SelfPlayConfig
from royale_server.selfplay.pool import Pool, PoolChange


def pool(**changes: int) -> Pool:
    return Pool(SelfPlayConfig(**changes), seed=0)


def test_the_first_snapshots_play_as_soon_as_they_are_there() -> None:
    snapshots = pool(max_resident=2)
    assert snapshots.opponents == ()
    assert snapshots.settle(()) == PoolChange()
    assert snapshots.add(10, ()) == PoolChange(seat=(10,))
    assert snapshots.add(20, {10}) == PoolChange(seat=(20,))
    assert snapshots.opponents == (10, 20)


def test_one_that_makes_place_stays_until_its_battles_are_over_and_the_others_go_on() -> None:
    snapshots = pool(max_resident=2)
    snapshots.add(10, ())
    snapshots.add(20, {10})
    assert snapshots.add(30, {10, 20}) == PoolChange()
    assert snapshots.opponents == (20,)  # the one that has played longest makes place
    assert snapshots.add(40, {10, 20}) == PoolChange()
    assert snapshots.settle({10, 20}) == PoolChange()
    assert snapshots.opponents == (20,)
    change = snapshots.settle({20})
    assert change.unseat == (10,)
    assert set(change.seat) < {30, 40}
    assert snapshots.opponents == tuple(sorted({20, *change.seat}))
    # There is nothing newer than when that one was seated, so that nobody makes place.
    assert snapshots.settle(()) == PoolChange()
    assert len(snapshots.opponents) == 2


def test_the_newest_and_older_ones_come_in_turn() -> None:
    snapshots = pool(max_resident=2, pool_size=16)
    newest = older = 0
    for version in range(1, 400):
        for change in (snapshots.add(version, ()), snapshots.settle(())):
            for seated in change.seat:
                newest += seated == version
                older += seated < version
    # Every snapshot makes one change, each of the two kinds with a chance of a half (the newest
    # may also be drawn among all): 400 of them, a standard deviation of 10.
    assert 390 < newest + older < 402
    assert 150 < older < 240


def test_the_oldest_snapshots_that_do_not_play_are_forgotten() -> None:
    snapshots = pool(max_resident=2, pool_size=3)
    everybody = {1, 2, 3, 4, 5}
    for version in (1, 2, 3):
        assert snapshots.add(version, everybody).forget == ()
    assert snapshots.add(4, everybody).forget == (3,)  # 1 and 2 play, 4 is the newest
    assert snapshots.add(5, everybody).forget == (4,)
    assert snapshots.entries == [1, 2, 5]


@settings(deadline=None, max_examples=60)
@given(data=st.data(), most=st.integers(2, 4))
def test_never_more_play_than_may_and_all_but_one_of_them_are_dealt(data, most: int) -> None:
    config = SelfPlayConfig(max_resident=most, pool_size=most + 2)
    snapshots = Pool(config, seed=0)
    seated: set[int] = set()
    version = 0
    for _ in range(40):
        promised = data.draw(st.sets(st.sampled_from(sorted(seated)))) if seated else set()
        if data.draw(st.booleans()):
            version += 1
            change = snapshots.add(version, promised)
        else:
            change = snapshots.settle(promised)
        assert not promised & set(change.unseat)
        seated = (seated - set(change.unseat)) | set(change.seat)
        assert seated == set(snapshots.state().residents)
        assert len(seated) == min(most, version)
        assert seated <= set(snapshots.entries)
        assert set(snapshots.opponents) <= seated
        assert len(snapshots.opponents) >= len(seated) - 1
        assert len(snapshots.entries) <= most + 2
        again = Pool(config, seed=0, entries=snapshots.entries, state=snapshots.state())
        assert again.opponents == snapshots.opponents


def test_a_resumed_pool_goes_on_as_one_that_was_not_interrupted() -> None:
    whole = pool(max_resident=2)
    for version in (1, 2, 3, 4):
        whole.add(version, {1, 2})
    again = Pool(SelfPlayConfig(), seed=0, entries=whole.entries, state=whole.state())
    for in_use in ({2}, {1}, set(), {3}):
        assert again.add(10 * len(whole.entries), in_use) == whole.add(
            10 * len(whole.entries), in_use
        )
        assert again.state() == whole.state()
