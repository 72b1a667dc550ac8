"""The door for a program that owns its loop, with and without a safe action."""

import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from royale_client import PolicyClient, ServerFaultError, ServerStoppedError
from royale_client.reconnect import Patience
from royale_client.transport import ConnectionLostError, ServerUnreachableError
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError, UnexpectedMessageError
from royale_client.wire.messages import Restore, Snapshot, encode_message
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.client.fake_server import FakeServer, ServerTransport, SocketServer

OBSERVATION = BoxSpec(-100, 100, (2,), np.float32)
ACTION = DiscreteSpec(4)
SAFE = "stand still"


class Servers:
    """Dials one FakeServer after the other, or fails while there is none."""

    def __init__(self, *servers):
        self.waiting = list(servers)
        self.transports = []

    def __call__(self):
        if not self.waiting:
            raise ServerUnreachableError("ws://test", (("test", "no server"),))
        self.transports.append(ServerTransport(self.waiting.pop(0)))
        return self.transports[-1]


def client(*servers, observation=OBSERVATION, action=ACTION, **options):
    return PolicyClient(
        "ws://unused:1", observation, action, dial=Servers(*servers), client_name="p", **options
    )


def observed(value):
    return np.array([value, value], np.float32)


def test_every_action_is_one_request_that_also_reports_the_one_before():
    server = FakeServer(action=3)
    with client(server) as policy:
        action = policy.act(observed(0))
        policy.observe(1.5, False, False, observed(1))
        policy.act(observed(1))
        policy.observe(2.5, False, False, observed(2))

    assert action == 3
    assert isinstance(action, np.int64)
    assert server.hello.groups == (1,)
    first, second, last = server.steps
    assert first.rewards is None
    assert first.observations[0].tolist() == [[0, 0]]
    assert second.rewards.tolist() == [1.5]
    assert second.observations[0].tolist() == [[1, 1]]
    # The program ended in the middle of the episode: the open row is truncated.
    assert last.asks.tolist() == [False]
    assert last.rewards.tolist() == [2.5]
    assert last.truncated.tolist() == [True]
    assert last.final_observations[0].tolist() == [[2, 2]]
    assert server.goodbye.reason == "the program is done"


def test_final_observation_travels_beside_the_first_of_the_next_episode():
    server = FakeServer()
    metric = EpisodeMetric("height", "m", "all", "mean")
    with client(server, episode_metrics=[metric]) as policy:
        policy.act(observed(0))
        policy.observe(1e8, False, False, observed(1))
        policy.act(observed(1))
        policy.observe(1.0, False, False, observed(2))
        policy.act(observed(2))
        policy.observe(-1e8, True, False, observed(3), metrics={"height": 2, "other": object()})
        policy.act(observed(50))

    step = server.steps[3]
    assert step.observations[0].tolist() == [[50, 50]]
    assert step.final_observations[0].tolist() == [[3, 3]]
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])
    (record,) = step.episodes
    assert (record["return"], record["length"]) == (1.0, 3)  # 1e8 + 1 - 1e8
    assert record["metrics"] == {"height": 2.0}


def test_several_slots_are_served_as_one_batch():
    server = FakeServer(action=2)
    with client(server, num_slots=3) as policy:
        actions = policy.act(np.zeros((3, 2), np.float32))
        policy.observe([1, 2, 3], [False, True, False], [False] * 3, np.ones((3, 2), np.float32))
        policy.act(np.full((3, 2), 5, np.float32))

    assert actions.tolist() == [2, 2, 2]
    assert server.steps[1].rewards.tolist() == [1, 2, 3]
    assert server.steps[1].final_observations[0].tolist() == [[1, 1]]
    assert [record["row"] for record in server.steps[1].episodes] == [1]


