"""The command: flags, help, exit codes."""

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from royale_client.cli import main, parse_flags
from royale_client.config import ClientConfig
from royale_client.envs.dummy import PROVIDER as DUMMY
from royale_client.envs.gymnasium_envs import PROVIDER as GYM
from royale_client.envs.provider import EnvProvider
from royale_client.wire.errors import ConfigError
from tests.client.fake_server import FakeServer, SocketServer


@pytest.fixture(autouse=True)
def quiet_root_logger():
    """The command configures logging for its process; undo it for the tests after."""
    root, websockets = logging.getLogger(), logging.getLogger("websockets")
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    websockets.setLevel(logging.NOTSET)


def test_help_names_environments_examples_and_exit_codes(capsys):
    assert main(["--help"]) == 0

    text = capsys.readouterr().out
    for part in ("gym", "dummy-v1", "--env-id CartPole-v1", "--groups 2", "--num-procs", "77"):
        assert part in text


def test_no_arguments_show_the_help_and_count_as_a_mistake(capsys):
    assert main([]) == 2
    assert "usage: royale-env-client" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["gym", "--help"], ["dummy-v1", "--help"]])
def test_help_costs_under_a_second_and_imports_no_environment(arguments):
    program = (
        "import sys, time; from royale_client.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(time.process_time(), *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    # Time of the processor, since the machine may be busy with something else; the best of three.
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stderr.split()
        for _ in range(3)
    ]

    assert min(float(cpu_s) for cpu_s, *_ in runs) < 1.0
    assert not {"gymnasium", "torch", "websockets"} & set(runs[0])


def test_flag_before_the_environment_is_refused_with_the_right_form(capsys):
    assert main(["--num-envs", "8"]) == 2
    assert "the environment comes first: royale-env-client ENV" in capsys.readouterr().err


def test_unknown_environment_is_refused_with_the_right_form(capsys):
    assert main(["CartPole-v1"]) == 2
    assert "royale-env-client gym --env-id CartPole-v1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-env", "8"], "--num-envs"),
        (["--groups", "3"], "expected 1, 2 or auto"),
        (["--groups", "2"], "raise --num-envs"),
        (["--num-envs", "0"], "expected at least 1"),
        (["--num-procs", "0"], "expected at least 1"),
        (["--num-episodes", "0"], "expected at least 1"),
        (["--seed", "-1"], "expected 0 or more"),
        (["--connect-timeout", "-1"], "expected 0 or more"),
        (["--server-port", "70000"], "expected 1 to 65535"),
        (["--server-url", "localhost:8000"], "ws://HOST:PORT"),
        (["--server-url", "ws://a:1", "--server-port", "2"], "not both"),
        (["--role", "judge"], "train"),
        (["--episode-length", "0"], "expected at least 1"),
    ],
)
def test_bad_flags_end_with_code_2_and_say_what_fits(flags, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["dummy-v1", *flags])

    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert message in " ".join((printed.err + printed.out).replace("│", " ").split())


def parse(*flags, provider=DUMMY):
    return parse_flags(provider, flags)


def test_default_address_is_that_of_the_default_server():
    _, client = parse()
    assert client.url == "ws://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        (["--server-host", "box"], "ws://box:8000"),
        (["--server-port", "9"], "ws://127.0.0.1:9"),
        (["--server-host", "::1", "--server-port", "9"], "ws://[::1]:9"),
        (["--server-host", "[::1]"], "ws://[::1]:8000"),
        (["--server-url", "wss://box/path"], "wss://box/path"),
    ],
)
def test_address_comes_from_either_form_of_flags(flags, url):
    _, client = parse(*flags)
    assert client.url == url


def test_wrappers_and_metrics_are_repeatable_flags():
    env, _ = parse(
        "--env-id", "E-v0", "--wrapper", "a:B", "--wrapper", "c:D",
        "--episode-metric", "x", "--episode-metric", "y=m",
        provider=GYM,
    )  # fmt: skip

    assert env.wrapper == ("a:B", "c:D")
    assert env.episode_metric == ("x", "y=m")


def test_bare_boolean_flags_have_an_off_switch():
    assert parse("--reconnect")[1].patience.for_ever is True
    assert parse("--no-reconnect")[1].patience.for_ever is False
    assert parse()[1].float16_observations is False
    assert parse("--float16-observations")[1].float16_observations is True
    assert parse("--no-float16-observations")[1].float16_observations is False


def test_token_comes_from_its_file_or_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("ROYALE_TOKEN", "from-variable")
    file = tmp_path / "token"
    file.write_text("from-file\n")

    assert ClientConfig().address().token == "from-variable"
    assert ClientConfig(token_file=file).address().token == "from-file"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="holds no token"):
        ClientConfig(token_file=file).address()
    with pytest.raises(ConfigError, match="No such file"):
        ClientConfig(token_file=tmp_path / "none").address()


