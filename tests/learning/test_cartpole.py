"""CartPole-v1 over the network is solved within 200,000 frames, whatever the seed and dispatch."""

from __future__ import annotations

import pytest

from tests.system import records
from tests.system.processes import CARTPOLE, Processes

RETURN_BAR = 475.0
FRAMES = 200_000
LIMIT_S = 900.0

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("dispatch", ["barrier", "dynamic"])
@pytest.mark.parametrize("seed", range(5))
def test_two_clients_teach_a_policy_cartpole(processes: Processes, seed, dispatch, capsys):
    budget = ("--algo.total-timesteps", FRAMES, "--algo.stop-at-return", RETURN_BAR)
    server = processes.server("--seed", seed, "--dispatch", dispatch, *budget, "--min-clients", 2)
    clients = [
        processes.client(server, *CARTPOLE, "--num-envs", 8, name=name) for name in ("one", "two")
    ]
    assert server.wait(LIMIT_S) == 0
    assert [client.wait() for client in clients] == [0, 0]

    rows = records.metrics(server.run)
    last = rows[-1]
    episodes = [e for e in records.lines(server.run / "episodes.jsonl") if e["kind"] == "train"]
    final = [episode["return"] for episode in episodes[-100:]]
    seconds = sum(row["time/iteration"] for row in rows)
    with capsys.disabled():
        print(
            f"\nCartPole-v1 {dispatch} seed {seed}: mean return {sum(final) / len(final):.1f} over "
            f"the last {len(final)} episodes at {last['run/step']:,} frames, {seconds:.0f} s"
        )
    assert len(final) == 100
    assert sum(final) / 100 >= RETURN_BAR
    assert last["run/step"] <= FRAMES + 16
    assert {value for row in rows for value in records.discards(row).values()} == {0}
    assert {row["server/conservation_error"] for row in rows} == {0}
