"""The token is written nowhere, and what clients call themselves names no file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.certificates import CERT, KEY
from tests.system.processes import DUMMY, PPO, Processes

TOKEN = "8s-Kq.2vX_pL-73bd"
HOSTILE_NAMES = ("../../escaped", "/etc/escaped", "..", "a/../../escaped", "nul;$(touch escaped)")


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def test_nothing_that_a_run_leaves_or_shows_holds_the_token(processes: Processes, tmp_path):
    token_file = tmp_path / "token.txt"
    token_file.write_text(TOKEN, encoding="utf-8")
    runs = tmp_path / "files" / "runs"
    small = ("--algo.frames-per-iteration", 128, "--algo.num-epochs", 1, "--log-level", "debug")
    flags = ("--token-file", token_file, "--tls-cert", CERT, "--tls-key", KEY)
    server = processes.server(*small, *flags, pair=PPO, runs=runs)
    client = processes.client(
        f"wss://localhost:{server.port}",
        *("gym", "--env-id", "CartPole-v1", "--num-procs", 2, "--num-envs", 2),
        *("--tls-ca", CERT, "--log-level", "debug"),
        environment={"ROYALE_TOKEN": TOKEN},
    )
    server.wait_for("iteration 2:")
    children = descendants(client.pid)
    assert len(children) == 2
    for pid in (server.program.pid, client.pid, *children):
        assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
    wrong = processes.client(
        f"wss://localhost:{server.port}",
        *("dummy-v1", "--tls-ca", CERT, "--log-level", "debug"),
        environment={"ROYALE_TOKEN": TOKEN + "x"},
    )
    assert wrong.wait() == 77
    server.interrupt()
    assert (server.wait(), client.wait()) == (0, 0)

    written = [path for path in runs.rglob("*") if path.is_file()]
    kinds = {path.name for path in written}
    assert kinds >= {"config.json", "run.json", "metrics.jsonl", "events.jsonl", "manifest.json"}
    for path in written:
        assert TOKEN.encode() not in path.read_bytes(), path
    for program in processes.all:
        assert TOKEN not in program.output, program.name


def test_names_of_clients_name_no_files(processes: Processes, tmp_path):
    place = tmp_path / "deep" / "er"
    place.mkdir(parents=True)
    sizes = ("--min-clients", len(HOSTILE_NAMES))
    server = processes.server(*sizes, pair=DUMMY, runs=place / "runs")
    for name in HOSTILE_NAMES:
        processes.client(server, "dummy-v1", "--client-name", name)
    assert [program.wait() for program in processes.all] == [0] * (1 + len(HOSTILE_NAMES))
    events = (server.run / "events.jsonl").read_text(encoding="utf-8")
    assert all(json.dumps(name) in events for name in HOSTILE_NAMES)
    assert [path for path in tmp_path.rglob("*") if "escaped" in path.name] == []
    assert not Path("/etc/escaped").exists()
    assert "escaped" not in os.listdir()
