"""The product's own client and the client in JavaScript pass the suite."""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode

from royale_client.conformance import probe_env
from royale_client.conformance.client_resumes import RESUMES
from royale_client.conformance.client_scenarios import CLIENT_SCENARIOS
from royale_client.conformance.client_seats import SEATS
from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.listener import Listener
from royale_client.conformance.probe import PROBE_ENV_ID
from royale_client.conformance.scenario import Outcome, Settings, ViolationError, play
from royale_client.envs.gymnasium_envs import driver_for
from royale_client.leaving import LeaveRequest
from royale_client.reconnect import Backoff, Patience
from royale_client.serve import run_drivers
from royale_client.transport import ServerAddress
from royale_client.wire.errors import RoyaleError
from royale_client.wire.grammar import State

DRIVER = Path(__file__).with_name("node_driver.mjs")
SETTINGS = Settings(timeout_s=20.0, quiet_s=0.03)
SHORT = Backoff(base_s=0.02, cap_s=0.02)
IN_ORDER = ("turns", "probe", "stop-finished", "numbers-go-on")


def grade(start, names=None, settings=SETTINGS):
    """What failed, with clauses and sentences; and what was skipped."""
    scenarios = [s for s in CLIENT_SCENARIOS if names is None or s.name in names]
    with contextlib.closing(Listener()) as listener:
        results = play(scenarios, ClientUnderTest(listener, start, settings))
    failed = {r.name: (r.broken, r.sentence) for r in results if r.outcome is Outcome.FAILED}
    return failed, {r.name for r in results if r.outcome is Outcome.SKIPPED}


def product(
    mode=AutoresetMode.NEXT_STEP, token=None, **options
) -> Callable[[str], Callable[[], None]]:
    """Starts the product's client, with two groups of the probe, in a thread."""

    def make(rows):
        env = gymnasium.make_vec(
            PROBE_ENV_ID, rows, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        return driver_for(env, None, "auto", ())

    drivers = [make(3), make(2)]

    def start(url):
        leave = LeaveRequest()

        def run():
            with contextlib.suppress(RoyaleError):
                run_drivers(
                    drivers,
                    ServerAddress(url=url, token=token),
                    env_id=probe_env.PROBE_ENV_ID,
                    facts={},
                    leave=leave,
                    patience=Patience(connect_timeout_s=5, budget_s=20, backoff=SHORT),
                    **options,
                )

        thread = threading.Thread(target=run)
        thread.start()

        def end():
            leave.make()
            thread.join()

        return end

    return start


@pytest.fixture(autouse=True)
def quiet():
    """What the clients say about servers that lie is expected."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_product_client_passes():
    failed, skipped = grade(product())
    assert failed == {}
    # It has the features that these are about the lack of, and was not told to halve its floats.
    others = {"token", "float16", "no-float16", "restore-promised", "needless-snapshot"}
    assert skipped == others | {scenario.name for scenario in SEATS}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_product_client_passes_with_every_rule_of_resetting(mode):
    assert grade(product(mode), IN_ORDER) == ({}, set())


def test_product_client_passes_with_half_precision():
    names = ("float16", "no-float16", "probe", "restore")
    assert grade(product(float16_observations=True), names) == ({}, set())


def test_token_is_presented_or_missed():
    settings = replace(SETTINGS, token="right")
    assert grade(product(token="right"), ["token"], settings) == ({}, set())
    failed, _ = grade(product(token="wrong"), ["token"], settings)
    assert failed["token"][0] == ("P2",)


@pytest.fixture
def node():
    """Starts conversations of the client in JavaScript, all in one process."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node is not installed")
    process = subprocess.Popen(
        [program, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None

    def start(url):
        process.stdin.write(f"{url}\n")
        process.stdin.flush()
        return lambda: None

    yield start
    process.stdin.close()
    assert process.wait(20.0) == 0


def test_client_in_javascript_passes(node):
    failed, skipped = grade(node)
    assert failed == {}
    features = {"float16", "no-float16", "snapshot", "restart", "restore"}
    others = {scenario.name for scenario in (*RESUMES, *SEATS)}
    assert skipped == {"token"} | features | others


def answer_for_ever(talk, answered):
    """Answer every request, and note the last of each group."""
    while True:
        talk.collect()
        for group, step in enumerate(talk.steps):
            answered[group] = step
            talk.answer(group)


def test_client_in_javascript_reports_a_last_step_and_leaves_when_it_is_done(node):
    with contextlib.closing(Listener()) as listener:
        client = ClientUnderTest(listener, lambda url: node(f"{url} 2"), SETTINGS)
        with client.talk() as talk:
            talk.welcome()
            answered = {}
            with pytest.raises(ViolationError, match=r"goodbye \(all is done\)"):
                answer_for_ever(talk, answered)
            assert talk.state is State.LEFT
            # Beyond what is watched: nobody asks in a last step, and nothing is left open.
            for group, step in enumerate(talk.steps):
                last = step or answered[group]
                assert not last.asks.any()
                assert (last.terminated | last.truncated).all()
