"""Connecting, coming back and giving up; and the doors built on it."""

import os
import signal
import threading

import gymnasium
import numpy as np
import pytest

from royale_client import Patience, serve_env
from royale_client.envs.dummy import DummyConfig, DummyDriver
from royale_client.hello import default_client_name, make_hello
from royale_client.leaving import LeaveRequest, leaving_on_signals
from royale_client.loop import Ending, EnvLoop, ServerFaultError
from royale_client.runner import ClientRunner, Clockwork, exit_code
from royale_client.transport import (
    ConnectionLostError,
    HandshakeRefusedError,
    ServerUnreachableError,
    TokenRefusedError,
)
from royale_client.wire.errors import ConfigError, VersionMismatchError
from royale_client.wire.messages import Fault
from tests.client.fake_server import FakeServer, ServerTransport, SocketServer
from tests.client.fakes import CountingEnv, CountingVectorEnv

UNREACHABLE = ServerUnreachableError("ws://test", (("test", "no"),))


class FakeTime:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now_s = 0.0

    def sleep(self, seconds):
        self.now_s += seconds

    def clockwork(self):
        return Clockwork(now=lambda: self.now_s, sleep=self.sleep, uniform=lambda: 1.0)


class Dialler:
    """Plays a list: an exception is raised, a server is connected to."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        return ServerTransport(step)


def losing(after):
    """A server whose connection vanishes with the given request."""

    def rule(server, step):
        if len(server.steps) >= after:
            raise ConnectionLostError("cut by the test")
        return [server.answer(step)]

    return FakeServer(rule)


def stopping(after=3):
    def rule(server, step):
        done = len(server.steps) >= after
        return [server.session.stop("finished")] if done else [server.answer(step)]

    return FakeServer(rule)


def faulting(code):
    return FakeServer(lambda server, step: [server.session.fault(code, "because")])


def runner(*script, leave=None, time=None, num_episodes=None, **patience):
    driver = DummyDriver(DummyConfig(episode_length=5), 2)
    leave = leave or LeaveRequest()
    hello = make_hello([driver], client_name="r", env_id="dummy-v1")
    loop = EnvLoop([driver], hello, num_episodes=num_episodes, wants_to_leave=leave)
    dialler = Dialler(*script)
    made = ClientRunner(
        loop, dialler, Patience(**patience), leave, (time or FakeTime()).clockwork()
    )
    return made, dialler


def test_client_may_start_before_its_server():
    client, dialler = runner(UNREACHABLE, UNREACHABLE, UNREACHABLE, stopping())

    assert client.run().ending is Ending.STOPPED
    assert dialler.calls == 4


def test_first_contact_is_given_up_after_the_time_allowed():
    time = FakeTime()
    client, _ = runner(UNREACHABLE, time=time, connect_timeout_s=10.0)

    with pytest.raises(ServerUnreachableError):
        client.run()
    assert time.now_s == pytest.approx(10.0)


def test_lost_connection_is_restored_and_the_episode_goes_on():
    first, second = losing(3), stopping(2)
    client, _ = runner(first, UNREACHABLE, second)

    assert client.run().ending is Ending.STOPPED
    assert second.steps[0].request == 1
    assert second.steps[0].rewards.tolist() == first.steps[2].rewards.tolist()


def test_lost_connection_is_given_up_when_the_budget_is_spent():
    time = FakeTime()
    client, _ = runner(losing(2), UNREACHABLE, time=time, budget_s=7.0)

    with pytest.raises(ServerUnreachableError):
        client.run()
    assert time.now_s == pytest.approx(7.0)


def test_budget_of_zero_ends_with_the_first_loss():
    client, dialler = runner(losing(2), budget_s=0.0)

    with pytest.raises(ConnectionLostError):
        client.run()
    assert dialler.calls == 1


def test_stop_ends_the_client_unless_it_waits_for_the_next_run():
    client, dialler = runner(stopping())
    assert client.run().ending is Ending.STOPPED
    assert dialler.calls == 1

    second = FakeServer()
    client, dialler = runner(stopping(), UNREACHABLE, second, for_ever=True, num_episodes=2)
    assert client.run().ending is Ending.FINISHED
    assert second.steps[0].rewards is None
    assert dialler.calls == 3


@pytest.mark.parametrize("code", ["version", "spaces", "contract", "refused", "limit"])
def test_fault_that_cannot_heal_is_not_tried_again(code):
    client, dialler = runner(faulting(code), for_ever=True)

    with pytest.raises(ServerFaultError, match="because") as caught:
        client.run()
    assert dialler.calls == 1
    assert exit_code(caught.value) == 2


@pytest.mark.parametrize("code", ["internal", "timeout", "capacity"])
def test_fault_that_may_heal_is_tried_again_with_pauses(code):
    time = FakeTime()
    client, dialler = runner(faulting(code), faulting(code), stopping(), time=time)

    assert client.run().ending is Ending.STOPPED
    assert dialler.calls == 3
    assert time.now_s == pytest.approx(3.0)  # limits 1 and 2, drawn in full


def test_refused_token_is_not_tried_again():
    client, dialler = runner(TokenRefusedError("no", status=401), for_ever=True)

    with pytest.raises(TokenRefusedError):
        client.run()
    assert dialler.calls == 1


def test_loss_while_leaving_is_no_failure():
    client, dialler = runner(losing(5), num_episodes=1)
    # Episodes of 5 steps: the 6th request would be the last step, the 5th is lost; come back once.
    dialler.script.append(FakeServer())
    assert client.run().ending is Ending.FINISHED


def test_request_to_leave_ends_the_waiting_for_a_server():
    leave = LeaveRequest()
    time = FakeTime()
    client, _ = runner(UNREACHABLE, leave=leave, time=time, for_ever=True)
    sleep = time.sleep

    def sleep_and_leave(seconds):
        sleep(seconds)
        if time.now_s > 5:
            leave.make()

    client._clockwork = Clockwork(
        now=lambda: time.now_s, sleep=sleep_and_leave, uniform=lambda: 1.0
    )

    assert client.run().ending is Ending.LEFT
    assert time.now_s < 6


def test_waiting_is_said_now_and_then_but_not_at_every_attempt(caplog):
    client, dialler = runner(UNREACHABLE, time=FakeTime(), connect_timeout_s=30.0)
    with pytest.raises(ServerUnreachableError):
        client.run()

    said = [r for r in caplog.records if "Trying again" in r.message]
    assert dialler.calls > 10
    assert len(said) == 3  # at 0, after 10 and after 20 seconds


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (VersionMismatchError("x"), 2),
        (HandshakeRefusedError("x"), 2),
        (HandshakeRefusedError("x", retry=True), 75),
        (TokenRefusedError("x", status=401), 77),
        (UNREACHABLE, 75),
        (ConnectionLostError("x"), 75),
        (ConnectionLostError("x", code=1009, retry=False), 2),
        (ServerFaultError(Fault(code="spaces", message="x")), 2),
        (ServerFaultError(Fault(code="internal", message="x")), 75),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
    ],
)
def test_exit_code_says_what_kind_of_end_it_was(error, code):
    assert exit_code(error) == code


def test_signals_ask_to_leave_and_the_second_interrupt_ends_at_once():
    before = signal.getsignal(signal.SIGINT)
    leave = LeaveRequest()
    with leaving_on_signals(leave):
        os.kill(os.getpid(), signal.SIGTERM)
        assert leave()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before


def test_signals_are_left_alone_in_other_threads():
    caught = []

    def run():
        with leaving_on_signals(LeaveRequest()):
            caught.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == [before]


def test_default_name_is_stable_and_printable():
    assert default_client_name("Cart\nPole") == default_client_name("Cart\nPole")
    assert default_client_name("Cart\nPole").endswith("-Cart_Pole")


def test_serve_env_runs_a_single_environment_to_its_last_step():
    with SocketServer() as server:
        outcome = serve_env(CountingEnv(4), server.url, num_episodes=2, client_name="one")
        session = server.sessions[0]
        server.wait_for(lambda: session.goodbye is not None)

    assert outcome.ending is Ending.FINISHED
    assert session.hello.env_id == "CountingEnv"
    assert session.hello.client_name == "one"
    records = [record for step in session.steps for record in step.episodes]
    # 11 + 21 + 31 + 41
    assert [record["return"] for record in records] == [104.0, 104.0]


def test_serve_env_takes_a_vector_environment_as_it_is():
    def rule(server, step):
        return [server.session.stop("finished")] if step.request > 9 else [server.answer(step)]

    with SocketServer(lambda: FakeServer(rule)) as server:
        outcome = serve_env(CountingVectorEnv(16), server.url)

    assert outcome.ending is Ending.STOPPED
    assert server.sessions[0].hello.groups == (16,)


def test_two_servers_of_one_environment_see_one_digest():
    env = gymnasium.make("CartPole-v1")
    with SocketServer() as server:
        for _ in range(2):
            serve_env(env, server.url, num_episodes=1)
        serve_env(gymnasium.make("CartPole-v1").unwrapped, server.url, num_episodes=1)
        serve_env(CountingEnv(2), server.url, num_episodes=1)
        digests = [session.hello.env_digest for session in server.sessions]

    assert digests[0] == digests[1]
    assert digests[0] != digests[3]
    assert len(digests[0]) == 16


def test_interrupt_of_serve_env_reports_the_last_step_and_is_raised():
    def rule(server, step):
        if step.request == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return [server.answer(step)]

    with SocketServer(lambda: FakeServer(rule)) as server:
        with pytest.raises(KeyboardInterrupt):
            serve_env(CountingEnv(99), server.url)
        session = server.sessions[0]
        server.wait_for(lambda: session.goodbye is not None)

    assert session.steps[-1].truncated.tolist() == [True]
    assert session.steps[-1].asks.tolist() == [False]
    assert session.goodbye.reason == "the client was asked to leave"


def test_a_step_that_takes_long_does_not_end_the_connection():
    # The scaled form of a step of minutes: pings every 0.1 s must be answered within 0.3 s.
    class Slow(CountingEnv):
        def step(self, action):
            threading.Event().wait(1.0)
            return super().step(action)

    with SocketServer(ping_interval=0.1, ping_timeout=0.3) as server:
        outcome = serve_env(Slow(2), server.url, num_episodes=1)

    assert outcome.ending is Ending.FINISHED
    assert len(server.sessions) == 1


def test_images_beyond_one_mebibyte_per_message_travel_without_a_reconnect():
    # Case H20: two 640x480 colour cameras are 1,843,200 bytes.
    driver = DummyDriver(DummyConfig(episode_length=10, image=(480, 640, 3)), 2)
    server = FakeServer()
    loop = EnvLoop([driver], make_hello([driver], env_id="d", client_name="d"), num_episodes=2)
    loop.converse(ServerTransport(server))

    assert server.steps[3].observations[0].nbytes == 1_843_200
    assert np.isfinite(server.steps[3].observations[1]).all()
