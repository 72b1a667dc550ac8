"""Letters in the control file of a live run, and what ``royale`` asks of it."""

from __future__ import annotations

import pytest

from royale_server.tools.main import main
from tests.system import records
from tests.system.processes import CARTPOLE, Processes, eventually

SMALL = (
    *("--exp-name", "run", "--algo.frames-per-iteration", 64, "--algo.num-epochs", 1),
    *("--save-every", 10_000, "--log-level", "debug"),
)


def test_a_run_is_saved_paused_and_ended_by_letters(processes: Processes):
    server = processes.server(*SMALL)
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    server.wait_for("iteration 2:")
    control = server.run / "control"

    control.write_text("c\n")
    server.wait_for("saved the checkpoint of step")
    (saved,) = records.steps(server.run)
    assert not control.exists()

    control.write_text("p")
    server.wait_for("paused; p again, c or q in the control file ends it")
    eventually(lambda: client.count("waiting for the server: pause") > 0, "the client says why")
    rows = records.metrics(server.run)
    assert rows[-1]["run/step"] >= saved

    control.write_text("q")
    assert (server.wait(), client.wait()) == (0, 0)
    server.wait_for("quit asked for through the control file")
    # Nothing was learnt while it was paused, and the frames of the open iteration are kept.
    assert records.metrics(server.run) == rows
    assert records.steps(server.run)[-1] >= rows[-1]["run/step"]


def test_a_run_is_saved_paused_continued_and_ended_through_royale(
    processes: Processes, capsys: pytest.CaptureFixture[str]
):
    server = processes.server(*SMALL)
    client = processes.client(server, *CARTPOLE, "--num-envs", 4)
    server.wait_for("iteration 2:")
    run = str(server.run)

    assert main(["checkpoint", run]) == 0
    (saved,) = records.steps(server.run)
    assert f"the checkpoint of step {saved} is on disk" in capsys.readouterr().out
    assert main(["continue", run]) == 1  # it is not paused
    assert main(["pause", run]) == 0
    assert main(["pause", run]) == 0  # it stays so
    rows = records.metrics(server.run)
    assert main(["continue", run]) == 0
    server.wait_for(f"iteration {rows[-1]['run/iteration'] + 1}:")

    capsys.readouterr()
    assert main(["stop", run]) == 0
    assert (server.wait(), client.wait()) == (0, 0)
    assert "the run ends, with a checkpoint" in capsys.readouterr().out
    # That of the stop: beyond the one asked for, and with the frames since the last row.
    assert records.steps(server.run)[-1] >= records.metrics(server.run)[-1]["run/step"]
    answers = [event["verb"] for event in records.events(server.run, "answered")]
    assert answers == ["checkpoint", "continue", "pause", "pause", "continue", "stop"]
