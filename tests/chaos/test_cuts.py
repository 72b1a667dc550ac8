"""Clients are cut off, frozen and killed all the time: the run loses little, and no number twice.

`ROYALE_CHAOS_S` sets how long each test troubles its run; a release is held to ten minutes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from algorithms.ppo.metrics import METRICS
from royale_server.chaos.background import running_proxy
from royale_server.chaos.plan import parse_plan, schedule
from royale_server.monitoring.declarations import declared, deterministic_keys
from royale_server.tools.comparing import differences, history
from tests.chaos.stopwatch import read
from tests.system import records
from tests.system.processes import CARTPOLE, Processes, Program, Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("ROYALE_CHAOS_S", "40"))
KEYS = deterministic_keys(declared(METRICS))
NAMES = ("a", "b", "c", "d")
ENDLESS = ("--algo.total-timesteps", 10**9)
DETERMINISTIC = (
    *ENDLESS,
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
TROUBLED, SPARED = (0, 1, 2, 3, 4, 5), (6, 7)
BEHIND_PROXY = (1, 3, 5)
TROUBLE_S, PEACE_S, LONGEST_FAULT_S = 20.0, 10.0, 6.0
CLOSE_WAIT_S = 1.0
BETWEEN_DEATHS_S, BACK_S = 8.0, 10.0


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


def trouble(
    processes: Processes,
    random: Random,
    clients: dict[int, Program],
    start: Callable[[int], Program],
) -> None:
    """Kill a client and start it again, or freeze it for a while; take a breath."""
    number = random.choice(TROUBLED)
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


def test_a_run_outlives_whatever_happens_to_its_clients(processes: Processes, capsys) -> None:
    """Eight clients of four slots: killed, frozen, cut off, delayed, throttled, unheard.

    Two of them are spared, and must not have to wait for the others: times of trouble and of peace
    alternate, so that it shows.
    """
    random, stopwatch = Random(7), processes.directory / "stopwatch.jsonl"
    server = processes.server(
        *ENDLESS,
        *("--algo.frames-per-iteration", 512, "--algo.num-epochs", 2, "--close-wait", CLOSE_WAIT_S),
        *("--plugin", Path(__file__).with_name("stopwatch.py")),
        environment={"STOPWATCH_FILE": str(stopwatch)},
    )
    troubled: list[tuple[float, float]] = []
    with running_proxy((server.host, server.port), seed=4) as proxy:

        def start(number: int) -> Program:
            url = proxy.url if number in BEHIND_PROXY else server
            return processes.client(url, *CARTPOLE, *FOUR, name=f"c{number}")

        clients = {number: start(number) for number in (*TROUBLED, *SPARED)}
        server.wait_for("iteration 2:")
        plan, end = parse_plan(TROUBLE), time.monotonic() + SECONDS
        while (begun := time.monotonic()) < end:
            faults = schedule(plan, 4 + len(troubled))
            proxy.play(itertools.takewhile(lambda fault: fault.at_s < TROUBLE_S, faults))
            while time.monotonic() < begun + TROUBLE_S:
                trouble(processes, random, clients, start)
            troubled.append((begun, time.monotonic() + LONGEST_FAULT_S))
            time.sleep(LONGEST_FAULT_S + PEACE_S)
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

    spared = {f"c{number}" for number in SPARED}

    def is_troubled(at: float) -> bool:
        return any(begin <= at < end for begin, end in troubled)

    def is_peaceful(at: float) -> bool:
        return troubled[0][0] <= at < troubled[-1][1] + PEACE_S and not is_troubled(at)

    inside = read(stopwatch, lambda one: one.client in spared and is_troubled(one.at))
    outside = read(stopwatch, lambda one: one.client in spared and is_peaceful(one.at))
    assert min(len(inside), len(outside)) > 1000, "else there is no such percentile"
    worst_s, usual_s = (float(np.percentile(waited, 99.9)) for waited in (inside, outside))
    with capsys.disabled():
        print(
            f"\n{len(rows)} iterations; p99.9 of waiting {worst_s:.3f} s in trouble "
            f"({len(inside)} answers), {usual_s:.3f} s in peace ({len(outside)})"
        )
    assert worst_s <= usual_s + CLOSE_WAIT_S + 0.2


def test_a_server_that_is_killed_and_resumed_has_its_clients_back_within_seconds(
    processes: Processes, capsys
) -> None:
    """Between two deaths of the server its clients have trouble, which ends before each."""
    random, plan = Random(8), parse_plan(TROUBLE)
    sizes = ("--algo.frames-per-iteration", 512, "--algo.num-epochs", 1)
    flags = (*ENDLESS, *sizes, "--exp-name", "phoenix", "--save-every", 2)
    server = processes.server(*flags)
    port, taken = server.port, []
    with running_proxy((server.host, port), seed=6) as proxy:

        def start(number: int) -> Program:
            url = proxy.url if number in BEHIND_PROXY else server
            return processes.client(url, *CARTPOLE, *FOUR, name=f"c{number}")

        clients = {number: start(number) for number in (*TROUBLED, *SPARED)}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            server.wait_for("iteration ", times=server.program.count("iteration ") + 4)
            begun = time.monotonic()
            faults = schedule(plan, 6 + len(taken))
            soon = itertools.takewhile(lambda fault: fault.at_s < BETWEEN_DEATHS_S, faults)
            proxy.play(f for f in soon if f.at_s + f.lasting_s < BETWEEN_DEATHS_S)
            while time.monotonic() < begun + BETWEEN_DEATHS_S:
                trouble(processes, random, clients, start)
            server.program.signal(signal.SIGKILL)
            processes.may_crash.append(server.program)
            server.program.wait()
            server = processes.server(*flags, "--resume", port=port)
            listening_at = time.monotonic()
            for number in clients:
                server.wait_for(f"client c{number} joined", timeout_s=30)
            taken.append(time.monotonic() - listening_at)
        server.interrupt()
        assert server.wait() == 0
        assert [client.wait() for client in clients.values()] == [0] * len(clients)
    with capsys.disabled():
        print(f"\nafter {len(taken)} deaths all were back within {max(taken):.1f} s")
    assert max(taken) < BACK_S
