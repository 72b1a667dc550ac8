"""The token is written nowhere, and what clients call themselves names no file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

from royale_client.driver import EnvDriver
from royale_client.envs.dummy import DummyConfig, make_driver
from royale_client.hello import make_hello
from royale_client.session import ClientSession, Faulted
from royale_client.transport import ConnectionLostError, ServerAddress, Transport
from royale_client.websocket_transport import connect
from royale_client.wire.limits import Limits
from royale_server.tools.main import main
from tests.certificates import CERT, KEY
from tests.system import dumping, records
from tests.system.processes import DUMMY, PATIENCE_S, PPO, Processes, Program, eventually

TOKEN = "8s-Kq.2vX_pL-73bd"
HOSTILE_NAMES = ("../../escaped", "/etc/escaped", "..", "a/../../escaped", "nul;$(touch escaped)")


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def test_nothing_that_a_run_leaves_or_shows_holds_the_token(processes: Processes, tmp_path):
    token_file = tmp_path / "token.txt"
    token_file.write_text(TOKEN, encoding="utf-8")
    runs = tmp_path / "files" / "runs"
    small = ("--algo.frames-per-iteration", 128, "--algo.num-epochs", 1, "--log-level", "debug")
    flags = ("--token-file", token_file, "--tls-cert", CERT, "--tls-key", KEY)
    server = processes.server(*small, *flags, pair=PPO, runs=runs)
    client = processes.client(
        f"wss://localhost:{server.port}",
        *("gym", "--env-id", "CartPole-v1", "--num-procs", 2, "--num-envs", 2),
        *("--tls-ca", CERT, "--log-level", "debug"),
        environment={"ROYALE_TOKEN": TOKEN},
    )
    server.wait_for("client .* joined", times=2)
    server.wait_for("iteration 2:")
    children = descendants(client.pid)
    assert len(children) == 2
    for pid in (server.program.pid, client.pid, *children):
        assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
    wrong = processes.client(
        f"wss://localhost:{server.port}",
        *("dummy-v1", "--tls-ca", CERT, "--log-level", "debug"),
        environment={"ROYALE_TOKEN": TOKEN + "x"},
    )
    assert wrong.wait() == 77
    server.interrupt()
    assert (server.wait(), client.wait()) == (0, 0)

    written = [path for path in runs.rglob("*") if path.is_file()]
    kinds = {path.name for path in written}
    assert kinds >= {"config.json", "run.json", "metrics.jsonl", "events.jsonl", "manifest.json"}
    for path in written:
        assert TOKEN.encode() not in path.read_bytes(), path
    for program in processes.all:
        assert TOKEN not in program.output, program.name


def greet(address: ServerAddress, session: ClientSession) -> tuple[Transport, str]:
    """Say hello; return the connection and the session's token."""
    transport = connect(address, Limits())
    transport.send(session.start())
    while session.welcome is None:
        data = transport.receive(PATIENCE_S)
        assert data is not None
        session.receive(data)
    return transport, session.welcome.session_token


def come_back_and_misbehave(address: ServerAddress, name: str) -> str:
    """Join, lose the connection, go on with the session, break the protocol; return its token."""
    drivers: list[EnvDriver] = [make_driver(DummyConfig(), 1)]
    hello = make_hello(drivers, client_name=name, env_id="dummy-v1", role="eval")
    first = ClientSession(replace(hello, features=("reconnect",)))
    transport, token = greet(address, first)
    transport.close(1011, "cut")
    second = ClientSession(first.hello, earlier=first)
    transport, again = greet(address, second)
    assert again == token
    transport.send(b"no message, " + token.encode() + b", at all")
    with contextlib.suppress(ConnectionLostError):
        while not any(isinstance(e, Faulted) for e in second.receive(_next(transport))):
            pass
    transport.close(1000, "")
    return token


def _next(transport: Transport) -> bytes:
    data = transport.receive(PATIENCE_S)
    assert data is not None, "nothing comes"
    return data


def test_no_bundle_and_nothing_beside_it_holds_a_token(processes: Processes, tmp_path, capsys):
    """Bundles of a warning, of what is asked between rows, and of a halt; and what shows them."""
    token_file = tmp_path.with_name(tmp_path.name + "-token.txt")
    token_file.write_text(TOKEN, encoding="utf-8")
    server = processes.server(
        *("--algo.frames-per-iteration", 128, "--algo.num-epochs", 1, "--save-every", 1),
        *("--token-file", token_file, "--tls-cert", CERT, "--tls-key", KEY),
        *("--plugin", Path(dumping.__file__), "--reconnect-grace", 30, "--log-level", "debug"),
    )
    url = f"wss://localhost:{server.port}"

    def client(name: str) -> Program:
        flags = ("--tls-ca", CERT, "--log-level", "debug", "--step-ms", 5, "--episode-length", 8)
        token = {"ROYALE_TOKEN": TOKEN}
        return processes.client(url, "dummy-v1", *flags, name=name, environment=token)

    steady, mortal = client("steady"), client("mortal")
    server.wait_for("client mortal joined")
    address = ServerAddress(url=url, token=TOKEN, tls_ca=CERT)
    secrets = {TOKEN, come_back_and_misbehave(address, "onlooker")}
    bundles = server.run / "bundles"

    def told() -> set[str]:
        complete = [path.with_name("halt.json") for path in bundles.glob("*/summary.json")]
        halts = [json.loads(path.read_text("utf-8")) for path in complete]
        return {alarm["alarm"] for halt in halts for alarm in halt["alarms"]}

    eventually(lambda: told() >= {dumping.WARNS, dumping.SAMPLED}, "bundles of a running server")
    for program in (server.program, steady, mortal):
        line = Path(f"/proc/{program.pid}/cmdline").read_text()
        assert not any(secret in line for secret in secrets)
    mortal.signal(signal.SIGKILL)
    again = client("mortal")  # ends the session of the one that was killed
    assert server.wait() == 2
    assert (steady.wait(), again.wait()) == (0, 0)
    assert told() >= {dumping.WARNS, dumping.SAMPLED, dumping.HALTS}
    halts = [path.read_text("utf-8") for path in bundles.glob("*/halt.json")]
    assert any("--resume" in halt for halt in halts), "else the command is not searched"
    assert records.events(server.run, "reconnected"), "else the session's token was not used"
    assert [main(["bundle", "show", str(path)]) for path in bundles.iterdir()] == [0] * len(halts)
    shown = capsys.readouterr().out
    assert "resume with" in shown

    written = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len([path for path in written if bundles in path.parents]) > 3 * 5
    for secret in secrets:
        assert [path for path in written if secret.encode() in path.read_bytes()] == []
        assert [program.name for program in processes.all if secret in program.output] == []
        assert secret not in shown


def test_names_of_clients_name_no_files(processes: Processes, tmp_path):
    place = tmp_path / "deep" / "er"
    place.mkdir(parents=True)
    sizes = ("--min-clients", len(HOSTILE_NAMES))
    server = processes.server(*sizes, pair=DUMMY, runs=place / "runs")
    for name in HOSTILE_NAMES:
        processes.client(server, "dummy-v1", "--client-name", name)
    assert [program.wait() for program in processes.all] == [0] * (1 + len(HOSTILE_NAMES))
    events = (server.run / "events.jsonl").read_text(encoding="utf-8")
    assert all(json.dumps(name) in events for name in HOSTILE_NAMES)
    assert [path for path in tmp_path.rglob("*") if "escaped" in path.name] == []
    assert not Path("/etc/escaped").exists()
    assert "escaped" not in os.listdir()
