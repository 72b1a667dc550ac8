"""The command: what it lists, refuses, prints and writes."""

import json

import pytest

from royale_server.bench.plan import BenchError, Claim
from royale_server.tools import bench_command
from royale_server.tools.main import main
from tests.bench.acts import Act, make_bench


@pytest.fixture
def acts(monkeypatch):
    """Put a bench of acts in place of the catalog; they answer 2 and 1."""

    def put(*, bar=None, a=None):
        claims = (Claim(of="a", over="b", figure="speed", bar=bar),)
        first = Act("a", [2.0] * 9) if a is None else a
        bench = make_bench(first, Act("b", [1.0] * 9), claims=claims)
        monkeypatch.setattr(bench_command, "by_name", lambda: {"acts": bench})

    return put


def test_the_list_names_every_bench_and_its_bars(capsys):
    assert main(["bench", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "rollout-64\n" in shown
    assert "royale : plain loop: ≥ 0.85, aim 1.1" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name what to measure"),
        (["--all", "long"], "name what to measure"),
        (["lnog"], "unknown: lnog; known: rollout-64"),
        (["long", "--rounds", "0"], "must be above 0"),
        (["long", "--peer-python", "sb4=/bin/sh"], "expected PEER=PYTHON"),
        (["long", "--peer-python", "sb3=/nowhere/python"], "expected PEER=PYTHON"),
    ],
)
def test_a_wrong_command_is_refused(words, message, capsys):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_results_are_shown_and_written(acts, tmp_path, capsys):
    acts(bar=1.5)
    file = tmp_path / "results.json"
    assert main(["bench", "acts", "--rounds", "3", "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert "cores" in shown.out
    assert "reached" in shown.out
    assert "acts 3/3: b: speed 1" in shown.err
    document = json.loads(file.read_text())
    assert document["benches"][0]["claims"][0]["value"] == 2.0
    assert document["rounds"] == 3
    assert document["machine"]["cores"] >= 1


def test_a_bar_that_is_not_reached_is_a_failure(acts, capsys):
    acts(bar=2.5)
    assert main(["bench", "acts", "--rounds", "3"]) == 1
    assert "NOT REACHED" in capsys.readouterr().out


def test_with_two_rounds_no_bar_is_judged(acts, capsys):
    acts(bar=2.5)
    assert main(["bench", "acts", "--rounds", "2"]) == 0
    assert "too few to claim anything" in capsys.readouterr().err


class Broken(Act):
    def measure(self, stage, seconds):
        raise BenchError("the server would not start")


def test_what_could_not_be_measured_is_said_and_is_a_failure(acts, capsys):
    acts(a=Broken("a", []))
    assert main(["bench", "acts", "--rounds", "3"]) == 1
    assert "NOT MEASURED: the server would not start" in capsys.readouterr().out
