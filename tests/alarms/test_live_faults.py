"""Each alarm fires within its patience on a fault in a run, and is silent without the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.declaration import Alarm
from royale_server.exit_codes import ExitCode
from tests.alarms.live_faults import FAULTS, Fault
from tests.server.trainer_world import Attempt

pytestmark = pytest.mark.chaos  # twenty runs in memory, twice

ALARMS = {alarm.name: alarm for alarm in BUILT_IN_ALARMS}
SAVE_EVERY = 1
LATE = 4
"""Rows beyond the patience in which a fault must show: it may begin in the midst of an iteration,
and a freeze of three must be over."""


def run_with(directory: Path, alarm: Alarm, fault: Fault, *, planted: bool) -> Attempt:
    algo = fault.algo if planted else fault.healthy_algo or fault.algo
    attempt = Attempt(
        directory,
        alarms=[alarm],
        algo=algo,
        save_every=SAVE_EVERY,
        min_clients=fault.num_clients,
    )
    for number in range(fault.num_clients):
        attempt.join(f"client-{number}", metrics=fault.metrics)
    attempt.play_rows(1)
    fault.world(attempt)
    attempt.play_rows(fault.healthy_rows)
    if planted:
        fault.plant(attempt)
    last_row = fault.healthy_rows + alarm.patience + LATE
    attempt.play(
        lambda: (
            len(attempt.writer.rows) >= last_row
            or bool(attempt.writer.alarm_records)
            or attempt.exit_code is not None
        )
    )
    return attempt


@pytest.mark.parametrize("name", FAULTS)
def test_an_alarm_fires_within_its_patience_on_a_planted_fault(name: str, tmp_path: Path) -> None:
    alarm, fault = ALARMS[name], FAULTS[name]
    attempt = run_with(tmp_path, alarm, fault, planted=True)
    seen = [[row.get(key) for key in alarm.keys] for row in attempt.writer.rows]
    assert attempt.writer.alarm_records, f"{name} has not fired, it read {seen}"
    record = attempt.writer.alarm_records[0]
    assert (record["kind"], record["alarm"]) == ("raise", name)
    if alarm.severity == "halt":
        attempt.end()
        assert attempt.exit_code is ExitCode.REFUSED
        assert (attempt.layout.bundles / f"{record['iteration']:06d}" / "halt.json").exists()


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_silent_in_the_same_run_without_the_fault(name: str, tmp_path: Path) -> None:
    attempt = run_with(tmp_path, ALARMS[name], FAULTS[name], planted=False)
    assert attempt.writer.alarm_records == []
    assert attempt.exit_code is None
