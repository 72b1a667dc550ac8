"""Learn steps and environment steps that outlast the patience of the library (case H21)."""

from __future__ import annotations

import pytest

from tests.system import records
from tests.system.processes import PPO, Processes
from tests.system.test_pings import ONE_ITERATION, ping_through_a_learn_step

STEP_S = 90
"""Of the library's own patience, 20 s until a ping and 20 s for its answer, it is twice as much."""

pytestmark = pytest.mark.chaos


def test_nobody_is_disconnected_by_a_learn_step_of_a_minute(processes: Processes, capsys):
    text = ping_through_a_learn_step(processes, *ONE_ITERATION, "--algo.learn-s", 60)
    with capsys.disabled():
        print(f"\n60 s: {text}")


def test_pings_are_answered_while_a_real_learn_step_uses_the_processor(
    processes: Processes, capsys
):
    # 512 frames, one a gradient step, 10 passes: 5,120 steps that hold the interpreter often.
    sizes = ("--algo.frames-per-iteration", 512, "--algo.total-timesteps", 512)
    heavy = ("--algo.minibatch-size", 1, "--algo.num-epochs", 10)
    text = ping_through_a_learn_step(processes, *sizes, *heavy, pair=PPO)
    with capsys.disabled():
        print(f"\nPPO: {text}")


def test_client_whose_environment_takes_ninety_seconds_for_a_step_is_kept(processes: Processes):
    sizes = ("--algo.frames-per-iteration", 64, "--algo.total-timesteps", 10**9)
    limit = ("--feedback-wait-timeout", 3 * STEP_S)
    server = processes.server(*sizes, *limit, "--algo.num-epochs", 1, "--save-every", 10**6)
    slow_env = ("gym", "--env-id", "tests.system.envs:Slow-v0", "--env-kwargs")
    slow = processes.client(
        server, *slow_env, f'{{"step_s": {STEP_S}, "slow_from": 5}}', name="slow"
    )
    quick = processes.client(server, *slow_env, '{"step_s": 0.05}', name="quick")
    # Its summary, due every 30 s, comes when the first long step is over.
    slow.wait_for(r"9\d s: \d frames \(0/s\)", timeout_s=3 * STEP_S)
    server.interrupt()
    assert server.wait() == 0
    assert quick.wait() == 0
    assert slow.count("connected to") == 1
    ended = records.events(server.run, "ended")[0]["wall"]
    assert [e for e in records.events(server.run, "left") if e["wall"] < ended] == []
