"""Old checkpoints go, but never the last whole one and never a protected one."""

from dataclasses import replace

import pytest

from checkpoints import (
    CheckpointCorruptError,
    CheckpointNotFoundError,
    best,
    is_pinned,
    list_checkpoints,
    list_steps,
    load,
    newest,
    pin,
    prune,
    save,
    surplus,
    unpin,
)
from tests.checkpoints.contents import make_contents, saved


def saved_with_scores(run_dir, **scores):
    """Save a checkpoint for each ``s10=(score, score_of)``; ``None`` leaves the facts out."""
    for name, score in scores.items():
        facts = {} if score is None else {"score": score[0], "score_of": score[1]}
        save(run_dir, replace(make_contents(int(name[1:])), facts=facts))


def best_step(run_dir):
    entry = best(list_checkpoints(run_dir)[0])
    return None if entry is None else entry.step


RETURN, EVALUATION = "return_mean_100", "evaluation"


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


# --- the best one ---------------------------------------------------------------------------------


def test_the_highest_mean_return_is_the_best(tmp_path):
    saved_with_scores(tmp_path, s10=(-3.0, RETURN), s20=(8.5, RETURN), s30=(8.0, RETURN))
    assert best_step(tmp_path) == 20


def test_of_equally_good_ones_the_older_is_the_best(tmp_path):
    saved_with_scores(tmp_path, s10=(1.0, RETURN), s20=(9.0, RETURN), s30=(9, RETURN))
    assert best_step(tmp_path) == 20
    saved_with_scores(tmp_path, s40=(2.0, EVALUATION), s50=(2.0, EVALUATION))
    assert best_step(tmp_path) == 40


def test_an_evaluation_beats_any_mean_return(tmp_path):
    saved_with_scores(tmp_path, s10=(500.0, RETURN), s20=(-4.0, EVALUATION), s30=(900.0, RETURN))
    assert best_step(tmp_path) == 20


@pytest.mark.parametrize(
    "score",
    [
        None,
        (float("nan"), EVALUATION),
        (float("inf"), EVALUATION),
        (True, EVALUATION),
        ("99", EVALUATION),
        (None, EVALUATION),
        (99.0, "luck"),
        (99.0, None),
        (99.0, ["evaluation"]),
    ],
    ids=str,
)
def test_what_is_no_score_is_never_the_best(tmp_path, score):
    saved_with_scores(tmp_path, s10=score)
    assert best_step(tmp_path) is None
    saved_with_scores(tmp_path, s20=(-1e9, RETURN), s30=score)
    assert best_step(tmp_path) == 20


def test_the_best_one_stays_until_a_better_one_is_there(tmp_path):
    # After each save: the newest two, and the best so far (30 until 50, which is better, is there).
    kept = []
    for step, score in ((10, 1.0), (20, 2.0), (30, 7.0), (40, 3.0), (50, 9.0), (60, 9.0)):
        saved_with_scores(tmp_path, **{f"s{step}": (score, RETURN)})
        prune(tmp_path, keep_last=1)
        kept.append(list_steps(tmp_path))
    assert kept == [[10], [20], [30], [30, 40], [50], [50, 60]]


# --- pinned ones ----------------------------------------------------------------------------------


def test_a_pinned_one_stays_until_it_is_unpinned(tmp_path):
    first, second, *_ = saved(tmp_path, 10, 20, 30, 40)
    pin(second)
    pin(second)
    assert is_pinned(second)
    assert not is_pinned(first)
    prune(tmp_path, keep_last=1)
    assert list_steps(tmp_path) == [20, 40]
    assert load(second).step == 20  # still whole: the file is no part of the checkpoint
    unpin(second)
    unpin(second)
    prune(tmp_path, keep_last=1)
    assert list_steps(tmp_path) == [40]


def test_only_a_checkpoint_can_be_pinned(tmp_path):
    with pytest.raises(CheckpointNotFoundError):
        pin(tmp_path / "10")
    (tmp_path / "thesis").mkdir()
    with pytest.raises(CheckpointCorruptError):
        pin(tmp_path / "thesis")
    assert list((tmp_path / "thesis").iterdir()) == []


def test_what_would_go_can_be_asked_without_removing_anything(tmp_path):
    saved(tmp_path, 10, 20, 30, 40)
    pin(tmp_path / "20")
    entries, _ = list_checkpoints(tmp_path)
    assert [entry.step for entry in surplus(entries, keep_last=1, protect={10})] == [30]
    assert surplus(entries, keep_last=None) == []
    assert list_steps(tmp_path) == [10, 20, 30, 40]
