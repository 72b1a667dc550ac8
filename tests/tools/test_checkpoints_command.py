"""``royale checkpoints``: what it shows, what it removes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints import list_steps, save
from royale_server.run.lock import RunLock
from royale_server.tools.checkpoint_list import CheckpointRow, age_text, size_text, table
from royale_server.tools.main import main
from tests.checkpoints.contents import make_contents

ROOT = Path(__file__).parents[2]


def make_run(base: Path, name: str, scores: dict[int, float | None]) -> Path:
    """A run with a checkpoint for each step."""
    run = base / "ppo" / "mlp-policy" / name
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    for number, (step, score) in enumerate(scores.items(), start=1):
        facts = {"metrics_row": number}
        if score is not None:
            facts |= {"score": score, "score_of": "return_mean_100"}
        save(run, replace(make_contents(step), facts=facts))
    return run


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def run(runs):
    return make_run(runs, "first", {10: None, 20: 9.0, 30: 5.0, 40: 4.0})


def royale(capsys, runs, *words):
    """Exit code, output and errors of ``royale checkpoints``."""
    code = main(["checkpoints", *map(str, words), "--runs", str(runs)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def shown_states(out):
    """Step -> state, from the JSON form."""
    return {
        c["step"]: ([*c["marks"]], c["problem"] is None) for c in json.loads(out)["checkpoints"]
    }


def test_the_list_marks_the_newest_and_the_best(capsys, runs, run):
    code, out, _ = royale(capsys, runs, "first")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[1] == ["step", "iteration", "score", "size", "age", "state"]
    assert [line[0] for line in lines[2:]] == ["10", "20", "30", "40"]
    assert lines[3][:3] == ["20", "2", "9"]
    assert lines[3][-1] == "best"
    assert lines[5][-1] == "newest"


def test_json_tells_all_of_it(capsys, runs, run):
    code, out, _ = royale(capsys, runs, run, "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["run"], told["live"]) == (str(run), False)
    assert shown_states(out) == {
        10: ([], True),
        20: (["best"], True),
        30: ([], True),
        40: (["newest"], True),
    }
    assert told["checkpoints"][1]["score"] == 9.0
    assert told["checkpoints"][1]["iteration"] == 2


def test_a_cut_file_shows_at_once_and_the_one_before_is_the_newest(capsys, runs, run):
    file = run / "40" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    code, out, _ = royale(capsys, runs, "first", "--json")
    assert code == 0
    assert shown_states(out)[40] == ([], False)
    assert shown_states(out)[30] == (["newest"], True)
    assert "model.safetensors has" in royale(capsys, runs, "first")[1]


def test_a_flipped_bit_shows_when_asked_to_verify(capsys, runs, run):
    file = run / "40" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert royale(capsys, runs, "first")[0] == 0
    code, out, _ = royale(capsys, runs, "first", "--verify")
    assert code == 1
    assert "torn: model.safetensors has SHA-256" in out


def test_one_without_a_manifest_is_listed_as_torn(capsys, runs, run):
    (run / "40" / "manifest.json").unlink()
    code, out, _ = royale(capsys, runs, "first")
    assert code == 0
    assert "torn: has no manifest.json" in out


def test_pruning_is_dry_unless_told(capsys, runs, run):
    code, out, _ = royale(capsys, runs, "first", "--prune", "--keep-last", 1)
    size = sum(f.stat().st_size for s in (10, 30) for f in (run / str(s)).iterdir())
    manifests = sum((run / str(s) / "manifest.json").stat().st_size for s in (10, 30))
    assert code == 0
    assert f"would remove 2 checkpoints, {size_text(size - manifests)}: 10, 30" in out
    assert list_steps(run) == [10, 20, 30, 40]


def test_pruning_keeps_the_best_the_newest_and_the_pinned(capsys, runs, run):
    assert royale(capsys, runs, "first", "--pin", 10)[0] == 0
    code, out, _ = royale(capsys, runs, "first", "--prune", "--keep-last", 1, "--yes")
    assert code == 0
    assert "removed 1 checkpoint" in out
    assert list_steps(run) == [10, 20, 40]
    royale(capsys, runs, "first", "--unpin", 10)
    royale(capsys, runs, "first", "--prune", "--keep-last", 1, "--yes")
    assert list_steps(run) == [20, 40]


def test_pruning_keeps_one_of_every_stretch(capsys, runs):
    run = make_run(runs, "long", dict.fromkeys(range(10, 70, 10)))
    # Stretches of 20 frames from 20 on begin with 20, 40 and 60.
    royale(capsys, runs, "long", "--prune", "--keep-last", 1, "--keep-every", 20, "--yes")
    assert list_steps(run) == [20, 40, 60]


def test_the_newest_two_of_a_run_in_use_stay(capsys, runs):
    run = make_run(runs, "live", dict.fromkeys((10, 20, 30)))
    lock = RunLock(run / "lock")
    code, _, err = royale(capsys, runs, "live", "--prune", "--keep-last", 1, "--yes")
    assert code == 4
    assert f"in use by process {os.getpid()}" in err
    assert list_steps(run) == [10, 20, 30]
    assert royale(capsys, runs, "live", "--prune", "--keep-last", 2, "--yes")[0] == 0
    assert list_steps(run) == [20, 30]
    assert "in use by process" in royale(capsys, runs, "live")[1]
    lock.release()


def test_nothing_is_pruned_while_the_newest_is_not_whole(capsys, runs, run):
    (run / "40" / "state.json").unlink()
    code, _, err = royale(capsys, runs, "first", "--prune", "--keep-last", 1, "--yes")
    assert code == 4
    assert "state.json is missing" in err
    assert list_steps(run) == [10, 20, 30, 40]


def test_a_step_that_is_not_there_cannot_be_pinned(capsys, runs, run):
    code, _, err = royale(capsys, runs, "first", "--pin", 15)
    assert code == 2
    assert "no checkpoint of step 15; it has 10, 20, 30, 40" in err


@pytest.mark.parametrize(
    "words",
    [("--yes",), ("--keep-last", "2"), ("--prune", "--pin", "10"), ("--prune", "--keep-last", "0")],
)
def test_flags_that_do_not_go_together_are_refused(capsys, runs, run, words):
    assert royale(capsys, runs, "first", *words)[0] == 2
    assert list_steps(run) == [10, 20, 30, 40]


def test_a_unique_beginning_names_a_run_and_an_exact_name_goes_first(capsys, runs, run):
    make_run(runs, "second", {7: None})
    make_run(runs, "second-too", {8: None})
    assert royale(capsys, runs, "fi")[0] == 0
    assert "/second:" in royale(capsys, runs, "second")[1]
    code, _, err = royale(capsys, runs, "seco")
    assert code == 2
    assert err.splitlines()[1:] == ["  ppo/mlp-policy/second", "  ppo/mlp-policy/second-too"]


def test_latest_is_the_run_that_was_started_last_and_never_one_moved_aside(capsys, runs, run):
    for at, name in enumerate(("one", "two", ".overwritten-0badcafe-two")):
        made = make_run(runs, name, {5: None})
        (made / "config.json").write_text("{}")
        os.utime(made / "config.json", (2e9 + at, 2e9 + at))
    assert "/two:" in royale(capsys, runs, "latest")[1]


def test_an_unknown_run_is_answered_with_those_there_are(capsys, runs, run):
    code, _, err = royale(capsys, runs, "thrid")
    assert code == 2
    assert "ppo/mlp-policy/first" in err
    assert royale(capsys, runs.with_name("nowhere"), "x")[0] == 2


def test_help_and_lists_load_no_heavy_library(runs, run):
    for words in (["--help"], ["checkpoints", str(run)], ["verify-resume", "--help"]):
        program = (
            "import sys; from royale_server.tools.main import main\n"
            f"code = main({words!r})\n"
            "print(code, *(set(sys.modules) & {'torch', 'safetensors', 'swanlab', 'gymnasium'}))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert answer.stdout.splitlines()[-1] == "0", answer.stderr


def test_sizes_and_ages_are_told_in_the_largest_fitting_unit():
    assert [size_text(n) for n in (0, 999, 1000, 1_234_567)] == ["0 B", "999 B", "1.0 kB", "1.2 MB"]
    assert [age_text(s) for s in (-5, 59, 60, 3600, 200_000)] == [
        *("0 s", "59 s", "1 min", "1 h", "2 d"),
    ]


def test_columns_are_aligned():
    row = CheckpointRow(
        path=Path("run/983040"),
        step=983040,
        iteration=480,
        score=487.25,
        score_of="evaluation",
        score_in="episodes of Walk-v0",
        size_bytes=31_200_000,
        saved_at=1000.0,
        marks=("newest", "best"),
        problem=None,
    )
    assert table([row], now=1180.0).splitlines() == [
        "   step  iteration  score     size    age  state",
        "983,040        480  487.2  31.2 MB  3 min  newest, best",
    ]
