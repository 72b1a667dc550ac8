"""Clients that are killed and started again leave nothing behind in the server (case H34)."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.system.processes import DUMMY, Processes, Server, eventually

ROUNDS = 200
WARM_UP = 10
TIME_LIMIT_S = 120.0
MEMORY_LIMIT_KB = 16 * 1024

pytestmark = pytest.mark.chaos


def count(server: Server, file: Path) -> dict[str, int]:
    file.unlink(missing_ok=True)
    server.program.signal(signal.SIGUSR1)
    eventually(file.exists, "the counts of the server")
    return json.loads(file.read_text(encoding="utf-8"))


def settled(server: Server, file: Path) -> dict[str, int]:
    """Count when nothing but the steady client is connected."""
    counts: dict[str, int] = {}

    def only_one() -> bool:
        counts.update(count(server, file))
        return counts["ObservedConnection"] == counts["Peer"] == 1

    eventually(only_one, "the connections of the dead are closed")
    return counts


def live_and_die(processes: Processes, server: Server, number: int) -> None:
    client = processes.client(server, "dummy-v1", "--num-envs", 4, name="mortal")
    server.wait_for("client mortal joined", times=number)
    client.signal(signal.SIGKILL)
    client.wait()
    server.wait_for("client mortal left", times=number)


def test_rounds_of_kill_and_restart_leave_nothing_behind(processes: Processes, capsys):
    file = processes.directory / "counts.json"
    sizes = ("--algo.frames-per-iteration", 512, "--algo.total-timesteps", 10**9)
    plugin = ("--plugin", Path(__file__).with_name("inspector.py"), "--log-level", "debug")
    environment = {"INSPECTOR_FILE": str(file)}
    server = processes.server(*sizes, *plugin, pair=DUMMY, environment=environment)
    steady = processes.client(server, "dummy-v1", "--step-ms", 5, name="steady")
    server.wait_for("client steady joined")
    for number in range(1, WARM_UP + 1):
        live_and_die(processes, server, number)
    before = settled(server, file)
    started = time.monotonic()
    rounds = 0
    while rounds < ROUNDS and time.monotonic() - started < TIME_LIMIT_S:
        rounds += 1
        live_and_die(processes, server, WARM_UP + rounds)
    after = settled(server, file)
    with capsys.disabled():
        print(f"\n{rounds} rounds: before {before}, after {after}")
    grown_kb = after.pop("resident_kb") - before.pop("resident_kb")
    assert after == before
    assert grown_kb < MEMORY_LIMIT_KB
    assert steady.is_running()
    done = server.program.count("iteration ")
    server.wait_for("iteration ", times=done + 1)
