"""Clients are cut off, frozen and killed all the time: the run loses little, and no number twice.

`ROYALE_CHAOS_S` sets how long each test troubles its run; a release is held to ten minutes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from random import Random

import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.chaos.background import running_proxy
from royale_server.chaos.plan import parse_plan, schedule
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.tools.comparing import differences, history
from tests.system import records
from tests.system.processes import CARTPOLE, Processes, Program, Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("ROYALE_CHAOS_S", "40"))
KEYS = deterministic_keys(declared(METRICS))
NAMES = ("a", "b", "c", "d")
DETERMINISTIC = (
    *("--deterministic", "--min-clients", len(NAMES), "--seed", 5),
    *("--algo.frames-per-iteration", 512, "--algo.num-epochs", 2),
)
FOUR = ("--num-envs", 4, "--reconnect-budget", 600)
TROUBLE = (
    "delay every 5 for 1-3 of 0.05-0.3, throttle every 9 for 2-4 of 20000, cut every 7 for 0.5-5, "
    "black-hole every 15 for 2-6"
)
CUTS = ("cut every 30 for 1-10", 30) if SECONDS >= 300 else ("cut every 6 for 1-3", 6)
"""What a release is held to, or as many cuts in less time; and seconds from one to the next."""


def play(processes: Processes, name: str, plan: str | None, frames: int | None) -> Server:
    """Run four clients, the first of them behind a proxy if there is a plan of faults."""
    limit = () if frames is None else ("--until-timesteps", frames)
    server = processes.server(*DETERMINISTIC, *limit, runs=processes.directory / name)
    with contextlib.ExitStack() as stack:
        url = server.url
        if plan is not None:
            proxy = stack.enter_context(running_proxy((server.host, server.port), seed=3))
            proxy.play(schedule(parse_plan(plan), 3))
            url = proxy.url
        clients = [
            processes.client(url if n == NAMES[0] else server, *CARTPOLE, *FOUR, name=n)
            for n in NAMES
        ]
        if frames is None:
            time.sleep(SECONDS)
            server.interrupt()
        codes = (server.wait(SECONDS + 300), *(client.wait() for client in clients))
    assert codes == (0, 0, 0, 0, 0)
    return server


def test_a_deterministic_run_is_the_same_with_and_without_cuts(processes: Processes) -> None:
    plan, every_s = CUTS
    cut = play(processes, "cut", plan, None)
    back = records.events(cut.run, "reconnected")
    assert len(back) >= SECONDS / (2.5 * every_s), "else nothing is shown"
    rows = history(records.metrics(cut.run))
    whole = play(processes, "whole", None, int(records.metrics(cut.run)[-1]["run/step"]))
    again = history(records.metrics(whole.run))
    both = min(len(rows), len(again)) - 1
    assert both > 5
    assert differences(rows, again, KEYS, last_iteration=both) == []
    assert all(not any(records.discards(row).values()) for row in rows.values())


def test_a_run_outlives_whatever_happens_to_its_clients(processes: Processes) -> None:
    """Eight clients of four slots: killed, frozen, cut off, delayed, throttled, unheard."""
    random = Random(7)
    server = processes.server("--algo.frames-per-iteration", 512, "--algo.num-epochs", 2)
    with running_proxy((server.host, server.port), seed=4) as proxy:
        proxy.play(schedule(parse_plan(TROUBLE), 4))

        def start(number: int) -> Program:
            url = proxy.url if number % 2 else server
            return processes.client(url, *CARTPOLE, *FOUR, name=f"c{number}")

        clients = {number: start(number) for number in range(8)}
        server.wait_for("iteration 2:")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            number = random.randrange(8)
            if random.random() < 0.5:
                clients[number].signal(signal.SIGKILL)
                processes.may_crash.append(clients[number])
                clients[number].wait()
                clients[number] = start(number)
            else:
                clients[number].signal(signal.SIGSTOP)
                time.sleep(random.uniform(0.2, 2.0))
                clients[number].signal(signal.SIGCONT)
            time.sleep(random.uniform(0.2, 1.5))
        rounds = server.program.count("iteration ")
        server.wait_for("iteration ", times=rounds + 3, timeout_s=60)
        server.interrupt()
        assert server.wait(60) == 0
        for client in clients.values():
            client.wait(60)
    rows = records.metrics(server.run)
    assert {row["server/conservation_error"] for row in rows} == {0}
    assert {row["server/discarded_stale"] for row in rows} == {0}
    assert {row["server/discarded_buffer_full"] for row in rows} == {0}
    # A frame that was stored twice would be refused with its batch, which ends the run with 2.
    assert records.events(server.run, "batch_refused") == []
    assert records.events(server.run, "reconnected"), "else nothing is shown"


def test_a_server_that_is_killed_and_resumed_has_its_clients_back_within_seconds(
    processes: Processes,
) -> None:
    flags = ("--algo.frames-per-iteration", 512, "--algo.num-epochs", 1, "--exp-name", "phoenix")
    server = processes.server(*flags, "--save-every", 2)
    port = server.port
    clients = [processes.client(server, *CARTPOLE, *FOUR, name=f"c{number}") for number in range(8)]
    for _ in range(2):
        server.wait_for("iteration ", times=server.program.count("iteration ") + 4)
        server.program.signal(signal.SIGKILL)
        processes.may_crash.append(server.program)
        server.program.wait()
        server = processes.server(*flags, "--save-every", 2, "--resume", port=port)
        listening_at = time.monotonic()
        for number in range(8):
            server.wait_for(f"client c{number} joined", timeout_s=30)
        assert time.monotonic() - listening_at < 10
    server.interrupt()
    assert server.wait() == 0
    assert [client.wait() for client in clients] == [0] * 8
