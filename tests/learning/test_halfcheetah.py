"""HalfCheetah-v5 over the network runs after a million frames."""

from __future__ import annotations

import pytest

from tests.system import records
from tests.system.processes import Processes

RETURN_BAR = 1_300.0
FRAMES = 1_000_000
LIMIT_S = 5_400.0

pytestmark = [pytest.mark.learning, pytest.mark.timeout(LIMIT_S + 600)]


def test_two_clients_teach_a_policy_to_run(processes: Processes, capsys):
    server = processes.server(
        *("--algo.total-timesteps", FRAMES, "--min-clients", 2),
        pair=("mlp-policy", "mujoco", "ppo", "mujoco"),
    )
    clients = [
        processes.client(server, "gym", "--env-id", "HalfCheetah-v5", "--num-envs", 4, name=name)
        for name in ("one", "two")
    ]
    assert server.wait(LIMIT_S) == 0
    assert [client.wait() for client in clients] == [0, 0]

    rows = records.metrics(server.run)
    episodes = [e for e in records.lines(server.run / "episodes.jsonl") if e["kind"] == "train"]
    final = [episode["return"] for episode in episodes[-100:]]
    seconds = sum(row["time/iteration"] for row in rows)
    with capsys.disabled():
        print(
            f"\nHalfCheetah-v5: mean return {sum(final) / 100:.0f} over the last 100 episodes at "
            f"{rows[-1]['run/step']:,} frames, {seconds:.0f} s"
        )
    assert sum(final) / 100 >= RETURN_BAR
    assert {value for row in rows for value in records.discards(row).values()} == {0}
