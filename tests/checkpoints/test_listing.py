"""The newest checkpoint is the one with the greatest step stored inside."""

import os

from checkpoints import list_checkpoints, list_steps, newest, save
from tests.checkpoints.contents import make_contents, saved


def rename(path, name):
    path.rename(path.with_name(name))


def test_steps_are_compared_as_numbers_whatever_the_padding_of_their_names(tmp_path):
    # Sorted as text, "0900000" comes before "100000".
    saved(tmp_path, 100000)
    rename(saved(tmp_path, 900000)[0], "0900000")
    assert newest(tmp_path) == (tmp_path / "0900000", [])


def test_names_with_a_prefix_are_ordered_by_the_step_inside(tmp_path):
    # Sorted as text, "step_900" comes after "step_1000".
    for step in (900, 1000):
        rename(saved(tmp_path, step)[0], f"step_{step}")
    assert newest(tmp_path)[0] == tmp_path / "step_1000"
    assert list_steps(tmp_path) == [900, 1000]


def test_file_times_say_nothing(tmp_path):
    older, newer = saved(tmp_path, 10, 20)
    os.utime(newer, (0, 0))
    for file in newer.iterdir():
        os.utime(file, (0, 0))
    os.utime(older, (2e9, 2e9))
    assert newest(tmp_path)[0] == newer


def test_unfinished_and_foreign_directories_are_ignored(tmp_path):
    (path,) = saved(tmp_path, 5)
    for name in ("best", "tmp", "logs", "99", ".tmp-99-1-abc"):
        (tmp_path / name).mkdir()
    (tmp_path / "best" / "model.safetensors").write_bytes(b"something")
    (tmp_path / ".tmp-99-1-abc" / "manifest.json").write_bytes(b"{}")
    (tmp_path / "101").write_text("a file")
    (tmp_path / "102").symlink_to(path)
    assert newest(tmp_path) == (path, [])
    assert list_checkpoints(tmp_path)[1] == []


def test_a_directory_with_tensors_and_no_manifest_is_named_as_torn(tmp_path):
    (path,) = saved(tmp_path, 5)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "model.safetensors").write_bytes(b"half")
    found, skipped = newest(tmp_path)
    assert found == path
    assert [skip.path.name for skip in skipped] == ["9"]
    assert "has no manifest.json" in skipped[0].reason


def test_an_older_torn_one_is_not_looked_into(tmp_path):
    old, new = saved(tmp_path, 5, 6)
    (old / "model.safetensors").write_bytes(b"torn")
    assert newest(tmp_path) == (new, [])


def test_entries_tell_step_and_size_without_loading(tmp_path):
    results = [save(tmp_path, make_contents(step)) for step in (30, 4)]
    entries, torn = list_checkpoints(tmp_path)
    assert [(e.step, e.size_bytes) for e in entries] == [
        (4, results[1].size_bytes),
        (30, results[0].size_bytes),
    ]
    assert torn == []
    assert list_steps(tmp_path / "missing") == []
