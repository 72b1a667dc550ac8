"""A client whose packets are dropped, with default settings: found out, and waited for by none."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from royale_server.chaos.background import running_proxy
from royale_server.chaos.plan import Fault
from royale_server.endpoint.connection import PING_INTERVAL_S
from tests.chaos.stopwatch import read
from tests.system import records
from tests.system.processes import DUMMY, Processes

FOUND_OUT_S = 2 * PING_INTERVAL_S
SETTLING_S, SECONDS = 3.0, 10.0
LEAST_RATE = 0.9
CLOSE_WAIT_S = 1.0
SLACK_S = 1.0
"""Of the server's clock, which ticks ten times a second, and of a busy machine."""
NOTHING_TO_SAVE = 130
OTHERS = {"a", "b", "c"}
DROPPED = Fault(at_s=0.0, kind="black-hole", lasting_s=1e6)

pytestmark = pytest.mark.chaos


@pytest.mark.timeout(300)
def test_half_open_client_is_found_out_within_two_pings_and_costs_the_others_one_wait(
    processes: Processes, capsys
) -> None:
    stopwatch = processes.directory / "stopwatch.jsonl"
    server = processes.server(
        *("--algo.total-timesteps", 10**9, "--algo.frames-per-iteration", 1024),
        *("--plugin", Path(__file__).with_name("stopwatch.py")),
        pair=DUMMY,
        environment={"STOPWATCH_FILE": str(stopwatch)},
    )
    flags = ("--num-envs", 4, "--step-ms", 20)

    def rate(begin: float, end: float) -> float:
        """Answers of the others, a second."""
        return len(read(stopwatch, lambda w: w.client in OTHERS and begin <= w.at < end)) / SECONDS

    with running_proxy((server.host, server.port)) as proxy:
        clients = [processes.client(server, "dummy-v1", *flags, name=name) for name in OTHERS]
        gone = processes.client(proxy.url, "dummy-v1", *flags, name="gone")
        server.wait_for("client .* joined", times=4)
        time.sleep(SETTLING_S + SECONDS)
        dropped_at = time.monotonic()
        proxy.apply(DROPPED)
        server.wait_for("client gone is cut off .*ping timeout", timeout_s=2 * FOUND_OUT_S)
        found_out_s = time.monotonic() - dropped_at
        # New connections pass, as where a router has forgotten an old one.
        server.wait_for("client gone is back and goes on", timeout_s=2 * FOUND_OUT_S)
        back_s = time.monotonic() - dropped_at
        server.interrupt()
        assert server.wait() == NOTHING_TO_SAVE
        assert [client.wait() for client in (*clients, gone)] == [0] * 4
    before = rate(dropped_at - SECONDS, dropped_at)
    after = rate(dropped_at + CLOSE_WAIT_S + SLACK_S, dropped_at + CLOSE_WAIT_S + SLACK_S + SECONDS)
    worst_s = max(read(stopwatch, lambda w: w.client in OTHERS and w.at >= dropped_at))
    with capsys.disabled():
        print(
            f"\nfound out after {found_out_s:.1f} s, back after {back_s:.1f} s; the others have "
            f"{after:.0f} answers a second, {before:.0f} before; the longest wait {worst_s:.2f} s"
        )
    assert found_out_s <= FOUND_OUT_S + SLACK_S
    assert after >= LEAST_RATE * before
    assert worst_s <= CLOSE_WAIT_S + SLACK_S
    rows = records.metrics(server.run)
    assert {row["server/conservation_error"] for row in rows} == {0}
    assert server.program.count("left: fault") == 0


def test_client_in_a_long_step_is_kept_and_a_frozen_one_comes_back_to_its_session(
    processes: Processes,
) -> None:
    """Case H21: whether a client lives is not asked of its environment."""
    server = processes.server(
        *("--algo.total-timesteps", 10**9, "--feedback-wait-timeout", 300), pair=DUMMY
    )
    slow_ms = 1000 * (FOUND_OUT_S + 5)
    slow = processes.client(server, "dummy-v1", "--step-ms", slow_ms, name="slow")
    frozen = processes.client(server, "dummy-v1", "--step-ms", 20, name="frozen")
    server.wait_for("client .* joined", times=2)
    frozen.signal(signal.SIGSTOP)
    server.wait_for("client frozen is cut off .*ping timeout", timeout_s=FOUND_OUT_S + 10)
    frozen.signal(signal.SIGCONT)
    server.wait_for("client frozen is back and goes on")
    time.sleep(10.0)  # until the long step is over, and a ping after it
    assert server.program.count("client slow is cut off|client slow left") == 0
    assert slow.count("connected to") == 1
    server.interrupt()
    assert server.wait() == NOTHING_TO_SAVE
    assert frozen.wait() == 0
