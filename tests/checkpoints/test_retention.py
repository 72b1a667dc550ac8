"""Old checkpoints go, but never the last whole one and never a protected one."""

import pytest

from checkpoints import list_steps, newest, prune
from tests.checkpoints.contents import saved


def test_the_newest_ones_stay(tmp_path):
    saved(tmp_path, 10, 20, 30, 40)
    removed = prune(tmp_path, keep_last=2)
    assert [path.name for path in removed] == ["10", "20"]
    assert list_steps(tmp_path) == [30, 40]
    assert prune(tmp_path, keep_last=2) == []


def test_protected_steps_stay(tmp_path):
    saved(tmp_path, 10, 20, 30, 40)
    prune(tmp_path, keep_last=1, protect={20})
    assert list_steps(tmp_path) == [20, 40]


def test_the_first_at_or_after_each_multiple_stays(tmp_path):
    # Multiples of 1000: 1024 is the first at or after 1000, 2048 after 2000, 3072 after 3000.
    saved(tmp_path, 512, 1024, 1536, 2048, 2560, 3072, 3584)
    prune(tmp_path, keep_last=1, keep_every=1000)
    assert list_steps(tmp_path) == [1024, 2048, 3072, 3584]


def test_pruning_after_every_save_keeps_the_same_ones_as_pruning_once(tmp_path):
    for step in range(512, 3585, 512):
        saved(tmp_path, step)
        prune(tmp_path, keep_last=1, keep_every=1000)
    assert list_steps(tmp_path) == [1024, 2048, 3072, 3584]


def test_nothing_goes_without_a_bound(tmp_path):
    saved(tmp_path, 10, 20)
    assert prune(tmp_path, keep_last=None) == []
    assert list_steps(tmp_path) == [10, 20]


def test_nothing_goes_while_the_newest_is_not_whole(tmp_path, caplog):
    *_, last = saved(tmp_path, 10, 20, 30)
    (last / "model.safetensors").write_bytes(b"torn")
    assert prune(tmp_path, keep_last=1) == []
    assert "no checkpoint is removed" in caplog.text
    assert newest(tmp_path)[0].name == "20"


@pytest.mark.parametrize("bounds", [{"keep_last": 0}, {"keep_last": 1, "keep_every": 0}])
def test_bounds_below_one_are_refused(tmp_path, bounds):
    with pytest.raises(ValueError, match="expected 1 or more"):
        prune(tmp_path, **bounds)


def test_removal_renames_first_so_that_a_kill_leaves_no_torn_checkpoint(tmp_path, monkeypatch):
    saved(tmp_path, 10, 20)
    monkeypatch.setattr("checkpoints.retention._delete", lambda path: None)
    prune(tmp_path, keep_last=1)
    assert newest(tmp_path) == (tmp_path / "20", [])
    assert [path.name[:8] for path in tmp_path.glob(".del-*")] == [".del-10-"]
