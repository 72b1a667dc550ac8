"""``royale verify-resume``: commands it refuses, words it decides itself, and one check through."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from royale_server.tools import verify_command
from royale_server.tools.kill_plan import KillPlan
from royale_server.tools.main import main
from royale_server.tools.resume_check import Check, Verdict, judge
from royale_server.tools.verified_run import client_words
from royale_server.tools.verify_words import own_words

ROOT = Path(__file__).parents[2]
PAIR = ("mlp-policy", "default", "ppo", "default")
INLINE = (*PAIR, "--inline", "CartPole-v1")


def test_what_the_check_decides_is_left_out_and_told():
    own = own_words(
        [
            *PAIR,
            *("--seed", "3", "--exp-name", "x", "--resume", "--port=9000"),
            *("--until-timesteps", "100", "--track.enabled", "--track.project", "p"),
        ],
        save_every=3,
    )
    assert own.words == (*PAIR, "--seed", "3", "--save-every", "3")
    assert own.dropped == (
        *("--exp-name x", "--resume", "--port=9000", "--until-timesteps 100"),
        *("--track.enabled", "--track.project p"),
    )


def test_a_save_interval_of_ones_own_stays():
    assert own_words([*PAIR, "--save_every=5"], save_every=3).words == (*PAIR, "--save_every=5")


def test_the_address_goes_where_the_client_wants_it_or_to_the_end():
    assert client_words("run '{url}' --x 'a b'", "ws://h:1") == ["run", "ws://h:1", "--x", "a b"]
    assert client_words("run env", "ws://h:1") == ["run", "env", "--server-url", "ws://h:1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "words are missing"),
        (["--", *PAIR], "needed once for each client"),
        (["--client-command", "c", "--", *INLINE], "--inline has no clients"),
        (["--client-command", "a", "--client-command", "b", "--", *PAIR], "--deterministic is"),
        (["--client-command", "'", "--", *PAIR], "No closing quotation"),
        (["--kill-at", "lern", "--", *INLINE], "'lern' is no crash point"),
        (["--kill-seed", "1", "--", *INLINE], "--kill-seed: only together with"),
        (["--iterations", "0", "--", *INLINE], "must be above 0"),
        (["--", *INLINE, "--sed", "3"], "--sed"),
        (["--keep", str(ROOT), "--", *INLINE], "exists"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_starts(capsys, words, told):
    assert main(["verify-resume", *words]) == 2
    assert told in capsys.readouterr().err


def test_words_after_the_separator_are_for_this_subcommand_alone(capsys):
    assert main(["checkpoints", "latest", "--", "x"]) == 2
    assert "nothing is expected after --" in capsys.readouterr().err


def test_a_key_that_no_row_had_is_told_and_fails_the_check(monkeypatch, tmp_path, capsys):
    checks = []

    def carried_out(check, say):
        checks.append(check)
        return Verdict(differences=[], never_written=["losses/x"], iterations=9, after_kill=3)

    monkeypatch.setattr(verify_command, "carry_out", carried_out)
    assert main(["verify-resume", "--keep", str(tmp_path / "kept"), "--", *INLINE]) == 1
    told = capsys.readouterr().out
    assert "NOT COMPARED: no row has losses/x" in told
    assert "the same" not in told
    (check,) = checks
    # Every row has a step; only iterations in which an episode ends have a return.
    assert {"run/step", "env/return_mean"} <= check.keys
    assert check.keys - check.always >= {"env/return_mean"}
    assert "run/step" in check.always


def test_rows_of_both_runs_are_searched_for_keys_that_were_never_written(tmp_path):
    keys = frozenset({"x/a", "x/b", "x/rare"})
    check = Check(
        words=(),
        clients=(),
        keys=keys,
        always=keys - {"x/rare"},
        plan=KillPlan(point="learn", count=None, save_every=3),
        iterations=1,
        silence_s=1.0,
        folder=tmp_path,
    )
    rows = {1: {"x/a": 1.0}, 2: {"x/a": 2.0}}
    verdict = judge(check, rows, rows, killed_after=1)
    assert (verdict.differences, verdict.never_written) == ([], ["x/b"])
    assert (verdict.iterations, verdict.after_kill, verdict.is_same) == (2, 1, False)
    full = {i: row | {"x/b": 0.0} for i, row in rows.items()}
    assert judge(check, full, full, killed_after=1).is_same


@pytest.mark.chaos
def test_a_killed_and_resumed_run_is_found_the_same(tmp_path):
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "royale_server.tools", "verify-resume"),
            *("--kill-at", "row", "--iterations", "2", "--keep", tmp_path / "kept", "--", *INLINE),
            *("--inline-num-envs", "4", "--algo.frames-per-iteration", "64"),
            *("--algo.num-epochs", "1", "--save-every", "2"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "b: is killed at row:6" in checked.stdout
    assert "the same to the last bit" in checked.stdout
    assert len(list((tmp_path / "kept" / "runs").glob("*/*/*/metrics.jsonl"))) == 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.chaos)]
)
def test_a_signal_ends_everything_that_was_started(tmp_path, number):
    started = tmp_path / "started"
    client = f"{sys.executable} -c 'import sys,time; open(sys.argv[1], \"w\"); time.sleep(600)'"
    folder = tmp_path / "kept"
    check = subprocess.Popen(
        [
            *(sys.executable, "-m", "royale_server.tools", "verify-resume", "--keep", folder),
            *("--client-command", f"{client} {started} {{url}}", "--", *PAIR),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    while not started.exists():  # a server listens, and a client runs
        assert check.poll() is None
        time.sleep(0.05)
    check.send_signal(number)
    assert check.wait(60) == 130
    check.stdout.close()
    assert running_with(str(tmp_path)) == []


def running_with(text):
    """Command lines of running processes that hold ``text``."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            found += [words] if text in words else []
    return found
