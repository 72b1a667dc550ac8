"""A checkpoint that is not whole is never loaded; the newest whole one is found instead."""

import json
import pickle

import pytest
import torch

from checkpoints import (
    CheckpointContents,
    CheckpointCorruptError,
    CheckpointIncompatibleError,
    CheckpointNotFoundError,
    load,
    newest,
    save,
    verify,
)
from tests.checkpoints.contents import make_contents, saved

FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "rng.json", "state.json"]


def cut(size):
    return lambda data: data[:size]


DAMAGE = {
    **{f"cut at {n}": cut(n) for n in (0, 4, 8, 20, 2036, 4071)},
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\x00",
    "a newline more": lambda data: data + b"\n",
    "all zeros": lambda data: bytes(len(data)),
    "one bit flipped": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
}


@pytest.fixture
def run_dir(tmp_path):
    """Two checkpoints; each tensor file holds 1000 float32 and so is a little over 4,072 bytes."""
    for step in (100, 200):
        big = {"x": torch.arange(1000.0) + step}
        save(
            tmp_path,
            CheckpointContents(
                step=step,
                tensors={"model": big, "optimizer": big},
                documents={"state": {"table": list(range(1000))}, "rng": {"words": [0] * 2000}},
                facts={"notes": "x" * 5000},
            ),
        )
    return tmp_path


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_detected_and_the_older_checkpoint_is_used(run_dir, name, damage):
    file = run_dir / "200" / name
    data = file.read_bytes()
    assert len(data) > 4072
    file.write_bytes(damage(data))

    path, skipped = newest(run_dir)
    assert path == run_dir / "100"
    assert [skip.path for skip in skipped] == [run_dir / "200"]
    assert name in skipped[0].reason
    with pytest.raises(CheckpointCorruptError, match=name):
        load(run_dir / "200")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_detected(run_dir, name):
    (run_dir / "200" / name).unlink()
    path, skipped = newest(run_dir)
    assert path == run_dir / "100"
    assert name in str(skipped[0])
    with pytest.raises(CheckpointCorruptError, match=name):
        verify(run_dir / "200")


def test_sizes_are_compared_even_when_hashes_are_not(run_dir):
    file = run_dir / "200" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointCorruptError, match=r"model\.safetensors has \d+ bytes"):
        load(run_dir / "200", verify=False)


def test_garbage_of_the_right_size_is_refused_even_when_hashes_are_not_compared(run_dir):
    file = run_dir / "200" / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(CheckpointCorruptError, match="is not a safetensors file"):
        load(run_dir / "200", verify=False)


def test_a_link_in_place_of_a_file_is_refused(run_dir, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "model.safetensors"
    file = run_dir / "200" / "model.safetensors"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(CheckpointCorruptError, match="not a plain file"):
        load(run_dir / "200")


def test_nothing_whole_is_an_error_that_names_what_is_torn(run_dir):
    for step in (100, 200):
        (run_dir / str(step) / "rng.json").unlink()
    with pytest.raises(
        CheckpointNotFoundError, match="no whole checkpoint; not whole: 200, 100"
    ) as e:
        newest(run_dir)
    assert {skip.path.name for skip in e.value.skipped} == {"100", "200"}
    assert isinstance(e.value, FileNotFoundError)


def test_no_run_at_all_is_an_error_of_the_same_kind(tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="holds no whole checkpoint"):
        newest(tmp_path / "missing")
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint directory"):
        load(tmp_path / "missing")


def test_a_run_given_for_a_checkpoint_is_told_which_one_could_be_meant(run_dir):
    with pytest.raises(CheckpointNotFoundError, match=r"is a run, not a checkpoint; .*200"):
        load(run_dir)


def test_a_stem_that_is_not_there_is_named(run_dir):
    with pytest.raises(CheckpointNotFoundError, match=r"no \['rollout'\], it holds \['model'"):
        load(run_dir / "100", tensors=("model", "rollout"))


def rewrite_manifest(path, **changes):
    """Change the manifest the way a person with an editor would, keeping its layout."""
    file = path / "manifest.json"
    document = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(document, indent=1) + "\n")


def test_a_newer_format_is_refused_as_incompatible_and_passed_over(run_dir):
    rewrite_manifest(run_dir / "200", format=2)
    with pytest.raises(CheckpointIncompatibleError, match="format 2, this program reads format 1"):
        load(run_dir / "200")
    path, skipped = newest(run_dir)
    assert path.name == "100"
    assert "format 2" in skipped[0].reason


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": "200"},
        {"step": 1e9},
        {"files": []},
        {"facts": 3},
        {"kind": "other"},
        {"files": {"../100/model.safetensors": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"/etc/passwd": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"model.pkl": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"model.safetensors": {"size": 1}}},
        {"files": {"model.safetensors": {"size": True, "sha256": "0" * 64}}},
        {"files": {"model.safetensors": {"size": 1, "sha256": "xyz"}}},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_manifest_that_no_save_writes_is_refused(run_dir, changes):
    rewrite_manifest(run_dir / "200", **changes)
    with pytest.raises(CheckpointCorruptError, match=r"manifest\.json"):
        verify(run_dir / "200")
    assert newest(run_dir)[0].name == "100"


class Marker:
    """Unpickling this would create the file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_named_like_a_file_of_a_checkpoint_is_never_executed(run_dir, tmp_path):
    marker = tmp_path / "marker"
    hostile = pickle.dumps(Marker(marker))
    for name in FILES:
        (run_dir / "200" / name).write_bytes(hostile)
    with pytest.raises(CheckpointCorruptError):
        load(run_dir / "200")
    # Even where somebody made a manifest to match it.
    (tmp_path / "300").mkdir()
    (tmp_path / "300" / "model.safetensors").write_bytes(hostile)
    (path,) = saved(tmp_path, 400)
    (path / "model.safetensors").write_bytes(
        hostile.ljust((path / "model.safetensors").stat().st_size)
    )
    with pytest.raises(CheckpointCorruptError):
        load(path, verify=False)
    assert newest(run_dir)[0].name == "100"
    assert not marker.exists()


def test_a_stranger_file_inside_a_checkpoint_is_ignored(tmp_path):
    path = save(tmp_path, make_contents(1)).path
    (path / "notes.txt").write_text("mine")
    assert sorted(load(path).tensors) == ["model", "optimizer"]