def test_environment_that_claims_a_common_flag_is_refused():
    @dataclass(frozen=True)
    class Greedy:
        seed: int = 0

    provider = EnvProvider(
        name="greedy",
        summary="",
        config_type=Greedy,
        env_id=lambda config: "g",
        make=lambda config, size: None,
        facts=lambda config: {},
    )
    with pytest.raises(ConfigError, match="'greedy' claims flags that every environment has: seed"):
        parse_flags(provider, [])


def test_dummy_runs_one_episode_and_ends_with_code_0():
    with SocketServer() as server:
        address = ["--server-host", "127.0.0.1", "--server-port", str(server.port)]
        code = main(["dummy-v1", *address, "--num-episodes", "1"])
        session = server.sessions[0]
        server.wait_for(lambda: server.num_ended == 1)

    assert code == 0
    records = [record for step in session.steps for record in step.episodes]
    assert [record["length"] for record in records] == [400]
    assert session.goodbye.reason == "all episodes are complete"


def test_two_groups_of_cartpole_run_until_the_server_stops():
    def rule(server, step):
        if len(server.steps) == 200:
            return [server.session.stop("finished", "enough")]
        return [server.answer(step)] if len(server.steps) < 200 else []

    with SocketServer(lambda: FakeServer(rule)) as server:
        flags = ["--num-envs", "5", "--groups", "2", "--client-name", "carts", "--role", "eval"]
        code = main(["gym", "--env-id", "CartPole-v1", "--server-url", server.url, *flags])

    hello = server.sessions[0].hello
    assert code == 0
    assert (hello.groups, hello.client_name, hello.role) == ((3, 2), "carts", "eval")
    assert hello.env_id == "CartPole-v1"
    assert {step.group for step in server.sessions[0].steps} == {0, 1}


def test_refused_spaces_end_with_code_2_and_the_servers_sentence(caplog):
    def refuse(server, step):
        return [server.session.fault("spaces", "observation space: shape is (8,), expected (4,)")]

    with SocketServer(lambda: FakeServer(refuse)) as server:
        assert main(["dummy-v1", "--server-url", server.url, "--reconnect"]) == 2

    assert "shape is (8,), expected (4,)" in caplog.text
    assert len(server.sessions) == 1


def test_refused_token_ends_with_code_77():
    refuse = {"process_request": lambda connection, request: connection.respond(401, "no\n")}
    with SocketServer(**refuse) as server:
        assert main(["dummy-v1", "--server-url", server.url, "--reconnect"]) == 77


def test_missing_server_ends_with_code_75_and_the_addresses(caplog):
    code = main(["dummy-v1", "--server-url", "ws://127.0.0.1:1", "--connect-timeout", "0"])

    assert code == 75
    assert "tried 127.0.0.1:1: Connection refused" in caplog.text


def test_unknown_gymnasium_id_ends_with_code_2(caplog):
    assert main(["gym", "--env-id", "CartPol-v1"]) == 2
    assert "did you mean CartPole-v1" in caplog.text


def test_exception_of_an_environment_ends_with_code_1_and_a_traceback(caplog, monkeypatch):
    def broken(self, actions):
        raise RuntimeError("the motor is on fire")

    monkeypatch.setattr("royale_client.envs.dummy.DummyDriver.step", broken)
    with SocketServer() as server:
        assert main(["dummy-v1", "--server-url", server.url]) == 1
        server.wait_for(lambda: server.num_ended == 1)

    assert "Traceback" in caplog.text
    assert server.sessions[0].goodbye.exception == "RuntimeError: the motor is on fire"


OWN_MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Half(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2

gymnasium.register("Mine-v0", entry_point=CartPoleEnv, max_episode_steps=500)
"""


def test_environment_and_wrapper_may_lie_in_the_current_folder(tmp_path):
    (tmp_path / "my_envs.py").write_text(OWN_MODULE)
    with SocketServer() as server:
        # -P leaves the current folder out of the search path, as an installed command does.
        program = "import sys; from royale_client.cli import main; sys.exit(main(sys.argv[1:]))"
        flags = ["--env-id", "my_envs:Mine-v0", "--wrapper", "my_envs:Half", "--num-episodes", "1"]
        command = [sys.executable, "-P", "-c", program, "gym", *flags, "--server-url", server.url]
        path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, cwd=tmp_path, env=path, check=False)
        server.wait_for(lambda: server.num_ended == 1)

    (record,) = [r for step in server.sessions[0].steps for r in step.episodes]
    assert done.returncode == 0
    assert record["return"] == record["length"] / 2
