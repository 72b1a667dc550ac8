"""From a row to the end of a run: record, checkpoint, bundle, stop, exit code; and what follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import checkpoints
from royale_client.session import Stopped
from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.conditions import at_least
from royale_server.alarms.declaration import Alarm
from royale_server.exit_codes import ExitCode
from tests.server.trainer_world import Attempt

(KL_HIGH,) = (alarm for alarm in BUILT_IN_ALARMS if alarm.name == "kl_high")


def always(patience: int, severity: str, name: str = "always") -> Alarm:
    return replace(
        KL_HIGH,
        name=name,
        when=at_least("run/iteration", 1.0),
        patience=patience,
        severity=severity,
    )


def test_a_halt_records_saves_writes_a_bundle_tells_clients_and_ends_with_2(tmp_path: Path):
    attempt = Attempt(tmp_path, alarms=[always(3, "halt"), always(3, "warn", "beside")])
    client = attempt.join()
    attempt.play(lambda: attempt.exit_code is not None)
    assert attempt.exit_code is ExitCode.REFUSED
    # The whole table was asked before the halt.
    assert [record["alarm"] for record in attempt.writer.alarm_records] == ["always", "beside"]
    saved = checkpoints.load(checkpoints.newest(tmp_path)[0])
    assert saved.documents["state"]["alarms"]["always"]["bad"] >= 3
    (bundle,) = attempt.layout.bundles.iterdir()
    halt = json.loads((bundle / "halt.json").read_text("utf-8"))
    assert [alarm["alarm"] for alarm in halt["alarms"]] == ["always"]
    assert halt["resume"] == "again"
    assert Path(halt["checkpoint"]).name == str(attempt.writer.steps[-1])
    client.read()
    assert client.is_stopped()
    assert [event.stop.reason for event in client.events if isinstance(event, Stopped)] == [
        "halted"
    ]


def test_a_count_goes_on_through_a_checkpoint_of_the_run(tmp_path: Path):
    first = Attempt(tmp_path, alarms=[always(3, "warn")])
    first.join()
    first.play_rows(2)
    first.interrupt()
    first.end()
    assert first.writer.alarm_records == []
    second = Attempt(tmp_path, alarms=[always(3, "warn")])
    second.join()
    second.play_rows(1)
    second.run()
    (record,) = second.writer.alarm_records
    assert (record["iteration"], record["consecutive"]) == (3, 3)


def test_a_run_that_was_halted_halts_again_at_its_next_row(tmp_path: Path):
    for expected_rows in (2, 1):
        attempt = Attempt(tmp_path, alarms=[always(2, "halt")])
        attempt.join()
        attempt.play(lambda attempt=attempt: attempt.exit_code is not None)
        assert attempt.exit_code is ExitCode.REFUSED
        assert len(attempt.writer.rows) == expected_rows


def test_a_warning_that_asks_for_a_bundle_gets_one_and_the_run_goes_on(tmp_path: Path):
    attempt = Attempt(tmp_path, alarms=[replace(always(1, "warn"), dump=True)])
    attempt.join()
    attempt.play_rows(3)
    attempt.run()
    assert attempt.exit_code is None
    (bundle,) = attempt.layout.bundles.iterdir()
    assert bundle.name == "000001"