def test_gymnasium_spaces_are_taken_and_actions_come_in_their_dtype():
    server = FakeServer(action=1)
    space = spaces.Dict({"turn": spaces.Discrete(3, dtype=np.int32), "go": spaces.Box(0, 1, (2,))})
    with client(server, observation=spaces.Discrete(9), action=space) as policy:
        action = policy.act(4)

    assert space.contains(action)
    assert action["turn"].dtype == np.int32
    assert action["go"].tolist() == [1.0, 1.0]
    assert server.steps[0].observations[0].tolist() == [4]


def test_masks_travel_when_they_were_declared():
    server = FakeServer()
    with client(server, masks=True) as policy:
        policy.act(observed(0), mask=[1, 1, 0, 0])
        policy.observe(0.0, False, False, observed(1))

    assert server.steps[0].masks.tolist() == [[True, True, False, False]]
    assert server.steps[1].masks.shape == (0, 4)


@pytest.mark.parametrize(("masks", "mask"), [(True, None), (False, [1, 1, 1, 1])])
def test_mask_without_declaration_and_the_reverse_are_refused(masks, mask):
    with client(FakeServer(), masks=masks) as policy, pytest.raises(ConfigError, match="mask"):
        policy.act(observed(0), mask)


def test_act_and_observe_alternate():
    with client(FakeServer()) as policy:
        with pytest.raises(RuntimeError, match="call act"):
            policy.observe(0.0, False, False, observed(0))
        policy.act(observed(0))
        with pytest.raises(RuntimeError, match="called twice"):
            policy.act(observed(0))


def test_policy_version_of_the_last_action_is_known():
    server = FakeServer()
    server.version = 17
    with client(server) as policy:
        assert policy.policy_version is None
        policy.act(observed(0))

        assert policy.policy_version == 17


def test_stop_of_the_server_ends_the_program_with_its_sentence():
    server = FakeServer(lambda server, step: [server.session.stop("finished", "well done")])
    with client(server) as policy:
        for _ in range(2):  # asking once more does not help
            with pytest.raises(ServerStoppedError, match="well done"):
                policy.act(observed(0))

    assert server.goodbye is not None


def test_stop_that_came_while_the_program_was_busy_is_read_although_the_connection_is_gone():
    server = FakeServer(
        lambda server, step: [server.answer(step), server.session.stop("stopping", "Ctrl-C")]
    )
    servers = Servers(server)
    with PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy:
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))
        servers.transports[0].is_lost = True

        with pytest.raises(ServerStoppedError, match="Ctrl-C"):
            policy.act(observed(1))


def test_patience_for_ever_waits_for_the_next_run_and_begins_afresh():
    first = FakeServer(
        lambda server, step: (
            [server.answer(step)] if len(server.steps) == 1 else [server.session.stop("finished")]
        )
    )
    second = FakeServer(action=2)
    with client(first, second, patience=Patience(for_ever=True)) as policy:
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))

        assert policy.act(observed(1)) == 2
    assert second.steps[0].rewards is None


def test_fault_that_cannot_heal_ends_the_program():
    server = FakeServer(lambda server, step: [server.session.fault("contract", "no such action")])
    with client(server) as policy, pytest.raises(ServerFaultError, match="no such action"):
        policy.act(observed(0))


def test_lost_connection_without_a_safe_action_is_waited_out():
    servers = Servers(FakeServer(), FakeServer(action=2))
    with PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy:
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))
        servers.transports[0].is_lost = True

        assert policy.act(observed(1)) == 2

    # Sent again with its reward: the new session has no state for it, and discards that frame.
    again = servers.transports[1].server.steps[0]
    assert (again.request, again.rewards.tolist()) == (1, [1.0])


def test_session_goes_on_with_a_request_that_was_lost_on_its_way():
    first = FakeServer()
    second = FakeServer(action=2, earlier=first)
    servers = Servers(first, second)
    with PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy:
        policy.act(observed(0))
        policy.observe(1.0, True, False, observed(1))
        servers.transports[0].is_lost = True
        assert policy.act(observed(2)) == 2
        policy.observe(3.0, False, False, observed(3))
        policy.act(observed(3))

    assert second.hello.resume_token == "token"
    # Nothing of it had arrived, so all of it comes, the record of the episode too.
    lost, later = second.steps
    assert (lost.request, lost.rewards.tolist(), len(lost.episodes)) == (2, [1.0], 1)
    assert (later.request, later.rewards.tolist(), later.episodes) == (3, [3.0], ())


