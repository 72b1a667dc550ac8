"""Which snapshots are kept and which play."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from royale_server.selfplay.config import SelfPlayConfig
from royale_server.selfplay.pool import Pool, PoolChange


def pool(**settings_: int) -> Pool:
    return Pool(SelfPlayConfig(**settings_), seed=0)


def test_the_newest_snapshot_always_plays_and_another_of_its_past() -> None:
    snapshots = pool(max_resident=2)
    assert snapshots.opponents == ()
    assert snapshots.add(10, ()) == PoolChange(seat=(10,))
    assert snapshots.add(20, ()) == PoolChange(seat=(20,))
    assert snapshots.opponents == (10, 20)
    for version in range(30, 200, 10):
        snapshots.add(version, ())
        assert len(snapshots.opponents) == 2
        assert version in snapshots.opponents


def test_a_snapshot_stays_until_its_battles_are_over_but_gets_no_further_ones() -> None:
    snapshots = pool(max_resident=1)
    snapshots.add(10, ())
    assert snapshots.add(20, in_use={10}) == PoolChange()
    assert (snapshots.residents, snapshots.opponents) == ([10], ())
    assert not snapshots.is_settled
    assert snapshots.settle({10}) == PoolChange()
    assert snapshots.settle(()) == PoolChange(unseat=(10,), seat=(20,))
    assert (snapshots.residents, snapshots.opponents) == ([20], (20,))
    assert snapshots.is_settled


def test_the_oldest_snapshots_that_do_not_play_are_forgotten() -> None:
    snapshots = pool(max_resident=1, pool_size=3)
    for version in (1, 2, 3):
        assert snapshots.add(version, in_use={1}).forget == ()
    assert snapshots.add(4, in_use={1}).forget == (2,)  # 1 still plays
    assert snapshots.entries == [1, 3, 4]


@settings(deadline=None, max_examples=60)
@given(data=st.data(), most=st.integers(1, 4))
def test_never_more_play_than_may_and_all_who_play_are_kept(data, most: int) -> None:
    snapshots = pool(max_resident=most, pool_size=most + 2)
    seated: set[int] = set()
    version = 0
    for _ in range(30):
        promised = data.draw(st.sets(st.sampled_from(sorted(seated)))) if seated else set()
        if data.draw(st.booleans()):
            version += 1
            change = snapshots.add(version, promised)
        else:
            change = snapshots.settle(promised)
        assert not promised & set(change.unseat)
        seated = (seated - set(change.unseat)) | set(change.seat)
        assert seated == set(snapshots.residents)
        assert len(seated) <= most
        assert seated <= set(snapshots.entries)
        assert set(snapshots.opponents) <= seated
        assert len(snapshots.entries) <= most + 2 + most


def test_a_resumed_pool_goes_on_as_one_that_was_not_interrupted() -> None:
    whole = pool(max_resident=2)
    for version in (1, 2, 3, 4):
        whole.add(version, ())
    config = SelfPlayConfig(max_resident=2)
    again = Pool(config, seed=0, entries=whole.entries, residents=whole.residents)
    assert again.opponents == whole.opponents
    assert again.add(5, {4}) == whole.add(5, {4})
    assert again.opponents == whole.opponents
