"""One client and one seed give one run, whatever the clock did meanwhile."""

from __future__ import annotations

import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.monitoring.declarations import declared, deterministic_keys
from tests.system import records
from tests.system.processes import CARTPOLE, Processes

KEYS = deterministic_keys(declared(METRICS))
SHORT = (
    *("--algo.total-timesteps", 768, "--algo.frames-per-iteration", 256),
    *("--algo.num-epochs", 2, "--exp-name", "run"),
)


def play(processes: Processes, seeds, *flags, groups, dispatch):
    """Run one server and one client for each seed, side by side; return their run directories."""
    servers = [
        processes.server(
            *SHORT,
            *("--seed", seed, "--dispatch", dispatch),
            *flags,
            runs=processes.directory / f"runs-{i}",
        )
        for i, seed in enumerate(seeds)
    ]
    clients = [
        processes.client(server, *CARTPOLE, "--num-envs", 6, "--groups", groups, name="only")
        for server in servers
    ]
    assert [server.wait() for server in servers] == [0] * len(servers)
    assert [client.wait() for client in clients] == [0] * len(clients)
    return [server.run for server in servers]


def repeatable(run):
    """What must not differ: the repeatable numbers of every row, and the weights."""
    rows = [{k: v for k, v in row.items() if k in KEYS} for row in records.metrics(run)]
    (step,) = records.steps(run)
    return rows, (run / str(step) / "model.safetensors").read_bytes()


@pytest.mark.parametrize("dispatch", ["barrier", "dynamic"])
@pytest.mark.parametrize("groups", [1, 2])
def test_same_seed_gives_equal_rows_and_weights(processes: Processes, dispatch, groups):
    one, other = play(processes, [3, 3], groups=groups, dispatch=dispatch)
    assert repeatable(one) == repeatable(other)
    assert len(repeatable(one)[0]) == 3


def test_another_seed_gives_another_run(processes: Processes):
    one, other = play(processes, [3, 4], groups=1, dispatch="barrier")
    assert repeatable(one)[0] != repeatable(other)[0]
