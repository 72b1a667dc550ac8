"""The command: its report, its exit codes, and that the tables cite clauses that exist."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

from royale_client.conformance import starting, watched
from royale_client.conformance.cli import main
from royale_client.conformance.client_scenarios import CLIENT_SCENARIOS
from royale_client.conformance.incoming import CLAUSES_OF_MESSAGE
from royale_client.conformance.server_scenarios import SERVER_SCENARIOS
from royale_client.conformance.starting import CommandStart
from royale_client.wire.messages import MESSAGE_TYPES
from tests.conformance import servers

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text("utf-8")
CLAUSES = set(re.findall(r"^- \*\*(P\d+)\*\*", PROTOCOL, re.M))


def outcome(*words):
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def test_report_of_a_sound_server_says_what_passed():
    with servers.listening(servers.SoundServer()) as url:
        code, out, _ = outcome("server", url, "--only", "turns", "--only", "no-legal-action")
    assert code == 0
    assert re.search(r"^pass +turns +answers each request once", out, re.M)
    assert out.endswith("server: 2 passed, 0 failed, 0 not graded of 2\n")


def test_report_of_a_broken_server_names_the_clause():
    with servers.listening(servers.ShiftsRows()) as url:
        code, out, _ = outcome("server", url, "--only", "turns")
    assert code == 1
    assert "FAIL  turns" in out
    assert "P34: answer to request 1 of group 0: actions" in out
    assert out.endswith("broken: P34\n")


def test_json_is_one_document_on_standard_output():
    with servers.listening(servers.ShiftsRows()) as url:
        code, out, err = outcome("server", url, "--only", "turns", "--only", "token", "--json")
    report = json.loads(out)
    assert (code, report["peer"], report["passed"]) == (1, "server", False)
    (token, turns) = report["scenarios"]
    assert (token["outcome"], turns["outcome"], turns["broken"]) == ("skipped", "failed", ["P34"])
    assert "FAIL  turns" in err


def test_client_is_started_by_its_command_and_ended(monkeypatch):
    # A program that never connects and never ends by itself.
    monkeypatch.setattr(starting, "ENDS_BY_ITSELF_S", 0.05)
    program = "import time; time.sleep(600)"
    words = ("client", "--connect-timeout", 0.1, "--only", "turns", "--", sys.executable, "-c")
    code, _, err = outcome(*words, program)
    assert code == 2
    assert "no client connected to ws://127.0.0.1:" in err


def test_address_takes_its_place_in_the_command(tmp_path):
    told = tmp_path / "told"
    program = f"import sys, pathlib; pathlib.Path({str(told)!r}).write_text(sys.argv[1])"
    end = CommandStart([sys.executable, "-c", program, "--url={url}"])("ws://127.0.0.1:9")
    end()
    assert told.read_text() == "--url=ws://127.0.0.1:9"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "client|server"),
        (("server",), "takes the URL of a server"),
        (("server", "ws://127.0.0.1:9", "--", "x"), "takes the URL of a server"),
        (("server", "http://127.0.0.1:9"), "is not of the form ws://HOST:PORT"),
        (("server", "ws://127.0.0.1:9"), "no server at ws://127.0.0.1:9"),
        (("client", "--only", "luck"), "no scenario luck"),
        (("client", "--token-file", "there-is-none"), "there-is-none"),
        (("client", "--connect-timeout", "0.1", "--", "there-is-none"), "cannot start"),
    ],
)
def test_bad_command_lines_and_absent_peers_are_exit_code_2(words, sentence):
    code, _, err = outcome(*words)
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    ("peer", "scenarios"), [("server", SERVER_SCENARIOS), ("client", CLIENT_SCENARIOS)]
)
def test_list_names_every_scenario_with_clauses_of_the_protocol(peer, scenarios):
    code, out, _ = outcome(peer, "--list")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names == [scenario.name for scenario in scenarios]
    assert len(set(names)) == len(names)
    for scenario in scenarios:
        assert scenario.clauses
        assert set(scenario.clauses) <= CLAUSES


def test_watched_clauses_and_those_of_messages_exist():
    for table in (
        watched.WATCHED_OF_SERVERS,
        watched.WATCHED_OF_CLIENTS,
        watched.WATCHED_OF_PROBES,
    ):
        assert set(table) <= CLAUSES
    assert set(CLAUSES_OF_MESSAGE) == set(MESSAGE_TYPES)
    assert {clause for clauses in CLAUSES_OF_MESSAGE.values() for clause in clauses} <= CLAUSES
