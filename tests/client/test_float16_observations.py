"""Every door of the client sends half precision where it was asked to and the server takes it."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from royale_client import Patience, PolicyClient, serve_env
from royale_client.cli import main
from royale_client.envs.gymnasium_envs import driver_for
from royale_client.hello import make_hello
from royale_client.runner import exit_code
from royale_client.wire.errors import ContractError
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.spaces import BoxSpec, DiscreteSpec
from tests.client.fake_server import FakeServer, ServerTransport, SocketServer
from tests.client.fakes import CountingEnv

OBSERVATION = BoxSpec(-1e9, 1e9, (2,), np.float32)
ACTION = DiscreteSpec(4)


class Growing(CountingEnv):
    """Shows ten thousand times the steps of the episode."""

    observation_space = spaces.Box(0, 1e9, (1,), np.float64)

    def _observation(self):
        return np.array([1e4 * self.steps])


class Pixels(CountingEnv):
    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)

    def _observation(self):
        return np.full((2, 2), self.steps, np.uint8)


def taking():
    return FakeServer(features=(FLOAT16,))


def types_of(session):
    """The types of all observations of a session, final ones too."""
    arrays = [a for s in session.steps for a in (*s.observations, *(s.final_observations or ()))]
    return {array.dtype.name for array in arrays}


@pytest.mark.parametrize(
    ("flags", "make", "dtype"),
    [
        (["--float16-observations"], taking, "float16"),
        (["--float16-observations"], FakeServer, "float32"),
        ([], taking, "float32"),
    ],
)
def test_the_command_sends_what_flag_and_server_agree_on(flags, make, dtype, caplog):
    with SocketServer(make) as server:
        address = ["--server-url", server.url, "--num-episodes", "2", "--num-envs", "2"]
        assert main(["gym", "--env-id", "CartPole-v1", *address, *flags]) == 0
        session = server.sessions[0]

    assert any(step.final_observations for step in session.steps)
    assert types_of(session) == {dtype}
    is_refused = bool(flags) and dtype == "float32"
    assert ("the server takes no float16 observations" in caplog.text) == is_refused


def test_serve_env_sends_half_precision_and_ends_with_a_sentence_beyond_it():
    with SocketServer(taking) as server:
        # 60 000 after 6 steps; after 7 the number does not fit.
        outcome = serve_env(Growing(6), server.url, num_episodes=1, float16_observations=True)
        assert outcome.message == "all episodes are complete"
        assert types_of(server.sessions[0]) == {"float16"}
        with pytest.raises(ContractError, match=r"got 70000\.0, expected at most 65504") as error:
            serve_env(Growing(9), server.url, num_episodes=1, float16_observations=True)
        session = server.sessions[1]
        server.wait_for(lambda: session.goodbye is not None)

    assert exit_code(error.value) == 2
    assert "leave out --float16-observations" in session.goodbye.exception
    assert session.steps[-1].observations[0].tolist() == [[60000.0]]


@pytest.mark.parametrize("wants", [False, True])
def test_features_name_it_only_where_it_changes_something(wants, caplog):
    for env, has_floats in ((CountingEnv(), True), (Growing(), True), (Pixels(), False)):
        caplog.clear()
        driver = driver_for(env, None, "auto", ())
        hello = make_hello([driver], env_id="x", float16_observations=wants)
        assert (FLOAT16 in hello.features) == (wants and has_floats)
        text = "float16 observations change nothing: none is of float32 or float64"
        assert (text in caplog.text) == (wants and not has_floats)


def test_the_digest_of_the_environment_does_not_depend_on_it():
    with SocketServer(taking) as server:
        for wants in (False, True):
            serve_env(CountingEnv(2), server.url, num_episodes=1, float16_observations=wants)
        plain, half = (session.hello for session in server.sessions)

    assert plain.env_digest == half.env_digest
    assert plain.features == half.features[:-1]


def policy_client(servers, **options):
    transports = []

    def dial():
        transports.append(ServerTransport(servers.pop(0)))
        return transports[-1]

    options = {"client_name": "p", "float16_observations": True, **options}
    return PolicyClient("ws://unused:1", OBSERVATION, ACTION, dial=dial, **options), transports


def observed(value):
    return np.array([value, -value], np.float32)


def test_a_program_s_observations_and_last_words_travel_in_half_precision():
    server = taking()
    client, _ = policy_client([server])
    with client as policy:
        policy.act(observed(0.1))
        policy.observe(1.0, False, False, observed(0.3))

    assert types_of(server) == {"float16"}
    assert server.steps[0].observations[0][0, 0] == np.float16(0.1)
    assert server.steps[1].final_observations[0][0, 0] == np.float16(0.3)


def test_a_program_is_told_which_number_is_too_large_and_may_go_on():
    client, _ = policy_client([taking()])
    with client as policy:
        with pytest.raises(ContractError, match=r"element \[0\].*got 100000\.0"):
            policy.act(observed(1e5))
        assert policy.act(observed(1.0)) == 1


@pytest.mark.parametrize("first_takes", [False, True])
def test_a_turn_sent_again_is_in_the_precision_of_its_new_session(first_takes):
    first, second = (taking(), FakeServer()) if first_takes else (FakeServer(), taking())
    client, transports = policy_client([first, second], patience=Patience(budget_s=60.0))
    with client as policy:
        policy.act(observed(0.1))
        policy.observe(1.0, False, False, observed(0.3))
        transports[0].is_lost = True
        policy.act(observed(0.3))

    sent = [np.float16, np.float32] if first_takes else [np.float32, np.float16]
    for server, dtype in zip((first, second), sent, strict=True):
        assert types_of(server) == {np.dtype(dtype).name}
    assert second.steps[0].observations[0][0, 0] == sent[1](0.3)


def test_an_environment_that_gives_half_precision_itself_needs_no_flag(caplog):
    env = gymnasium.wrappers.TransformObservation(
        CountingEnv(2),
        lambda observation: observation.astype(np.float16),
        spaces.Box(0, 1000, (1,), np.float16),
    )
    with SocketServer(taking) as server:
        serve_env(env, server.url, num_episodes=1, float16_observations=True)
    assert "change nothing" in caplog.text
    assert types_of(server.sessions[0]) == {"float16"}
