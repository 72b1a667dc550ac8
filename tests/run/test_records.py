"""Records are strict JSON lines; a file of them is only ever appended to."""

import errno
import json
import math
import os
import pathlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from royale_server.run.records import (
    AppendFile,
    last_record,
    plain_record,
    read_records,
    render,
    to_line,
)


def strict(line):
    """Parse like a reader that knows no NaN and no duplicate keys."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    def unique(pairs):
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(line, parse_constant=refuse, object_pairs_hook=unique)


def test_metrics_with_numbers_json_lacks_are_strict_json_and_named():
    row = {
        "a": math.nan,
        "b": math.inf,
        "c": -math.inf,
        "d": np.float32(0.5),
        "e": 2**60,
        "f": torch.tensor(1.0),
    }
    line = to_line(row)
    assert strict(line) == {
        "a": None,
        "b": None,
        "c": None,
        "d": 0.5,
        "e": 1152921504606846976,
        "f": 1.0,
        "nonfinite": {"a": "nan", "b": "inf", "c": "-inf"},
    }
    assert b"1152921504606846976" in line  # an integer, not 1.152921504606847e18


def test_keys_of_one_text_are_kept_apart():
    assert plain_record({1: "a", "1": "b"}) == {"1 (int)": "a", "1": "b"}
    assert plain_record({"1": "b", 1: "a"}) == {"1": "b", "1 (int)": "a"}
    assert plain_record({(1, 2): 3, None: 0}) == {"(1, 2)": 3, "None": 0}


def test_absent_stays_absent_and_a_record_without_trouble_has_no_list_of_it():
    assert strict(to_line({"env/episodes": 0})) == {"env/episodes": 0}


def test_non_finite_numbers_inside_containers_are_named_by_their_place():
    record = {
        "m": {"loss": math.nan},
        "v": [1.0, np.float64("inf")],
        "t": torch.tensor([-math.inf]),
    }
    assert strict(to_line(record)) == {
        "m": {"loss": None},
        "v": [1.0, None],
        "t": [None],
        "nonfinite": {"m.loss": "nan", "v[1]": "inf", "t[0]": "-inf"},
    }


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.bool_(True), True),
        (np.int64(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.array(2.5), 2.5),
        (np.zeros((2, 1), np.int8), [[0], [0]]),
        (torch.tensor(1.5, dtype=torch.bfloat16, requires_grad=True), 1.5),
        (torch.tensor([True, False]), [True, False]),
        ((1, 2), [1, 2]),
        (None, None),
        ("Übung", "Übung"),
        ("line\nbreak\u2028", "line\nbreak\u2028"),
        ("\ud800", "?"),
        ({1, 2}, "{1, 2}"),
        (b"raw", "b'raw'"),
        (1j, "1j"),
        (pathlib.PurePosixPath("a/b"), "PurePosixPath('a/b')"),
    ],
)
def test_values_are_written_as_what_they_hold(value, written):
    line = to_line({"x": value})
    assert strict(line) == {"x": written}
    assert line.count(b"\n") == 1
    assert line.isascii()


def test_endless_nesting_and_endless_integers_are_cut_to_text():
    deep = []
    for _ in range(60):
        deep = [deep]
    record = strict(to_line({"deep": deep, "big": 10**5000, "wide": object()}))
    assert record["big"].startswith("0x")
    assert record["wide"].startswith("<object object")


def test_a_record_cannot_use_the_key_that_names_the_gaps():
    with pytest.raises(ValueError, match="nonfinite"):
        to_line({"nonfinite": 1})


VALUES = st.recursive(st.floats() | st.text(), st.lists, max_leaves=4)


@given(st.dictionaries(st.text() | st.integers(), VALUES, max_size=4))
def test_any_record_is_one_line_that_a_strict_reader_reads(record):
    record.pop("nonfinite", None)
    line = to_line(record)
    assert line == render(plain_record(record))  # whichever way it was written
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    strict(line)


# --- files ----------------------------------------------------------------------------------------


def lines(path):
    return path.read_bytes().split(b"\n")


def test_lines_are_appended_to_what_is_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for number in range(2):
        file = AppendFile(path)
        file.append(to_line({"n": number}))
        file.close()
    assert path.read_bytes() == b'{"n": 0}\n{"n": 1}\n'
    assert not file.had_torn_tail


def test_each_line_is_one_write(tmp_path, monkeypatch):
    file = AppendFile(tmp_path / "x")
    writes = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or write(fd, data))
    file.append(to_line({"n": 1}))
    file.append(to_line({"n": 2}))
    assert writes == [b'{"n": 1}\n', b'{"n": 2}\n']


def test_a_line_that_the_disk_has_not_answered_yet_is_not_refused(tmp_path, monkeypatch):
    file = AppendFile(tmp_path / "rows.jsonl")
    meanwhile = []
    write = os.write

    def slow_write(descriptor, data):
        meanwhile.append(file.num_unwritten)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", slow_write)
    file.append(to_line({"a": 1}), to_line({"a": 2}))
    assert meanwhile == [0]
    file.close()


def test_a_cut_last_line_is_isolated_and_nothing_before_it_changes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"seq": 2, "lo')
    file = AppendFile(path)
    assert file.had_torn_tail
    assert path.read_bytes() == b'{"seq": 1}\n{"seq": 2, "lo'
    file.append(to_line({"seq": 2}))
    file.append(to_line({"seq": 3}))
    assert lines(path) == [b'{"seq": 1}', b'{"seq": 2, "lo', b'{"seq": 2}', b'{"seq": 3}', b""]
    assert read_records(path) == ([{"seq": 1}, {"seq": 2}, {"seq": 3}], 1)


class FullDisk:
    """Stands in for ``os.write``: takes so many bytes, then refuses until there is room again."""

    def __init__(self, room):
        self.room = room
        self.write = os.write

    def __call__(self, descriptor, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self.write(descriptor, data[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize("room", range(10))
def test_a_full_disk_loses_no_line_and_doubles_none(tmp_path, monkeypatch, room):
    # Each line has 9 bytes; the disk takes 0 to 9 of the first one.
    disk = FullDisk(room)
    monkeypatch.setattr(os, "write", disk)
    path = tmp_path / "metrics.jsonl"
    file = AppendFile(path)
    refused = 0
    for number in (1, 2, 3):
        try:
            file.append(to_line({"n": number}))
        except OSError:
            refused += 1
    # With 8 bytes all but the newline of the first line is there, and that makes it whole.
    assert refused == (3 if room < 8 else 2)
    assert file.num_unwritten == refused
    disk.room = 1000
    file.write_pending()
    file.append(to_line({"n": 4}))
    assert read_records(path)[0] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert file.num_unwritten == 0
    assert read_records(path)[1] == (1 if 0 < room < 8 else 0)


@pytest.mark.parametrize("room", range(38))
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_full_disk_within_lines_of_one_call_loses_none_and_doubles_none(
    tmp_path, monkeypatch, room, is_torn
):
    # Four lines of 9 bytes, behind a newline if a cut line is to be isolated first.
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(b"{" if is_torn else b"")
    disk = FullDisk(room)
    monkeypatch.setattr(os, "write", disk)
    file = AppendFile(path)
    # A line counts as written once all but its newline is there.
    whole = min(4, max(0, room - is_torn + 1) // 9)
    if whole < 4:
        with pytest.raises(OSError, match="No space"):
            file.append(*[to_line({"n": number}) for number in range(4)])
    else:
        file.append(*[to_line({"n": number}) for number in range(4)])
    assert file.num_unwritten == 4 - whole
    disk.room = 1000
    file.append(to_line({"n": 4}))
    assert read_records(path)[0] == [{"n": number} for number in range(5)]


def test_after_a_crash_with_a_full_disk_the_fragment_is_isolated(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(4))
        with pytest.raises(OSError, match="No space"):
            AppendFile(path).append(to_line({"n": 1}))
    again = AppendFile(path)
    again.append(to_line({"n": 2}))
    assert read_records(path) == ([{"n": 2}], 1)


def test_lines_beyond_the_bound_of_what_is_kept_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("royale_server.run.records._MAX_UNWRITTEN", 2)
    disk = FullDisk(0)
    monkeypatch.setattr(os, "write", disk)
    file = AppendFile(tmp_path / "x")
    for number in range(5):
        with pytest.raises(OSError, match="No space"):
            file.append(to_line({"n": number}))
    disk.room = 1000
    file.write_pending()
    assert read_records(file.path)[0] == [{"n": 3}, {"n": 4}]
    assert file.num_dropped == 3


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (b"", None),
        (b"\n\n", None),
        (b"nonsense", None),
        (b'{"seq": 1}\n', 1),
        (b'{"seq": 1}\n{"seq": 2}', 2),
        (b'{"seq": 1}\n{"seq": 2, "lo', 1),
        (b'{"seq": 1}\n[3]\n"text"\n\n', 1),
        (b'{"seq": 1}\n' + b"x" * 200_000, 1),
        (b'{"seq": 1}\n{"seq": 2, "pad": "' + b"y" * 200_000 + b'"}\n', 2),
    ],
)
def test_the_last_whole_record_is_found_from_the_end(tmp_path, content, last):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    record = last_record(path)
    assert (record and record["seq"]) == last


def test_a_file_that_is_not_there_has_no_last_record(tmp_path):
    assert last_record(tmp_path / "missing") is None
