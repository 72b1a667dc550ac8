"""The writer: rows before what cites them, failures told and retried, nobody kept waiting."""

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from checkpoints import CheckpointWriteError, list_steps, read_manifest
from royale_server.run import output as output_module
from royale_server.run import writer as writer_module
from royale_server.run.identity_record import IdentityRecord, read_identity
from royale_server.run.records import read_records
from royale_server.run.writer import (
    ENVELOPE_KEYS,
    CheckpointSupersededError,
    Retention,
    Writer,
    WriterBacklogError,
)
from tests.run.runs import make_contents, open_run


@pytest.fixture
def run(tmp_path):
    with open_run(tmp_path / "runs") as directory:
        yield directory


class Gate:
    """Holds the writer inside a checkpoint save until opened."""

    def __init__(self, monkeypatch):
        self.entered = threading.Event()
        self.opened = threading.Event()
        self._save = output_module.save
        monkeypatch.setattr(output_module, "save", self)

    def __call__(self, run_dir, contents, reached):
        self.entered.set()
        assert self.opened.wait(30)
        return self._save(run_dir, contents, reached)


def make_writer(run, *, attempt=1, failures=None, **settings):
    """A started writer at 1.7e9 s; refusals of the disk go to ``failures``."""
    writer = Writer(
        run.layout,
        attempt=attempt,
        on_failure=(failures if failures is not None else []).append,
        wall_clock=lambda: 1.7e9,
        **settings,
    )
    writer.start()
    return writer


def rows(path):
    records, skipped = read_records(path)
    assert skipped == 0
    return records


# --- rows -----------------------------------------------------------------------------------------


def test_a_metrics_row_is_numbered_stamped_and_written_as_given(run):
    writer = make_writer(run)
    assert writer.metrics({"loss": 0.5}, 128) == 1
    assert writer.metrics({"loss": float("nan")}, 256) == 2
    assert writer.close().flushed
    assert rows(run.layout.metrics) == [
        {"seq": 1, "step": 128, "attempt": 1, "wall": 1.7e9, "loss": 0.5},
        {
            "seq": 2,
            "step": 256,
            "attempt": 1,
            "wall": 1.7e9,
            "loss": None,
            "nonfinite": {"loss": "nan"},
        },
    ]
    assert set(rows(run.layout.metrics)[1]) - {"loss"} == set(ENVELOPE_KEYS)


def test_episodes_and_events_go_to_their_own_files(run):
    writer = make_writer(run)
    writer.event({"kind": "joined", "message": "client a"})
    writer.metrics({}, 10)
    writer.episodes([{"return": 1.0}, {"return": 2.0, "attempt": 1}])
    writer.event({"kind": "left", "message": "client a"})
    writer.close()
    stamp = {"attempt": 1, "wall": 1.7e9}
    assert rows(run.layout.episodes) == [{**stamp, "return": 1.0}, {**stamp, "return": 2.0}]
    assert rows(run.layout.events) == [
        {**stamp, "metrics_seq": 0, "kind": "joined", "message": "client a"},
        {**stamp, "metrics_seq": 1, "kind": "left", "message": "client a"},
    ]


def test_a_row_is_acknowledged_when_it_is_on_disk_and_durable(run, monkeypatch):
    order = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: order.append("fsync") or fsync(fd))
    writer = make_writer(run)
    writer.metrics({"n": 1}, 10, lambda row: order.append((row["seq"], rows(run.layout.metrics))))
    writer.close()
    assert order == ["fsync", (1, rows(run.layout.metrics))]


def test_the_count_of_rows_continues_over_attempts_also_past_a_torn_line(run):
    writer = make_writer(run)
    for step in (10, 20, 30):
        writer.metrics({}, step)
    writer.close()
    with run.layout.metrics.open("ab") as file:
        file.write(b'{"seq": 4, "st')

    writer = make_writer(run, attempt=2)
    writer.event({"kind": "resumed", "message": "from step 20", "step": 20})
    assert writer.metrics({}, 30) == 4
    writer.close()
    records, skipped = read_records(run.layout.metrics)
    assert skipped == 1
    assert [(r["seq"], r["attempt"], r["step"]) for r in records] == [
        (1, 1, 10),
        (2, 1, 20),
        (3, 1, 30),
        (4, 2, 30),
    ]
    torn, resumed = rows(run.layout.events)
    assert (torn["kind"], torn["files"]) == ("torn_tail", ["metrics.jsonl"])
    assert (resumed["kind"], resumed["step"], resumed["metrics_seq"]) == ("resumed", 20, 3)


