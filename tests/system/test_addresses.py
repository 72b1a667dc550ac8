"""Proxies, names and address families (cases H27 and H28)."""

from __future__ import annotations

import signal
import socket
import stat
import time

import pytest

from royale_client.transport import ServerAddress, ServerUnreachableError
from royale_client.websocket_transport import connect
from royale_client.wire.limits import Limits
from tests.system.processes import DUMMY, Processes

TOKEN = "no-secret"
CONNECT_LIMIT_S = 1.0


def test_proxy_variables_are_ignored(processes: Processes, unused_port):
    closed = f"http://127.0.0.1:{unused_port}"
    names = ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy")
    environment = dict.fromkeys([*names, *map(str.upper, names)], closed)
    environment |= {"no_proxy": "", "NO_PROXY": ""}
    server = processes.server("--algo.total-timesteps", 100, pair=DUMMY)
    client = processes.client(server, "dummy-v1", environment=environment)
    assert (server.wait(), client.wait()) == (0, 0)
    client.wait_for(rf"connected to {server.url} at 127.0.0.1:{server.port}$")


def test_proxy_that_was_asked_for_is_used(processes: Processes, unused_port):
    server = processes.server(pair=DUMMY)
    proxy = ("--proxy", f"http://127.0.0.1:{unused_port}", "--connect-timeout", 0.2)
    client = processes.client(server, "dummy-v1", *proxy)
    assert client.wait() == 75
    client.wait_for(str(unused_port))


def families_of(name: str) -> set[str]:
    """Addresses that a name stands for here."""
    return {str(info[4][0]) for info in socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)}


def connecting_s(address: ServerAddress) -> float:
    """Return how long it takes to connect."""
    started = time.monotonic()
    connection = connect(address, Limits())
    took_s = time.monotonic() - started
    connection.close(1000, "")
    return took_s


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


LISTENING = {"127.0.0.1": {"127.0.0.1"}, "0.0.0.0": {"127.0.0.1"}}
if has_ipv6():
    LISTENING["::1"] = {"::1"}


@pytest.mark.parametrize("host", LISTENING)
def test_every_way_to_name_this_machine_connects_at_once_or_says_what_was_tried(
    processes: Processes, host
):
    environment = {"ROYALE_TOKEN": TOKEN}
    server = processes.server("--host", host, pair=DUMMY, environment=environment)
    server.wait_for(r"listening on ws://\S+:" + str(server.port))
    for name in ("localhost", "127.0.0.1", "::1"):
        url_host = f"[{name}]" if ":" in name else name
        address = ServerAddress(url=f"ws://{url_host}:{server.port}", token=TOKEN)
        if families_of(name) & LISTENING[host]:
            # The best of three: the machine may be busy, the library never waits.
            assert min(connecting_s(address) for _ in range(3)) < CONNECT_LIMIT_S
        else:
            with pytest.raises(ServerUnreachableError) as caught:
                connect(address, Limits())
            tried = {tried.rpartition(":")[0].strip("[]") for tried, _ in caught.value.attempts}
            assert tried == families_of(name)
            assert str(server.port) in str(caught.value)


def test_client_of_this_machine_connects_by_a_socket_file_alone(processes: Processes, tmp_path):
    file = tmp_path / "s"
    where = ("--no-tcp", "--unix-socket", file, "--address-file", tmp_path / "address")
    for _ in range(2):
        server = processes.try_server(*where, pair=DUMMY)
        server.wait_for(rf"listening on unix://{file}; waiting")
        assert (tmp_path / "address").read_text() == f"unix://{file}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        second = processes.try_server(*where, pair=DUMMY)
        assert second.wait() == 2
        second.wait_for("another server listens there")
        server.signal(signal.SIGKILL)  # leaves its file, which is replaced
        server.wait()
        assert file.exists()
    server = processes.try_server(*where, "--algo.total-timesteps", 100, pair=DUMMY)
    server.wait_for("listening on")
    client = processes.client(f"unix://{file}", "dummy-v1")
    assert (server.wait(), client.wait()) == (0, 0)
    server.wait_for(r"joined from process \d+ of this machine")
    assert not file.exists()


def test_default_client_finds_the_default_server_by_host_and_port(processes: Processes):
    server = processes.server(pair=DUMMY)
    where = ("--server-host", "localhost", "--server-port", server.port)
    client = processes.start("royale-env-client", "dummy-v1", *where)
    assert (server.wait(), client.wait()) == (0, 0)
