"""The server passes the conformance suite, and a client in another language trains on it."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from royale_client.conformance.scenario import Outcome, Settings, play
from royale_client.conformance.server_scenarios import SERVER_SCENARIOS
from royale_client.conformance.server_seats import BOT
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.transport import ServerAddress
from tests.system.processes import DUMMY, PATIENCE_S, ROOT, Processes

TOKEN = "a-token-of-many-letters"
NODE = shutil.which("node")
ITERATIONS, FRAMES = 3, 128


def test_server_passes_the_conformance_suite(processes: Processes):
    endless = ("--algo.total-timesteps", 10**9, "--evaluate.against", BOT)
    server = processes.server(*endless, pair=DUMMY, environment={"ROYALE_TOKEN": TOKEN})
    settings = Settings(timeout_s=PATIENCE_S, quiet_s=0.05, token=TOKEN)
    under_test = ServerUnderTest(ServerAddress(url=server.url), settings)
    results = play(SERVER_SCENARIOS, under_test)
    assert [
        (r.name, r.broken, r.sentence) for r in results if r.outcome is not Outcome.PASSED
    ] == []
    assert TOKEN not in server.output


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_client_in_javascript_trains_physics_of_its_own(processes: Processes):
    assert NODE is not None
    small = ("--algo.frames-per-iteration", FRAMES, "--algo.minibatch-size", FRAMES // 2)
    server = processes.server(*small, "--until-timesteps", ITERATIONS * FRAMES)
    program = [NODE, ROOT / "docs" / "examples" / "node" / "client.mjs", "--url", server.url]
    client = subprocess.run(
        [*program, "--num-envs", "4", "--groups", "2"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (client.returncode, client.stderr) == (0, "")
    assert client.stdout.splitlines()[-1] == "the server stopped (finished)"
    assert server.wait() == 0
    lines = (server.run / "metrics.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [FRAMES, 2 * FRAMES, ITERATIONS * FRAMES]
    assert all("ppo/kl" in row and row["env/return_mean"] > 1 for row in rows)