def test_session_goes_on_with_an_answer_that_was_lost_on_its_way():
    first = FakeServer(action=3)
    second = FakeServer(earlier=first)
    servers = Servers(first, second)
    with PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy:
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))
        transport = servers.transports[0]

        def lose(timeout_s):
            transport.is_lost = True
            raise ConnectionLostError("cut by the test, with an answer unread")

        transport.receive = lose
        assert policy.act(observed(1)) == 3  # the answer that was given, not another one

    assert [step.request for step in first.steps] == [1, 2]
    assert [step.request for step in second.steps_again] == [2]


def test_session_whose_answer_the_program_did_without_does_not_go_on():
    first = FakeServer()
    second, third = FakeServer(earlier=first), FakeServer(action=2)
    servers = Servers(first)
    with PolicyClient(
        "ws://unused:1",
        OBSERVATION,
        ACTION,
        dial=servers,
        safe_action=SAFE,
        act_timeout_s=0.5,
    ) as policy:
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))
        servers.transports[0].is_lost = True
        assert policy.act(observed(1)) == SAFE
        servers.waiting += [second, third]
        action = SAFE
        while action == SAFE:
            policy.observe(1.0, False, False, observed(2))
            action = policy.act(observed(2))

    assert action == 2
    assert (second.steps, second.steps_again) == ([], [])
    assert second.goodbye is not None, "else the server keeps it for a while"
    assert third.hello.resume_token is None
    assert third.steps[0].rewards is None


@pytest.mark.parametrize("method", ["send", "receive"])
def test_program_that_goes_on_after_ctrl_c_counts_no_episode_twice(method):
    first, second = FakeServer(), FakeServer(action=2)
    servers = Servers(first, second)
    with PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy:
        policy.act(observed(0))
        policy.observe(1.0, True, False, observed(1))
        transport = servers.transports[0]
        real = getattr(transport, method)

        def interrupted(argument):
            setattr(transport, method, real)
            if method == "send":
                real(argument)
            raise KeyboardInterrupt

        setattr(transport, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            policy.act(observed(2))
        assert policy.act(observed(2)) == 2

    told = [step for server in (first, second) for step in server.steps if step.episodes]
    assert [step.episodes[0]["return"] for step in told] == [1.0]
    assert second.hello.resume_token is None  # the first session's answer is of no use


def test_unreachable_server_is_given_up_when_patience_ends():
    patience = Patience(connect_timeout_s=0.05)
    with client(patience=patience) as policy, pytest.raises(ServerUnreachableError):
        policy.act(observed(0))


def test_connection_is_closed_when_patience_ends_with_it():
    server = FakeServer(lambda server, step: [server.session.fault("timeout", "too late")])
    servers = Servers(server)
    patience = Patience(budget_s=0.0)
    with PolicyClient(
        "ws://unused:1", OBSERVATION, ACTION, dial=servers, patience=patience
    ) as policy:
        with pytest.raises(ServerFaultError, match="too late"):
            policy.act(observed(0))
        assert servers.transports[0].closed is not None


def test_safe_action_is_returned_in_time_when_there_is_no_server():
    with client(safe_action=SAFE, act_timeout_s=0.05) as policy:
        started_s = time.monotonic()
        action = policy.act(observed(0))

        assert action == SAFE
        assert time.monotonic() - started_s < 1.0


def test_no_frame_is_made_of_a_safe_action():
    silent, second = FakeServer(lambda server, step: []), FakeServer(action=2)
    servers = Servers(silent, second)
    with PolicyClient(
        "ws://unused:1",
        OBSERVATION,
        ACTION,
        dial=servers,
        safe_action=SAFE,
        act_timeout_s=0.5,
    ) as policy:
        assert policy.act(observed(0)) == SAFE
        action = SAFE
        while action == SAFE:
            policy.observe(1.0, False, False, observed(1))
            action = policy.act(observed(1))

    # The first session was given up with its request unanswered; the second starts afresh.
    assert action == 2
    assert servers.transports[0].closed is not None
    assert second.steps[0].rewards is None


def test_return_of_an_episode_counts_safe_actions_too():
    silent, second = FakeServer(lambda server, step: []), FakeServer()
    with client(silent, second, safe_action=SAFE, act_timeout_s=0.5) as policy:
        rewards = 0
        while policy.act(observed(0)) == SAFE:
            policy.observe(1.0, False, False, observed(0))
            rewards += 1
        policy.observe(5.0, True, False, observed(0))
        policy.act(observed(0))

    (record,) = second.steps[1].episodes
    assert (record["return"], record["length"]) == (rewards + 5.0, rewards + 1)


def test_program_error_reaches_the_server():
    server = FakeServer()

    def program():
        with client(server) as policy:
            policy.act(observed(0))
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError):
        program()

    assert server.goodbye.exception == "ZeroDivisionError: oops"


