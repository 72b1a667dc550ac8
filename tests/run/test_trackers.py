"""Trackers mirror the rows; whatever one of them does, the run and its files are the same."""

import os
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest

from checkpoints import list_steps
from royale_client.wire.errors import ConfigError
from royale_server.monitoring import trackers as trackers_module
from royale_server.monitoring.swanlab_tracker import SwanlabTracker
from royale_server.monitoring.trackers import (
    TrackedRun,
    TrackerThread,
    make_tracker,
    tracker_names,
)
from royale_server.run.records import read_records
from royale_server.run.writer import Writer
from tests.run.runs import fingerprint, make_contents, open_run

ROOT = Path(__file__).resolve().parents[2]


class Recorder:
    """A tracker that keeps what it is given."""

    def __init__(self):
        self.name = type(self).__name__
        self.calls = []
        self.rows = []
        self.finished = threading.Event()

    def start(self, run):
        self.calls.append(("start", run.name, run.run_id))

    def log(self, row, step):
        self.rows.append((step, dict(row)))

    def finish(self):
        self.calls.append(("finish",))
        self.finished.set()


class FailsAtStart(Recorder):
    def start(self, run):
        raise ConnectionError("no route to the service")


class FailsAtEachRow(Recorder):
    def log(self, row, step):
        raise ValueError(f"no row {step}")


class BlocksForEver(Recorder):
    def __init__(self):
        super().__init__()
        self.never = threading.Event()

    def log(self, row, step):
        self.never.wait()


class BlocksAtStart(BlocksForEver):
    def start(self, run):
        self.never.wait()


class BlocksAtTheEnd(BlocksForEver):
    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.never.wait()


class KillsItsHelper(Recorder):
    """Talks to a process of its own, which is gone after the first row."""

    def start(self, run):
        command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
        self.helper = subprocess.Popen(command, stdin=subprocess.PIPE)

    def log(self, row, step):
        if not self.rows:
            self.helper.kill()
            self.helper.wait()
        self.rows.append((step, row))
        os.write(self.helper.stdin.fileno(), b"row\n")

    def finish(self):
        self.helper.stdin.close()


class ExitsTheProcess(Recorder):
    def log(self, row, step):
        raise SystemExit(1)


def train(folder, trackers, *, trackers_s=30.0, num_rows=50):
    """What a run writes: rows and two checkpoints. Returns the directory and how it closed."""
    with open_run(folder / "runs") as run:
        writer = Writer(
            run.layout,
            attempt=1,
            on_failure=pytest.fail,
            trackers=trackers,
            tracked_run=TrackedRun(run_id="0" * 32, name="exp", directory=run.layout.trackers),
            wall_clock=lambda: 0.0,
        )
        writer.start()
        for step in range(1, num_rows + 1):
            writer.metrics({"loss": 1 / step}, step)
        writer.checkpoint(make_contents(num_rows))
        assert writer.flush(30)
        report = writer.close(30, trackers_s=trackers_s)
    return run.layout, report, writer.health()


TROUBLE = [
    FailsAtStart,
    FailsAtEachRow,
    BlocksForEver,
    BlocksAtStart,
    BlocksAtTheEnd,
    KillsItsHelper,
    ExitsTheProcess,
]


@pytest.mark.parametrize("kind", TROUBLE)
def test_a_tracker_in_trouble_changes_nothing_in_the_run(tmp_path, kind, caplog):
    alone, _, _ = train(tmp_path / "alone", [])
    tracker, healthy = kind(), Recorder()
    blocks = isinstance(tracker, BlocksForEver)
    trackers_s = 0.2 if blocks else 30.0
    layout, report, _ = train(tmp_path / "with", [tracker, healthy], trackers_s=trackers_s)

    assert layout.metrics.read_bytes() == alone.metrics.read_bytes()
    assert fingerprint(layout.checkpoint(50)) == fingerprint(alone.checkpoint(50))
    assert list_steps(layout.directory) == [50]
    assert report.flushed
    assert report.trackers_finished is not blocks
    # Another tracker beside it sees every row.
    assert healthy.finished.wait(30)
    assert [step for step, _ in healthy.rows] == list(range(1, 51))

    warnings = [r.message for r in caplog.records if tracker.name in r.message]
    assert len(warnings) == 1
    if blocks:
        assert "did not finish in time and is left" in warnings[0]
        tracker.never.set()
    else:
        assert "the run and metrics.jsonl go on" in warnings[0]


def test_a_tracker_that_cannot_start_is_told_once_and_its_rows_are_counted(tmp_path):
    layout, _, health = train(tmp_path, [FailsAtStart()])
    (tracker,) = health.trackers
    assert (tracker.state, tracker.logged, tracker.dropped) == ("failed", 0, 50)
    assert tracker.last_error == "failed to start: ConnectionError: no route to the service"
    events = [e for e in read_records(layout.events)[0] if e["kind"] == "tracker_failed"]
    assert len(events) == 1
    assert "no route to the service" in events[0]["message"]


