"""A save publishes a whole checkpoint or nothing, once per step."""

import errno
import logging
import os
from dataclasses import replace

import pytest
import torch

import checkpoints
from checkpoints import (
    CheckpointContentError,
    CheckpointContents,
    CheckpointWriteError,
    check_saveable,
    load,
    newest,
    read_manifest,
    remove_unfinished,
    save,
    saving,
)
from tests.checkpoints.contents import make_contents, saved


def test_a_checkpoint_is_a_directory_named_by_its_step(tmp_path):
    result = save(tmp_path, make_contents(983040))
    assert result.written
    assert result.step == 983040
    assert result.path == tmp_path / "983040"
    assert sorted(file.name for file in result.path.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "rng.json",
        "state.json",
    ]
    manifest = read_manifest(result.path)
    assert manifest.step == 983040
    assert manifest.facts == {"metrics_seq": 983040}
    sizes = {n: (result.path / n).stat().st_size for n in manifest.files}
    assert {n: record.size_bytes for n, record in manifest.files.items()} == sizes
    assert result.size_bytes == sum(sizes.values())


def test_what_is_loaded_is_what_was_saved(tmp_path):
    contents = make_contents(5, fill=2.5)
    loaded = load(save(tmp_path, contents).path)
    assert loaded.step == 5
    assert loaded.documents == contents.documents
    assert loaded.facts == contents.facts
    assert list(loaded.tensors) == ["model", "optimizer"]
    assert loaded.tensors["model"]["weight"].tolist() == [[2.5] * 3] * 4
    assert loaded.tensors["optimizer"]["exp_avg/weight"].tolist() == [[1.25] * 3] * 4


def test_further_tensor_files_are_part_of_the_checkpoint(tmp_path):
    contents = CheckpointContents(
        step=1, tensors={stem: {"x": torch.ones(1)} for stem in ("model", "rollout", "envs")}
    )
    path = save(tmp_path, contents).path
    assert list(load(path).tensors) == ["model", "rollout", "envs"]
    assert list(load(path, tensors=("model",)).tensors) == ["model"]


def test_a_second_save_of_one_step_does_nothing_and_says_so(tmp_path, caplog):
    (path,) = saved(tmp_path, 7)
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()}
    with caplog.at_level(logging.INFO, "checkpoints"):
        result = save(tmp_path, make_contents(7, fill=99.0))
    assert not result.written
    assert result.path == path
    assert "already" in caplog.text
    after = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()}
    assert after == before


def test_a_torn_checkpoint_of_the_same_step_is_replaced(tmp_path, caplog):
    (path,) = saved(tmp_path, 7)
    (path / "model.safetensors").write_bytes(b"torn")
    result = save(tmp_path, make_contents(7, fill=3.0))
    assert result.written
    assert load(path).tensors["model"]["weight"][0, 0] == 3.0
    assert "was not whole and is replaced" in caplog.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["7", "latest"]


def test_a_whole_checkpoint_of_the_same_step_gives_way_to_one_with_other_facts(tmp_path, caplog):
    """The frames that the step counts may have been learnt from in between."""
    (path,) = saved(tmp_path, 7)
    learnt = replace(make_contents(7, fill=3.0), facts={"metrics_row": 12})
    assert save(tmp_path, learnt).written
    assert load(path).tensors["model"]["weight"][0, 0] == 3.0
    assert not save(tmp_path, learnt).written
    assert "not whole" not in caplog.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["7", "latest"]


def test_latest_points_at_the_last_save_and_is_no_checkpoint_of_its_own(tmp_path):
    saved(tmp_path, 1, 2)
    assert os.readlink(tmp_path / "latest") == "2"
    assert checkpoints.list_steps(tmp_path) == [1, 2]


def test_something_else_called_latest_is_left_alone(tmp_path):
    (tmp_path / "latest").write_text("mine")
    saved(tmp_path, 1)
    assert (tmp_path / "latest").read_text() == "mine"