def test_closing_while_the_server_is_away_does_not_hang():
    policy = client(safe_action=SAFE, act_timeout_s=0.01, patience=Patience(for_ever=True))
    policy.act(observed(0))
    started_s = time.monotonic()
    policy.close()

    assert time.monotonic() - started_s < 2.0
    assert not [thread for thread in threading.enumerate() if thread.name == "connect"]


def test_what_tells_versions_of_the_environment_apart_is_in_the_hello():
    server = FakeServer()
    with client(server, env_id="thermostat", env_digest="v2") as policy:
        policy.act(observed(0))
    assert (server.hello.env_id, server.hello.env_digest) == ("thermostat", "v2")


@pytest.mark.parametrize("options", [{"num_slots": 0}, {"masks": True, "action": OBSERVATION}])
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigError):
        client(FakeServer(), **options)


def test_program_plays_over_a_real_connection():
    env = gymnasium.make("CartPole-v1")
    with (
        SocketServer() as server,
        PolicyClient(server.url, env.observation_space, env.action_space, env_id="Cart") as policy,
    ):
        observation, _ = env.reset(seed=0)
        episodes = 0
        while episodes < 3:
            action = policy.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            policy.observe(reward, terminated, truncated, observation)
            if terminated or truncated:
                episodes += 1
                observation, _ = env.reset()
        policy.close()
        server.wait_for(lambda: server.sessions[0].goodbye is not None)

    records = [record for step in server.sessions[0].steps for record in step.episodes]
    assert len(records) == 3
    assert all(record["return"] == record["length"] for record in records)


def test_server_killed_under_a_program_is_replaced_by_the_next():
    with SocketServer() as first:
        url, port = first.url, first.port
        policy = PolicyClient(url, OBSERVATION, ACTION, patience=Patience(budget_s=30.0))
        policy.act(observed(0))
        policy.observe(1.0, False, False, observed(1))
    with SocketServer(lambda: FakeServer(action=2), port=port) as second:
        assert policy.act(observed(1)) == 2
        policy.close()
        assert second.sessions[0].steps[0].rewards.tolist() == [1.0]


def test_connection_error_without_a_remedy_is_raised():
    def dial():
        raise ConnectionLostError("closed for good", retry=False)

    policy = PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=dial)
    with policy, pytest.raises(ConnectionLostError, match="for good"):
        policy.act(observed(0))


@pytest.mark.parametrize("asked", [Snapshot(number=1), Restore(states=())])
def test_server_that_asks_a_program_for_its_environments_breaks_the_protocol(asked):
    """A program that owns its loop can neither be saved nor brought back."""
    server = FakeServer(lambda server, step: [encode_message(asked)])
    servers = Servers(server)
    with (
        pytest.raises(UnexpectedMessageError),
        PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=servers) as policy,
    ):
        policy.act(observed(0))

    assert server.hello.features == ("reconnect",)
    assert servers.transports[0].closed is not None
