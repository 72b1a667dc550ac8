"""A disk that does not answer delays no action, and an alarm says so.

Phases without and with it take turns in one run. ``ROYALE_BLOCKED_S`` is the length of each phase
in seconds; the default is short, since the whole takes four of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from royale_client import PolicyClient
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.system import records
from tests.system.processes import PPO, Processes

pytestmark = pytest.mark.chaos

PHASE_S = float(os.environ.get("ROYALE_BLOCKED_S", "8"))
"""Longer than the server takes between two looks at itself."""
LIMIT = 1.2
NOISE_S = 0.002
"""Difference of two 99th percentiles that a busy machine makes by itself."""

BLOCKING = '''\
"""Keeps the writer's thread from the disk for as long as a file is there."""

import os
import time
from pathlib import Path

from royale_server.run import records

FILE = Path({path!r})
write = os.write


class _Disk:
    """``os`` as the module knows it, with a disk that may not answer."""

    def __getattr__(self, name):
        return getattr(os, name)

    @staticmethod
    def write(descriptor, data):
        while FILE.exists():
            time.sleep(0.05)
        return write(descriptor, data)


def register(registry):
    """Called by --plugin."""
    records.os = _Disk()
'''


def test_a_blocked_disk_delays_no_action_and_raises_an_alarm(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "blocked"
    plugin = tmp_path / "blocking_disk.py"
    plugin.write_text(BLOCKING.format(path=str(blocked)))
    server = processes.server(
        *("--plugin", plugin, "--alarms.writer-wait-s", PHASE_S / 8),
        *("--algo.frames-per-iteration", 4096, "--algo.num-epochs", 1),
        *("--algo.total-timesteps", 10**9, "--save-every", 10**6),
        pair=PPO,
    )
    latencies: dict[bool, list[float]] = {False: [], True: []}
    with PolicyClient(
        server.url,
        observation_space=BoxSpec(-1.0, 1.0, (4,), "float32"),
        action_space=DiscreteSpec(2),
        env_id="latency",
        client_name="latency",
    ) as policy:
        _act_for(policy, 2.0)  # nothing is warm yet
        for is_blocked in (False, True, False, True):
            if is_blocked:
                blocked.touch()
            else:
                blocked.unlink(missing_ok=True)
            latencies[is_blocked] += _act_for(policy, PHASE_S)
        blocked.unlink()
        server.program.wait_for(r"alarm \[warn\] writer_stalled")
        server.program.wait_for("alarm over: writer_stalled")
    free_s, blocked_s = (float(np.percentile(latencies[key], 99)) for key in (False, True))
    with capsys.disabled():
        print(
            f"\np99 of an answer: {free_s * 1e3:.2f} ms free ({len(latencies[False])} answers), "
            f"{blocked_s * 1e3:.2f} ms blocked ({len(latencies[True])}): {blocked_s / free_s:.2f} x"
        )
    assert blocked_s <= max(LIMIT * free_s, free_s + NOISE_S)
    server.interrupt()
    assert server.wait() == 0
    raised = [r for r in records.lines(server.run / "alarms.jsonl") if r["kind"] == "raise"]
    assert {record["alarm"] for record in raised} == {"writer_stalled"}


def _act_for(policy: PolicyClient, duration_s: float) -> list[float]:
    """Ask for actions; return how long each answer took, in seconds."""
    observation = np.zeros(4, np.float32)
    taken: list[float] = []
    until = time.perf_counter() + duration_s
    while (asked_at := time.perf_counter()) < until:
        policy.act(observation)
        taken.append(time.perf_counter() - asked_at)
        policy.observe(
            reward=1.0,
            terminated=False,
            truncated=len(taken) % 200 == 0,
            observation=observation,
        )
    return taken
