"""TLS from the flags of a server to those of a client, and what is said where it fails."""

from __future__ import annotations

from tests.certificates import CERT, KEY
from tests.system.processes import DUMMY, Processes

TOKEN = "8s-Kq.2vX_pL"


def test_client_trains_over_tls_and_one_that_trusts_nobody_ends_at_once(processes: Processes):
    flags = ("--tls-cert", CERT, "--tls-key", KEY)
    server = processes.server(*flags, pair=DUMMY, environment={"ROYALE_TOKEN": TOKEN})
    server.wait_for(rf"listening on wss://127\.0\.0\.1:{server.port}")
    url, with_token = f"wss://localhost:{server.port}", {"ROYALE_TOKEN": TOKEN}
    trusting_nobody = processes.client(url, "dummy-v1", environment=with_token)
    assert trusting_nobody.wait() == 2
    trusting_nobody.wait_for("is not to be trusted: .*--tls-ca")
    right = processes.client(url, "dummy-v1", "--tls-ca", CERT, environment=with_token)
    assert (server.wait(), right.wait()) == (0, 0)
