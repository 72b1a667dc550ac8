"""A slow client costs itself, not the others (case H33)."""

from __future__ import annotations

import pytest

from tests.system import records
from tests.system.processes import DUMMY, Processes, Program, Server

FAST_MS = 20.0
"""Long enough that a turn is mostly the step, also on a machine that does other things."""
SETTLING = 3
"""Iterations after a client came that are not measured: its first turns show what it is."""
MEASURED = 8

pytestmark = pytest.mark.chaos


def join(processes: Processes, server: Server, name: str, step_ms: float) -> Program:
    flags = ("--num-envs", 8, "--step-ms", step_ms)
    client = processes.client(server, "dummy-v1", *flags, name=name)
    server.wait_for(f"client {name} joined")
    return client


def measure(server: Server) -> tuple[float, list[dict]]:
    """Let iterations pass; return the frames per second of collecting, and their rows."""
    done = len(records.metrics(server.run)) if (server.run / "metrics.jsonl").exists() else 0
    server.wait_for(f"iteration {done + SETTLING + MEASURED}:", timeout_s=300)
    rows = records.metrics(server.run)[done + SETTLING : done + SETTLING + MEASURED]
    return sum(r["run/frames"] for r in rows) / sum(r["time/collection"] for r in rows), rows


def told(rows: list[dict]) -> str:
    """Say what was discarded up to the last of these rows."""
    counts = {k.removeprefix("server/"): n for k, n in records.discards(rows[-1]).items() if n}
    return f"so far {counts}"


def start(processes: Processes, frames: int) -> Server:
    sizes = ("--algo.frames-per-iteration", frames, "--algo.total-timesteps", 10**9)
    return processes.server(*sizes, "--log-level", "debug", pair=DUMMY)


@pytest.mark.parametrize("factor", [5, 20, 200])
def test_one_slow_client_of_three_costs_the_run_less_than_a_tenth(
    processes: Processes, factor, capsys
):
    server = start(processes, frames=2048)
    for i in range(2):
        join(processes, server, f"fast{i}", FAST_MS)
    before, _ = measure(server)
    slow = join(processes, server, "slow", FAST_MS * factor)
    together, rows = measure(server)
    slow.end()
    after, _ = measure(server)
    alone = (before + after) / 2
    with capsys.disabled():
        print(
            f"\n{factor} x slower: {together:,.0f} frames/s; without it {before:,.0f} before and "
            f"{after:,.0f} after ({together / alone:.1%}); {told(rows)}"
        )
    assert together >= 0.9 * alone
    assert {row["server/conservation_error"] for row in rows} == {0}


def test_seven_fast_clients_hardly_notice_an_eighth_at_two_seconds_a_step(
    processes: Processes, capsys
):
    server = start(processes, frames=8192)
    fast = [f"fast{i}" for i in range(7)]
    for name in fast:
        join(processes, server, name, 5.0)
    alone, _ = measure(server)
    join(processes, server, "slow", 2_000.0)
    together, rows = measure(server)
    lost = records.discards(rows[-1])
    with capsys.disabled():
        print(
            f"\neighth client at 2 s: {together:,.0f} of {alone:,.0f} frames/s "
            f"({together / alone:.1%}); {told(rows)}"
        )
    assert together >= 0.8 * alone
    # The eighth is late at every learn step, and nobody else is.
    assert lost["server/discarded_late"] > 0
    assert lost["server/discarded_stale"] == lost["server/discarded_lost"] == 0