def test_every_file_and_both_directories_are_flushed_before_the_save_returns(tmp_path, monkeypatch):
    order = []
    fsync, rename = os.fsync, type(tmp_path).rename

    def watch_fsync(descriptor):
        order.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{tmp_path}"))
        fsync(descriptor)

    def watch_rename(path, target):
        order.append("rename")
        return rename(path, target)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("names of descriptors are only readable on Linux")
    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(type(tmp_path), "rename", watch_rename)
    save(tmp_path, make_contents(7))
    staging = order[0].rsplit("/", 1)[0]
    assert staging.startswith("/.tmp-7-")
    assert order == [
        f"{staging}/model.safetensors",
        f"{staging}/optimizer.safetensors",
        f"{staging}/state.json",
        f"{staging}/rng.json",
        f"{staging}/manifest.json",
        staging,
        "rename",
        "",
    ]


@pytest.mark.parametrize("failing_call", range(7))
def test_a_full_disk_costs_only_the_checkpoint_being_saved(tmp_path, monkeypatch, failing_call):
    # Five files and two directories are flushed; the disk runs full at one of these seven calls.
    saved(tmp_path, 1)
    calls = iter(range(100))
    fsync = os.fsync

    def full(descriptor):
        if next(calls) == failing_call:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointWriteError, match="No space left on device; older check"):
            save(tmp_path, make_contents(2))
    assert not list(tmp_path.glob(".tmp*"))
    path, skipped = newest(tmp_path)
    # Only when the flush after the rename fails is the new one there all the same, and whole.
    assert path.name == ("2" if failing_call == 6 else "1")
    assert skipped == []
    assert save(tmp_path, make_contents(2)).path == tmp_path / "2"


def test_a_run_directory_that_is_gone_is_a_sentence(tmp_path):
    with pytest.raises(CheckpointWriteError, match="could not be saved: No such file"):
        save(tmp_path / "gone", make_contents(1))
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("step", [-1, 1.0, True, "1"])
def test_a_step_that_is_no_count_is_refused(tmp_path, step):
    with pytest.raises(CheckpointContentError, match="expected an int, 0 or more"):
        save(tmp_path, CheckpointContents(step=step))


@pytest.mark.parametrize("stem", ["manifest", "../model", "Model", "", "a.b", "a/b"])
def test_a_stem_that_is_no_safe_file_name_is_refused(tmp_path, stem):
    with pytest.raises(CheckpointContentError, match="not usable as file names"):
        save(tmp_path, CheckpointContents(step=1, documents={stem: 1}))
    assert list(tmp_path.iterdir()) == []


def test_one_stem_may_name_an_array_file_and_a_document(tmp_path):
    contents = CheckpointContents(
        step=1, tensors={"state": {"x": torch.ones(1)}}, documents={"state": {"x": 1}}
    )
    loaded = load(save(tmp_path, contents).path)
    assert loaded.documents == {"state": {"x": 1}}
    assert loaded.tensors["state"]["x"].tolist() == [1.0]


def test_facts_without_a_json_form_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(CheckpointContentError, match=r"manifest\.json: document\.bad"):
        save(tmp_path, CheckpointContents(step=1, facts={"bad": b"x"}))
    assert list(tmp_path.iterdir()) == []


def test_a_trial_save_finds_what_would_fail_and_touches_no_disk(tmp_path):
    contents = make_contents(1)
    expected = save(tmp_path, contents).size_bytes
    assert check_saveable(tmp_path / "elsewhere", contents) == expected
    bad = CheckpointContents(step=1, documents={"state": {"f": lambda: None}})
    with pytest.raises(CheckpointContentError, match=r"state\.json: document\.f: a function"):
        check_saveable(tmp_path / "elsewhere", bad)
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_killed_save_or_removal_left_is_cleared_and_nothing_else(tmp_path):
    saved(tmp_path, 1)
    for name in (".tmp-2-99-0a1b2c3d", ".torn-1-00ff00ff", ".del-0-deadbeef"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".tmp-latest-0a1b2c3d").symlink_to("1")
    for name in (".tmp-notes", ".tmp"):
        (tmp_path / name).mkdir()
    assert len(remove_unfinished(tmp_path)) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp", ".tmp-notes", "1", "latest"]


def test_a_symlink_that_cannot_be_made_is_no_failure(tmp_path, monkeypatch):
    def refuse(self, target, target_is_directory=False):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(type(tmp_path), "symlink_to", refuse)
    assert saving.save(tmp_path, make_contents(1)).written
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1"]