def test_a_tracker_that_fails_at_each_row_is_tried_again_and_counted(tmp_path):
    _, _, health = train(tmp_path, [FailsAtEachRow()])
    (tracker,) = health.trackers
    assert (tracker.state, tracker.failed, tracker.logged) == ("finished", 50, 0)
    assert tracker.last_error == "failed to log a row: ValueError: no row 50"


def test_a_tracker_that_does_not_keep_up_loses_the_oldest_rows(caplog):
    class Slow(Recorder):
        """Takes one row, then waits until told to go on."""

        def __init__(self):
            super().__init__()
            self.got_one, self.go_on = threading.Event(), threading.Event()

        def log(self, row, step):
            super().log(row, step)
            self.got_one.set()
            self.go_on.wait(30)

    tracker, told = Slow(), []
    run = TrackedRun(run_id="0" * 32, name="exp", directory=Path("unused"))
    thread = TrackerThread(tracker, run, on_failure=told.append, capacity=2)
    thread.start()
    thread.offer({}, 1)
    assert tracker.got_one.wait(30)
    for step in (2, 3, 4, 5):
        thread.offer({}, step)
    tracker.go_on.set()
    assert thread.close(30)
    # Row 1 is in its hands, two wait; 2 and 3 made room for 4 and 5.
    assert [step for step, _ in tracker.rows] == [1, 4, 5]
    assert thread.health().dropped == 2
    assert len(told) == 1
    assert "more than 2 rows wait" in told[0]


def test_a_blocked_tracker_costs_the_end_of_a_run_its_bound_and_no_more(tmp_path):
    tracker = BlocksForEver()
    began = time.monotonic()
    _, report, _ = train(tmp_path, [tracker, BlocksForEver()], trackers_s=0.2)
    assert not report.trackers_finished
    # Two blocked trackers share 0.2 s; the rest is writing 50 rows and a checkpoint.
    assert time.monotonic() - began < 20
    tracker.never.set()


def test_rows_reach_a_tracker_after_they_are_on_disk_as_finite_numbers(tmp_path):
    with open_run(tmp_path / "runs") as run:
        seen_on_disk = []

        class Looks(Recorder):
            def log(self, row, step):
                super().log(row, step)
                seen_on_disk.append(len(read_records(run.layout.metrics)[0]) >= step)

        tracker = Looks()
        tracked = TrackedRun(run_id="1" * 32, name="exp", directory=run.layout.trackers)
        writer = Writer(
            run.layout, attempt=1, on_failure=pytest.fail, trackers=[tracker], tracked_run=tracked
        )
        writer.start()
        writer.metrics({"a": float("nan"), "b": 2, "c": "text", "d": True, "e": None}, 10)
        writer.metrics({"a": 1.5}, 20)
        writer.close(30)
    for _, row in tracker.rows:
        assert row.pop("wall") > 0
    assert tracker.rows == [
        (1, {"step": 10, "attempt": 1, "b": 2}),
        (2, {"step": 20, "attempt": 1, "a": 1.5}),
    ]
    assert all(seen_on_disk)
    assert tracker.calls == [("start", "exp", "1" * 32), ("finish",)]


def test_after_a_resume_to_an_earlier_step_every_point_still_arrives(tmp_path):
    class DropsWhatDoesNotGrow(Recorder):
        """As services do that accept only growing steps."""

        def log(self, row, step):
            if step > max((s for s, _ in self.rows), default=0):
                super().log(row, step)

    tracker = DropsWhatDoesNotGrow()

    def attempt(number, steps, **flags):
        with open_run(tmp_path / "runs", **flags) as run:
            tracked = TrackedRun(run_id=run.run_id, name="exp", directory=run.layout.trackers)
            writer = Writer(
                run.layout,
                attempt=number,
                on_failure=pytest.fail,
                trackers=[tracker],
                tracked_run=tracked,
            )
            writer.start()
            if flags:
                writer.event({"kind": "resumed", "message": "from step 200", "step": 200})
            for step in steps:
                loss = float("nan") if step == 205 else float(step)
                writer.metrics({"loss": loss, "note": "text"}, step)
                if step == 200:
                    writer.checkpoint(make_contents(200))
            writer.close(30)
        return run.layout

    attempt(1, range(1, 213))  # the last checkpoint is 200, the last row 212
    layout = attempt(2, range(201, 301), resume=True)

    # The tracker's own step is the number of the row, which only grows: 212 + 100 rows arrive.
    assert [step for step, _ in tracker.rows] == list(range(1, 313))
    second = [row for _, row in tracker.rows if row["attempt"] == 2]
    assert [row["step"] for row in second] == list(range(201, 301))
    assert "loss" not in second[4]  # step 205
    assert second[5]["loss"] == 206.0
    assert tracker.calls[0] == tracker.calls[2]  # one experiment, continued

    records = read_records(layout.metrics)[0]
    assert len({(r["attempt"], r["step"]) for r in records}) == len(records) == 312
    (resumed,) = read_records(layout.events)[0]
    assert (resumed["step"], resumed["metrics_seq"], resumed["attempt"]) == (200, 212, 2)


