"""Tables of the pages that repeat what the code decides: codes, reasons, kinds, console lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from royale_client import leaving
from royale_client.wire.errors import FAULT_CODES
from royale_server import crash_points
from royale_server.exit_codes import EXIT_CODE_MEANINGS
from royale_server.monitoring import console_text
from royale_server.scheduler import Discard
from tests.docs.pages import ROOT

LOOP = (ROOT / "docs" / "training-loop.md").read_text("utf-8")
TROUBLES = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under a header row that begins so."""
    after = text[text.index(f"| {heading}") :].split("\n\n", maxsplit=1)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in after.splitlines()[2:]
    ]


def test_exit_codes_of_the_server_are_those_of_the_code():
    told = {int(code): meaning for code, meaning in rows(LOOP, "exit code | `royale-server`")}
    assert told == {int(code): meaning for code, meaning in EXIT_CODE_MEANINGS.items()}


def test_exit_codes_of_the_client_are_all_told():
    told = {int(row[0]) for row in rows(LOOP, "exit code | `royale-env-client`")}
    assert told == {getattr(leaving, name) for name in dir(leaving) if name.startswith("EXIT_")}


def test_every_reason_to_discard_a_frame_is_told():
    told = [row[0].strip("`") for row in rows(LOOP, "reason | what happened")]
    assert told == [reason.value for reason in Discard]


def test_fault_codes_and_whether_the_client_comes_back_are_those_of_the_protocol():
    told = {
        code: row[1] == "yes"
        for row in rows(TROUBLES, "code | comes back by itself")
        for code in re.findall(r"`(\w+)`", row[0])
    }
    assert told == {code: fault.retry for code, fault in FAULT_CODES.items()}


def test_named_kinds_of_events_exist():
    entry = LOOP[LOOP.index("- `events.jsonl`") :].split("\n\n")[0]
    kinds = re.findall(r"`(\w+)`", entry)
    source = "".join(p.read_text("utf-8") for p in Path(ROOT / "royale_server").rglob("*.py"))
    assert len(kinds) > 5
    assert [kind for kind in kinds if f'"{kind}"' not in source] == []


def test_crash_points_are_those_of_the_code():
    page = (ROOT / "docs" / "tools.md").read_text("utf-8")
    told = {point.strip("`"): meaning for point, meaning in rows(page, "point | what has happened")}
    assert told == dict(crash_points.POINTS)


OWED = console_text.Owed(client="left", group=0, is_first=False, for_s=5.0)


@pytest.mark.parametrize(
    "line",
    [
        console_text.listening_lines(["ws://127.0.0.1:8000"], 1)[0],
        console_text.joined_line("left", "CartPole-v1", 8, "127.0.0.1:40312"),
        console_text.built_line("cpu", 2048),
        console_text.waiting_line(2),
        console_text.queue_waiting_line(5.0, [OWED], 0),
        console_text.collected_line(2048, 1.2),
        console_text.epoch_line(3, 10, 0.21, {"ppo/kl": 0.01}).partition(" kl")[0],
        console_text.saved_line(20480, Path("run")).partition("run")[0],
        console_text.all_gone_line(None),
    ],
)
def test_console_line_is_told_as_it_appears(line):
    assert line in LOOP


def test_every_invariant_of_a_batch_is_told():
    source = (ROOT / "royale_server" / "model" / "invariants.py").read_text("utf-8")
    named = set(re.findall(r'BrokenBatchError\(\s*"(\w+)"', source))
    named |= {f"{name}_finite" for name in ("reward", "log_prob", "value")}
    told = {
        name for row in rows(LOOP, "invariant | what") for name in re.findall(r"`(\w+)`", row[0])
    }
    assert told == named