def test_what_a_callback_raises_is_logged_and_the_writer_goes_on(run, caplog):
    def broken(_row):
        raise RuntimeError("bug of the owner")

    writer = make_writer(run)
    writer.metrics({}, 1, broken)
    writer.metrics({}, 2)
    writer.close()
    assert len(rows(run.layout.metrics)) == 2
    assert "bug of the owner" in caplog.text


def test_a_row_that_cannot_be_expressed_costs_only_itself(run, caplog):
    writer = make_writer(run)
    writer.event({"nonfinite": 1})
    writer.event({"kind": "fine"})
    writer.close()
    assert [row["kind"] for row in rows(run.layout.events)] == ["fine"]
    assert "a row of events was left out" in caplog.text


def test_a_writer_that_was_never_started_does_not_say_that_it_wrote(run):
    writer = Writer(run.layout, attempt=1, on_failure=[].append)
    writer.event({"kind": "waits"})
    assert not writer.close().flushed


def test_rows_that_come_close_together_are_written_together_and_in_order(run, monkeypatch):
    writes = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or write(fd, data))
    monkeypatch.setattr(writer_module, "LINGER_S", 60.0)  # only what is urgent ends the wait
    writer = make_writer(run)
    for number in range(50):
        writer.episodes([{"number": number}])
    writer.event({"kind": "between"})
    for number in range(50, 60):
        writer.episodes([{"number": number}])
    writer.flush()
    assert [row["number"] for row in rows(run.layout.episodes)] == list(range(60))
    assert [data.count(b"\n") for data in writes] == [50, 1, 10]
    writer.close()


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_names_the_newest_row_before_it_which_is_durable_by_then(run, monkeypatch):
    synced = set()
    fsync = os.fsync

    def watch(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    seen = []
    save = output_module.save

    def look_then_save(run_dir, contents, reached):
        files = (run.layout.metrics, run.layout.episodes)
        seen.append(([len(rows(f)) for f in files], {f.stat().st_ino for f in files} <= synced))
        return save(run_dir, contents, reached)

    monkeypatch.setattr(output_module, "save", look_then_save)
    writer = make_writer(run)
    results = []
    writer.episodes([{"return": 1.0}])
    writer.metrics({}, 10)
    writer.checkpoint(make_contents(10), results.append)
    writer.metrics({}, 20)
    writer.close()
    assert results == [run.layout.checkpoint(10)]
    assert seen == [([1, 1], True)]
    assert read_manifest(results[0]).facts == {"metrics_seq": 1}


def test_pruning_follows_a_save_and_protects_what_it_is_told(run):
    writer = make_writer(run, retention=Retention(keep_last=1))
    for step in (10, 20, 30):
        writer.checkpoint(make_contents(step), protect={10})
        assert writer.flush(30)
    writer.close()
    assert list_steps(run.layout.directory) == [10, 30]


def test_an_overwritten_run_goes_when_its_successor_has_a_checkpoint(run, tmp_path):
    writer = make_writer(run)
    writer.checkpoint(make_contents(1))
    writer.close()
    run.close()
    with open_run(tmp_path / "runs", overwrite=True) as successor:
        aside = successor.set_aside
        writer = make_writer(successor, on_saved=successor.first_checkpoint_written)
        writer.metrics({}, 1)
        assert writer.flush(30)
        assert aside.is_dir()
        writer.checkpoint(make_contents(2))
        writer.close()
        assert not aside.exists()


def test_a_step_that_is_saved_already_counts_as_saved(run):
    writer = make_writer(run)
    results = []
    for fill in (1.0, 2.0):
        writer.checkpoint(make_contents(10, fill), results.append)
        assert writer.flush(30)
    writer.close()
    assert results == [run.layout.checkpoint(10)] * 2


def test_a_checkpoint_that_the_disk_refuses_is_told_and_the_next_one_works(run, monkeypatch):
    writer = make_writer(run)
    results = []
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", raise_full)
        writer.checkpoint(make_contents(10), results.append)
        assert writer.flush(30)
    writer.checkpoint(make_contents(20), results.append)
    writer.close()
    assert isinstance(results[0], CheckpointWriteError)
    assert "No space left" in str(results[0])
    assert results[1] == run.layout.checkpoint(20)


def test_a_waiting_checkpoint_gives_way_to_a_newer_one(run, monkeypatch):
    gate = Gate(monkeypatch)
    writer = make_writer(run)
    results = {}
    writer.checkpoint(make_contents(10), lambda r: results.update({10: r}))
    assert gate.entered.wait(30)
    writer.checkpoint(make_contents(20), lambda r: results.update({20: r}))
    writer.metrics({}, 25)
    writer.checkpoint(make_contents(30), lambda r: results.update({30: r}))
    assert isinstance(results[20], CheckpointSupersededError)
    assert "step 30 followed" in str(results[20])
    gate.opened.set()
    writer.close()
    assert list_steps(run.layout.directory) == [10, 30]
    assert results[10] == run.layout.checkpoint(10)
    assert results[30] == run.layout.checkpoint(30)


# --- identity -------------------------------------------------------------------------------------


def test_of_the_identities_that_wait_only_the_newest_is_written(run, monkeypatch):
    written = []
    monkeypatch.setattr(output_module, "write_identity", lambda _, record: written.append(record))
    gate = Gate(monkeypatch)
    writer = make_writer(run)
    writer.checkpoint(make_contents(10))
    assert gate.entered.wait(30)
    records = [IdentityRecord(fields={"n": n}) for n in range(5)]
    for record in records:
        writer.identity(record)
    assert writer.health().queued == 1
    gate.opened.set()
    assert writer.flush(30)
    assert written == [records[4]]
    writer.identity(records[0])
    writer.close()
    assert written == [records[4], records[0]]


def test_an_identity_is_on_disk_before_the_rows_handed_over_after_it(run):
    writer, seen = make_writer(run), []
    record = IdentityRecord(fields={"n": 1})
    writer.identity(record)
    writer.metrics({}, 10, lambda _: seen.append(read_identity(run.layout.identity)))
    writer.close()
    assert seen == [record]


def test_an_identity_that_the_disk_refuses_is_tried_again_with_the_next_checkpoint(
    run, monkeypatch, caplog
):
    writer, seen = make_writer(run), []
    with monkeypatch.context() as patch:
        patch.setattr(output_module, "write_identity", raise_full)
        for fields in ({"n": 1}, {"n": 2}):
            writer.identity(IdentityRecord(fields=fields))
            assert writer.flush(30)
    assert read_identity(run.layout.identity) is None
    writer.checkpoint(
        make_contents(10), lambda _: seen.append(read_identity(run.layout.identity).fields)
    )
    assert writer.close().flushed
    assert seen == [{"n": 2}]
    assert caplog.text.count("identity.json cannot be written: No space left") == 1


def test_an_identity_that_could_never_be_written_keeps_no_checkpoint_and_is_reported(
    run, monkeypatch
):
    writer, results = make_writer(run), []
    monkeypatch.setattr(output_module, "write_identity", raise_full)
    writer.identity(IdentityRecord(fields={}))
    writer.checkpoint(make_contents(10), results.append)
    assert not writer.close().flushed
    assert results == [run.layout.checkpoint(10)]


# --- a disk that refuses, and one that stalls -----------------------------------------------------


def raise_full(*_arguments, **_keywords):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_refused_row_is_told_kept_and_written_with_the_next(run, monkeypatch):
    failures, acknowledged = [], []
    writer = make_writer(run, failures=failures)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", raise_full)
        writer.metrics({}, 10, lambda row: acknowledged.append(row["seq"]))
        assert writer.flush(30)
        assert writer.health().unwritten == 1
        assert acknowledged == []
    writer.metrics({}, 20, lambda row: acknowledged.append(row["seq"]))
    assert writer.close().flushed
    assert acknowledged == [1, 2]
    assert [row["seq"] for row in rows(run.layout.metrics)] == [1, 2]
    assert {failure.stream for failure in failures} == {"metrics"}
    assert failures[0].path == run.layout.metrics
    assert failures[0].error.errno == errno.ENOSPC


def test_a_full_disk_is_told_once_for_each_file_and_again_after_there_was_room(
    run, monkeypatch, caplog
):
    failures = []
    writer = make_writer(run, failures=failures)

    def fill_and_write(row):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", raise_full)
            for _ in range(3):
                writer.metrics({}, 10)
                writer.event({"kind": "a"})
            assert writer.flush(30)
        writer.metrics({}, row)

    with caplog.at_level(logging.INFO):
        fill_and_write(20)
        assert writer.flush(30)
        assert sorted(failure.stream for failure in failures) == ["events", "metrics"]
        fill_and_write(30)
        assert writer.close().flushed
    assert sorted(failure.stream for failure in failures) == ["events", "events", *["metrics"] * 2]
    assert caplog.text.count("metrics.jsonl is written to again; 0 lines were lost") == 2
    assert len(rows(run.layout.metrics)) == 8
    assert len(rows(run.layout.events)) == 6


def test_a_checkpoint_does_not_outlive_a_row_that_could_not_be_written(run, monkeypatch):
    writer = make_writer(run)
    results = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", raise_full)
        writer.metrics({}, 10)
        writer.checkpoint(make_contents(10), results.append)
        assert writer.flush(30)
    assert isinstance(results[0], CheckpointWriteError)
    assert "metrics.jsonl cannot be written" in str(results[0])
    assert list_steps(run.layout.directory) == []
    # With room again the row comes first, then the checkpoint that cites it.
    writer.checkpoint(make_contents(10), results.append)
    writer.close()
    assert read_manifest(results[1]).facts["metrics_seq"] == 1


def test_what_could_never_be_written_is_reported_at_the_end(run, monkeypatch):
    writer = make_writer(run)
    monkeypatch.setattr(os, "write", raise_full)
    writer.metrics({}, 10)
    assert not writer.close().flushed


def test_a_stalled_disk_keeps_nobody_waiting_and_drops_only_what_the_run_can_do_without(
    run, monkeypatch, caplog
):
    gate = Gate(monkeypatch)
    writer = make_writer(run, capacity=3)
    writer.checkpoint(make_contents(10))
    assert gate.entered.wait(30)
    assert writer.metrics({}, 1) == 1
    writer.episodes([{"return": 1.0}])
    writer.event({"kind": "a"})
    # Three things wait: that is all it holds.
    writer.episodes([{"return": 2.0}, {"return": 3.0}])
    writer.event({"kind": "b"})
    with pytest.raises(WriterBacklogError, match=r"3 things wait .* resume from the newest"):
        writer.metrics({}, 2)
    assert writer.health().dropped == 3
    assert writer.health().queued == 3
    assert caplog.text.count("dropped and counted") == 1
    assert not writer.close(0.01).flushed

    gate.opened.set()
    assert writer.close().flushed
    assert [row["return"] for row in rows(run.layout.episodes)] == [1.0]
    assert [row["seq"] for row in rows(run.layout.metrics)] == [1]


# --- the end --------------------------------------------------------------------------------------


def test_close_writes_everything_that_was_handed_over(run):
    writer = make_writer(run)
    for step in range(200):
        writer.metrics({"n": step}, step)
    writer.checkpoint(make_contents(200))
    report = writer.close()
    assert report.flushed
    assert report.trackers_finished
    assert len(rows(run.layout.metrics)) == 200
    assert list_steps(run.layout.directory) == [200]


def test_after_the_end_late_events_are_dropped_and_rows_are_a_bug(run, caplog):
    writer = make_writer(run)
    writer.close()
    writer.event({"kind": "late"})
    writer.episodes([{"return": 1.0}])
    assert writer.health().dropped == 2
    for call in (
        lambda: writer.metrics({}, 1),
        lambda: writer.checkpoint(make_contents(1)),
        writer.flush,
    ):
        with pytest.raises(RuntimeError, match="the writer is closed"):
            call()
    assert writer.health().last_seq == 0
    assert caplog.text.count("takes no more") == 1


def test_a_writer_that_was_never_started_can_be_closed(run):
    writer = Writer(run.layout, attempt=1, on_failure=lambda failure: None)
    assert writer.close().flushed


def test_each_line_of_every_file_is_strict_json(run):
    writer = make_writer(run)
    writer.metrics({"a": float("inf"), 1: 2, "x": {"y": float("nan")}}, 1)
    writer.episodes([{"return": float("-inf"), "metrics": {"m": float("nan")}}])
    writer.event({"kind": "k", "value": float("nan")})
    writer.close()

    def refuse(name):
        raise AssertionError(name)

    for path in (run.layout.metrics, run.layout.episodes, run.layout.events):
        for line in path.read_bytes().splitlines():
            assert "nonfinite" in json.loads(line, parse_constant=refuse)


def test_the_writer_is_quiet_when_nothing_is_wrong(run, caplog):
    with caplog.at_level(logging.WARNING):
        writer = make_writer(run)
        writer.metrics({}, 1)
        writer.checkpoint(make_contents(1))
        writer.close()
    assert caplog.records == []