def test_trackers_need_to_be_told_the_run(tmp_path):
    with open_run(tmp_path / "runs") as run, pytest.raises(ValueError, match="tracked_run"):
        Writer(run.layout, attempt=1, on_failure=pytest.fail, trackers=[Recorder()])


# --- choosing one ---------------------------------------------------------------------------------


def provide(monkeypatch, *points):
    """Pretend that installed packages provide these (name, value) pairs."""
    group = trackers_module.ENTRY_POINT_GROUP
    found = [metadata.EntryPoint(name, value, group) for name, value in points]
    monkeypatch.setattr(trackers_module, "_entry_points", lambda: found)


class Installed(Recorder):
    """What an entry point of these tests names."""

    def __init__(self, *, project, mode):
        super().__init__()
        self.settings = (project, mode)


HERE = f"{__name__}:Installed"


def test_an_installed_tracker_is_made_by_its_name(monkeypatch):
    provide(monkeypatch, ("mine", HERE), ("unused", "no_such_module:Tracker"))
    assert tracker_names() == ["mine", "swanlab", "unused"]
    tracker = make_tracker("mine", project="p", mode="cloud")
    assert tracker.settings == ("p", "cloud")


def test_an_unknown_tracker_is_refused_with_those_that_are_known(monkeypatch):
    provide(monkeypatch, ("mine", HERE))
    with pytest.raises(ConfigError, match="unknown tracker 'wandb', expected one of: mine"):
        make_tracker("wandb", project="p")


def test_two_providers_of_one_name_are_refused_by_name(monkeypatch):
    provide(monkeypatch, ("mine", HERE), ("mine", "other.package:Tracker"), ("swanlab", HERE))
    with pytest.raises(ConfigError, match=r"'mine' is provided by other\.package:Tracker and by "):
        make_tracker("mine", project="p")
    with pytest.raises(ConfigError, match="'swanlab' is provided by"):
        make_tracker("swanlab", project="p")


def test_the_built_in_one_listed_as_an_entry_point_is_one_provider(monkeypatch):
    provide(monkeypatch, ("swanlab", trackers_module.BUILT_IN["swanlab"]))
    assert isinstance(make_tracker("swanlab", project="p"), SwanlabTracker)


@pytest.mark.parametrize("value", ["no_such_module:Tracker", f"{__name__}:NoSuchTracker"])
def test_a_tracker_that_cannot_be_imported_is_a_sentence(monkeypatch, value):
    provide(monkeypatch, ("mine", value))
    with pytest.raises(ConfigError, match=r"--track\.tracker mine .*cannot be imported"):
        make_tracker("mine", project="p")


# --- swanlab --------------------------------------------------------------------------------------

OFFLINE = """
import atexit, socket, sys, threading
from pathlib import Path

connected = []
def refuse(self, address):
    connected.append(address)
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = refuse

from royale_server.monitoring.trackers import TrackedRun, TrackerThread, make_tracker
assert "swanlab" not in sys.modules, "imported before it was started"
tracker = make_tracker("swanlab", project="royale")
assert "swanlab" not in sys.modules, "imported before it was started"

hook, write = sys.excepthook, sys.stdout.write
failures = []
folder = Path(sys.argv[1])
for attempt in (1, 2):
    run = TrackedRun(run_id="a" * 32, name="exp", directory=folder, config={"lr": 0.1})
    thread = TrackerThread(tracker, run, on_failure=failures.append)
    thread.start()
    for seq in range(1, 6):
        thread.offer({"loss": 1 / seq, "run/step": seq * 128}, seq + 5 * (attempt - 1))
    assert thread.close(60)
    assert thread.health().logged == 5, thread.health()
assert failures == []
assert connected == [], connected
assert sys.excepthook is hook
print("MARK: printed by the test", flush=True)
"""


def test_swanlab_offline_needs_no_login_and_no_network_and_leaves_the_console_alone(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SWANLAB")}
    result = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path / "trackers")],
        cwd=ROOT,
        env={**environment, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "MARK: printed by the test" in result.stdout
    # Two attempts of one run: two folders of records for one experiment, inside the run directory.
    files = sorted((tmp_path / "trackers" / "swanlab").glob("run-*/*.swanlab"))
    assert [file.name for file in files] == [f"run-{'a' * 32}.swanlab"] * 2


def test_swanlab_local_without_its_viewer_is_refused_when_it_is_chosen(monkeypatch):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "swanboard" else object()
    )
    with pytest.raises(ConfigError, match=r"--track\.mode local: .* pip install 'swanlab"):
        make_tracker("swanlab", project="p", mode="local")


def test_swanlab_that_is_not_installed_is_refused_when_it_is_chosen(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"not installed; pip install 'royale-rl\[server\]'"):
        make_tracker("swanlab", project="p")
