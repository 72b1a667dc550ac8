"""In deterministic rounds, when messages arrive changes no number."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.tools.comparing import differences, history
from tests.system import records
from tests.system.delays import SlowNetwork
from tests.system.processes import Processes, Program, Server

KEYS = deterministic_keys(declared(METRICS))
LONGEST_S = 0.05
CLIENTS = ("a", "b", "c")
FRAMES = 48
FLAGS = (
    *("--deterministic", "--min-clients", len(CLIENTS), "--seed", 5, "--exp-name", "run"),
    *("--algo.frames-per-iteration", FRAMES, "--algo.num-epochs", 2, "--algo.scale-rewards"),
    *("--save-every", 2, "--keep-last", 100, "--policy.normalize-observations"),
)
# Its own vector class resets ended rows with the next step, so that those rows do not ask.
NEXT_STEP = ("gym", "--env-id", "CartPole-v1", "--vectorization", "vector_entry_point")
SAME_STEP = ("gym", "--env-id", "CartPole-v1")
CHEETAH = ("gym", "--env-id", "HalfCheetah-v5", "--env-kwargs", '{"max_episode_steps": 30}')


def play(
    processes: Processes,
    stack: ExitStack,
    env: tuple[object, ...],
    *,
    index: int,
    longest_s: float,
    iterations: int,
) -> tuple[Server, list[Program], list[SlowNetwork]]:
    """Start a server, and clients that reach it over a network of their own each."""
    limit = ("--algo.total-timesteps", iterations * FRAMES)
    server = processes.server(*FLAGS, *limit, runs=processes.directory / f"runs-{index}")
    networks = [
        stack.enter_context(
            SlowNetwork(server.host, server.port, seed=10 * index + i, longest_s=longest_s)
        )
        for i in range(len(CLIENTS))
    ]
    # Once the last one comes first: the order of arrival must not matter either.
    order = CLIENTS[::-1] if index else CLIENTS
    started = [
        processes.client(network.url, *env, "--num-envs", 4, "--groups", 2, name=name)
        for name, network in zip(order, networks, strict=True)
    ]
    return server, started, networks


def assert_equal_however_late(
    processes: Processes, env: tuple[object, ...], longest_s: tuple[float, ...], iterations: int
) -> None:
    """Play the same run over networks of these delays, side by side, and compare everything."""
    with ExitStack() as stack:
        plays = [
            play(processes, stack, env, index=i, longest_s=longest, iterations=iterations)
            for i, longest in enumerate(longest_s)
        ]
        for server, clients, _ in plays:
            assert (server.wait(), *(client.wait() for client in clients)) == (0, 0, 0, 0)
    for (_, _, networks), longest in zip(plays, longest_s, strict=True):
        # 8 rounds of 6 rows make 48 frames: each way a message of each client every round.
        assert all(network.num_delayed > 2 * iterations * 8 for network in networks)
        assert all(network.delayed_s / network.num_delayed >= longest / 4 for network in networks)
    one, *others = (server.run for server, _, _ in plays)
    rows = history(records.metrics(one))
    assert len(rows) > 0.9 * iterations  # a few frames more than wanted in each: a round is whole
    assert max(row.get("env/episodes", 0) for row in rows.values()) > 0  # not merely a beginning
    for run in others:
        again = history(records.metrics(run))
        assert len(again) == len(rows)
        assert differences(rows, again, KEYS, last_iteration=len(rows)) == []
        assert records.steps(run) == records.steps(one)
        for step in records.steps(run):
            for file in ("model", "optimizer", "rollout"):  # snapshots hold the age of episodes
                path = f"{step}/{file}.safetensors"
                assert (run / path).read_bytes() == (one / path).read_bytes(), path


def test_random_delays_of_every_message_change_no_number(processes: Processes):
    assert_equal_however_late(processes, NEXT_STEP, (LONGEST_S, LONGEST_S), 4)


@pytest.mark.chaos
@pytest.mark.parametrize("env", [NEXT_STEP, SAME_STEP, CHEETAH], ids=["next", "same", "cheetah"])
def test_long_runs_are_equal_over_a_slow_and_over_a_quick_network(processes: Processes, env):
    assert_equal_however_late(processes, env, (LONGEST_S, LONGEST_S, 0.0), 20)
