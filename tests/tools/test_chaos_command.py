"""``royale chaos``: its words, and its refusals."""

from __future__ import annotations

import json

import pytest

from royale_server.tools.main import main


def test_faults_of_a_plan_are_shown_as_lines_of_json(capsys):
    words = ["--upstream", "127.0.0.1:8000", "--plan", "cut every 30 for inf", "--seed", "4"]
    assert main(["chaos", *words, "--show", "3"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["kind"] for entry in shown] == ["cut"] * 3
    assert shown[0]["lasting_s"] is None


def test_proxy_listens_says_where_and_ends_when_its_time_is_over(capsys):
    words = ["--upstream", "127.0.0.1:9", "--plan", "cut every 0.01", "--seconds", "0.05"]
    assert main(["chaos", *words]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("listening on ws://127.0.0.1:")
    assert json.loads(told.out.splitlines()[0])["connection"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--upstream", "127.0.0.1:8000", "--plan", "melt"], "expected KIND"),
        (["--upstream", "8000"], "--upstream 8000: expected HOST:PORT"),
        (["--upstream", "127.0.0.1:0"], "--upstream 127.0.0.1:0: expected HOST:PORT"),
        (["--upstream", "h:1", "--listen", "h:70000"], "--listen h:70000: expected HOST:PORT"),
    ],
)
def test_command_that_makes_no_sense_is_refused(capsys, words, sentence):
    assert main(["chaos", *words]) == 2
    assert sentence in capsys.readouterr().err
