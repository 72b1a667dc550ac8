"""A disk or a tracker that does not answer for a minute delays no action, and an alarm says so.

Phases without and with it take turns in one run. ``ROYALE_BLOCKED_S`` is the length of each phase
in seconds, for a shorter look.
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

PHASE_S = float(os.environ.get("ROYALE_BLOCKED_S", "60"))
"""Longer than the server takes between two looks at itself."""
NUM_PHASES = 4
LIMIT = 1.2

BLOCKING = '''\
"""Keeps what writes from writing for as long as a file is there."""

import os
import sys
import time
import types
from pathlib import Path

from royale_server.monitoring import trackers
from royale_server.run import records

DISK, TRACKER = Path({disk!r}), Path({tracker!r})
write = os.write


def wait(file):
    while file.exists():
        time.sleep(0.05)


class _Disk:
    """``os`` as the module knows it, with a disk that may not answer."""

    def __getattr__(self, name):
        return getattr(os, name)

    @staticmethod
    def write(descriptor, data):
        wait(DISK)
        return write(descriptor, data)


class _Tracker:
    """Takes rows, and may not answer."""

    name = "stuck"

    def start(self, run):
        """Nothing to begin."""

    def log(self, row, step):
        wait(TRACKER)

    def finish(self):
        """Nothing to end."""


def register(registry):
    """Called by --plugin."""
    records.os = _Disk()
    module = sys.modules["stuck_tracker"] = types.ModuleType("stuck_tracker")
    module.make = lambda project, mode: _Tracker()
    trackers.BUILT_IN["stuck"] = "stuck_tracker:make"
'''


@pytest.mark.timeout(NUM_PHASES * PHASE_S + 180)
@pytest.mark.parametrize(
    ("what", "alarm"), [("disk", "writer_stalled"), ("tracker", "tracker_stalled")]
)
def test_what_does_not_answer_delays_no_action_and_raises_an_alarm(
    what: str,
    alarm: str,
    processes: Processes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {name: tmp_path / f"blocked-{name}" for name in ("disk", "tracker")}
    plugin = tmp_path / "blocking.py"
    plugin.write_text(BLOCKING.format(**{name: str(path) for name, path in files.items()}))
    server = processes.server(
        *("--plugin", plugin, "--track.enabled", "--track.tracker", "stuck"),
        *("--alarms.writer-wait-s", PHASE_S / 8, "--alarms.tracker-rows", 3),
        # One environment in which nothing ever changes is slow, and nothing is to be learnt there.
        *("--alarms.disabled", "capacity_ratio", "kl_dead"),
        *("--algo.frames-per-iteration", 2048, "--algo.num-epochs", 1),
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
        for phase in range(NUM_PHASES):
            is_blocked = phase % 2 == 1
            if is_blocked:
                files[what].touch()
            latencies[is_blocked] += _act_for(policy, PHASE_S)
            files[what].unlink(missing_ok=True)
        server.program.wait_for(rf"alarm \[warn\] {alarm}")
        server.program.wait_for(f"alarm over: {alarm}")
    free_s, blocked_s = (float(np.percentile(latencies[key], 99)) for key in (False, True))
    with capsys.disabled():
        print(
            f"\n{what}: p99 of an answer {free_s * 1e3:.2f} ms free ({len(latencies[False])} "
            f"answers), {blocked_s * 1e3:.2f} ms blocked ({len(latencies[True])}): "
            f"{blocked_s / free_s:.2f} x"
        )
    server.interrupt()
    assert server.wait() == 0
    raised = [r for r in records.lines(server.run / "alarms.jsonl") if r["kind"] == "raise"]
    assert {record["alarm"] for record in raised} == {alarm}
    assert blocked_s <= LIMIT * free_s


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
