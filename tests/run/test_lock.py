"""One process works on a run; the kernel says which, and forgets it when that process is gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from royale_server.run.lock import Owner, RunInUseError, RunLock, holder

ROOT = Path(__file__).resolve().parents[2]

HOLD = """
import sys
from pathlib import Path
from royale_server.run.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

FORK_AND_DIE = """
import os, signal, sys
from pathlib import Path
from royale_server.run.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()  # outlives its parent
    os._exit(0)
signal.pause()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


def start(script, path):
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process):
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)


def test_a_second_lock_is_refused_with_the_owner(path):
    first = RunLock(path)
    with pytest.raises(
        RunInUseError, match=rf"in use by process {os.getpid()} on .+ since 20"
    ) as e:
        RunLock(path)
    assert e.value.owner.pid == os.getpid()
    first.release()
    RunLock(path).release()


def test_asking_takes_nothing_and_makes_nothing(path):
    assert holder(path) is None
    assert not path.exists()
    lock = RunLock(path)
    owner = holder(path)
    assert owner is not None
    assert owner.pid == os.getpid()
    lock.release()
    assert holder(path) is None


def test_another_process_is_seen_and_named_and_its_death_frees_the_run(path):
    process = start(HOLD, path)
    owner = holder(path)
    assert owner is not None
    assert owner.pid == process.pid
    with pytest.raises(RunInUseError, match=f"process {process.pid}"):
        RunLock(path)

    process.send_signal(signal.SIGKILL)
    end(process)
    assert holder(path) is None
    lock = RunLock(path)
    assert lock.previous == owner
    lock.release()


def test_after_a_clean_end_there_is_nothing_to_take_over(path):
    RunLock(path).release()
    lock = RunLock(path)
    assert lock.previous is None
    lock.release()
    lock.release()


@pytest.mark.parametrize("record", [b"", b"nonsense", b"[]", b'{"pid": "x"}', b"\xff\xfe"])
def test_an_unreadable_record_is_an_unknown_owner_and_no_obstacle(path, record):
    path.write_bytes(record)
    lock = RunLock(path)
    assert lock.previous is None
    os.truncate(path, 0)
    path.write_bytes(record)
    assert holder(path) == Owner(pid=0, host="an unknown host", since="unknown time")
    lock.release()


def test_a_lock_file_replaced_meanwhile_is_not_mistaken_for_the_one_held(
    path, tmp_path, monkeypatch
):
    # The run is moved aside between opening its lock and locking it: the old file must not count.
    opened = []
    real_open = os.open

    def move_after_open(name, *rest):
        descriptor = real_open(name, *rest)
        if not opened:
            path.rename(tmp_path / "moved")
        opened.append(name)
        return descriptor

    path.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", move_after_open)
        lock = RunLock(path)
    assert len(opened) == 2
    assert (tmp_path / "moved").read_bytes() == b""
    assert holder(path) is not None
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_run_locked_after_its_parent_died(path):
    process = start(FORK_AND_DIE, path)
    assert holder(path) is not None
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    assert holder(path) is None
    end(process)
