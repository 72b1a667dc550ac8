"""The token: who has it comes in, and it is written nowhere."""

from __future__ import annotations

from tests.system.processes import DUMMY, Processes

TOKEN = "8s-Kq.2vX_pL"


def test_only_clients_with_the_token_take_part_and_it_is_written_nowhere(
    processes: Processes, tmp_path
):
    token_file = tmp_path / "token.txt"
    token_file.write_text(TOKEN + "\n", encoding="utf-8")
    folder = tmp_path / "files"
    server = processes.server(pair=DUMMY, runs=folder / "runs", environment={"ROYALE_TOKEN": TOKEN})
    without = processes.client(server, "dummy-v1")
    wrong = processes.client(server, "dummy-v1", environment={"ROYALE_TOKEN": TOKEN[:-1]})
    for refused in (without, wrong):
        assert refused.wait() == 77
        refused.wait_for("ROYALE_TOKEN or --token-file")
    right = processes.client(server, "dummy-v1", "--token-file", token_file)
    assert (server.wait(), right.wait()) == (0, 0)
    server.wait_for("token missing or wrong", times=2)

    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 4
    for path in written:
        assert TOKEN.encode() not in path.read_bytes(), path
    for program in processes.all:
        assert TOKEN not in program.output


def test_token_of_a_file_serves_as_well(processes: Processes, tmp_path):
    token_file = tmp_path / "token.txt"
    token_file.write_text(TOKEN, encoding="utf-8")
    server = processes.server("--token-file", token_file, pair=DUMMY)
    client = processes.client(server, "dummy-v1", environment={"ROYALE_TOKEN": TOKEN})
    assert (server.wait(), client.wait()) == (0, 0)


def test_address_beyond_this_machine_is_refused_without_a_token(processes: Processes):
    server = processes.try_server("--host", "0.0.0.0", pair=DUMMY)
    assert server.wait() == 2
    server.wait_for("needs a token")
