"""``royale alarms``, and asking a server for something that nothing works on."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from royale_server.run.layout import RunLayout
from royale_server.run.lock import RunLock
from royale_server.run.records import to_line
from royale_server.run.requests import ANSWERED, RequestFolder, Verb
from royale_server.tools.main import main


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    made = RunLayout(base=tmp_path, algorithm="ppo", policy="mlp", name="first")
    made.directory.mkdir(parents=True)
    made.run_json.write_text("{}")
    return made


def test_the_table_names_every_alarm_with_its_flag(capsys):
    assert main(["alarms"]) == 0
    text = capsys.readouterr().out
    assert "clip_pinned  [halt, after 3]" in text
    assert "ppo/clip_fraction above 0.5 (--alarms.clip-fraction)" in text
    assert main(["alarms", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == text.count("fires when:")


def test_open_alarms_of_a_run_come_first_and_can_be_asked_for_alone(layout: RunLayout, capsys):
    words = ["first", "--runs", str(layout.base)]
    assert main(["alarms", *words]) == 0
    assert capsys.readouterr().out == "0 open, 0 over\n"
    records = [
        {"kind": "raise", "alarm": "a", "severity": "warn", "iteration": 3, "wall": 0},
        {"kind": "raise", "alarm": "b", "severity": "warn", "iteration": 4, "wall": 0},
        {"kind": "clear", "alarm": "a", "iteration": 6},
    ]
    layout.alarms.write_bytes(b"".join(to_line(record) for record in records))
    assert main(["alarms", *words]) == 0
    count, first, second = capsys.readouterr().out.splitlines()
    assert count == "1 open, 1 over"
    assert "open     [warn] b: iteration 4" in first
    assert "cleared  [warn] a: iteration 3 to 6" in second
    assert main(["alarms", *words, "--open"]) == 1


@pytest.mark.parametrize("verb", [verb.value for verb in Verb])
def test_nobody_is_asked_where_nothing_works_on_the_run(layout: RunLayout, verb: str, capsys):
    assert main([verb, "first", "--runs", str(layout.base)]) == 3
    assert "nothing works on" in capsys.readouterr().err
    assert not layout.requests.exists()


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_the_answer_of_the_server_is_waited_for(layout: RunLayout, ok: bool, code: int, capsys):
    lock = RunLock(layout.lock)
    answering = threading.Thread(target=_answer, args=(layout, ok))
    answering.start()
    assert main(["checkpoint", "first", "--runs", str(layout.base), "--timeout", "30"]) == code
    answering.join()
    assert "what came of it" in capsys.readouterr().out
    lock.release()


def test_a_request_that_is_not_answered_is_taken_back(layout: RunLayout, capsys):
    lock = RunLock(layout.lock)
    assert main(["pause", "first", "--runs", str(layout.base), "--timeout", "0.2"]) == 1
    assert "no answer within 0.2 s" in capsys.readouterr().err
    assert list(layout.requests.iterdir()) == []
    lock.release()


def _answer(layout: RunLayout, ok: bool) -> None:
    folder = RequestFolder(layout.requests)
    while not (taken := folder.take()):
        time.sleep(0.01)
    event = {"kind": ANSWERED, "request": taken[0].id, "ok": ok, "message": "what came of it"}
    with layout.events.open("ab") as file:
        file.write(to_line({"kind": "other", "message": "noise"}) + to_line(event))
