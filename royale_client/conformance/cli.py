"""The command `python -m royale_client.conformance`: reads flags, grades, prints the report."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from royale_client.config import read_token
from royale_client.conformance import report
from royale_client.conformance.client_scenarios import CLIENT_SCENARIOS
from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.listener import Listener
from royale_client.conformance.scenario import (
    Result,
    Scenario,
    Settings,
    SetupError,
    has_failed,
    play,
)
from royale_client.conformance.server_scenarios import SERVER_SCENARIOS
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.conformance.starting import URL_PLACE, CommandStart, by_hand
from royale_client.transport import ServerAddress
from royale_client.wire.errors import ConfigError
from royale_client.wire.tokens import TOKEN_VARIABLE

PROGRAM = "python -m royale_client.conformance"
PASSED, FAILED, USAGE = 0, 1, 2

_DESCRIPTION = """\
Grades a client or a server of the wire protocol royale.v1, clause by clause of docs/protocol.md.

  # a server that listens already; it should be a fresh run that nobody else uses
  {program} server ws://127.0.0.1:8000

  # a client, started anew for each conversation; {place} stands for the address to dial
  {program} client -- node docs/examples/node/client.mjs --url {place} --env probe

  # a client that somebody starts, or that comes back by itself
  {program} client --port 8000

Exit codes: 0 nothing failed; 1 a clause was broken; 2 bad flags, or nobody to grade.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: Command line without the program; None takes that of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parse(words)
        scenarios = _chosen(options)
        if options.list:
            print(report.listing(scenarios))
            return PASSED
        results = _grade(options, scenarios)
    except SystemExit as leaving:  # argparse has said why, or shown its help
        return int(leaving.code or 0)
    except (ConfigError, SetupError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return FAILED
    print(
        report.as_json(results, options.peer)
        if options.json
        else report.summary(results, options.peer)
    )
    return FAILED if has_failed(results) else PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The command line."""

    peer: str
    url: str | None
    host: str
    port: int
    connect_timeout: float
    show_output: bool
    command: tuple[str, ...]
    timeout: float
    quiet: float
    token_file: Path | None
    only: tuple[str, ...]
    json: bool
    list: bool


def _parse(words: list[str]) -> _Options:
    command: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parsed = vars(_parser().parse_args(words))
    defaults = {"url": None, "host": "", "port": 0, "connect_timeout": 0.0, "show_output": False}
    options = _Options(**(defaults | parsed | {"command": tuple(command)}))
    if options.peer == "server" and (command or not (options.url or options.list)):
        raise SetupError("server takes the URL of a server that listens, and no command")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=_DESCRIPTION.format(program=PROGRAM, place=URL_PLACE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    peers = parser.add_subparsers(dest="peer", required=True, metavar="client|server")
    server = peers.add_parser("server", help="grade a server that listens", allow_abbrev=False)
    server.add_argument("url", nargs="?", help="ws://HOST:PORT, wss://HOST:PORT or unix:///PATH")
    client = peers.add_parser("client", help="grade clients that connect", allow_abbrev=False)
    client.add_argument("--host", default="127.0.0.1", help="address to listen on")
    client.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    client.add_argument(
        "--connect-timeout", type=float, default=60.0, help="seconds to wait for a client"
    )
    client.add_argument("--show-output", action="store_true", help="show what the command prints")
    for either in (server, client):
        _add_common(either)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    settings = Settings()
    parser.add_argument("--only", action="append", default=[], help="a scenario by its name")
    parser.add_argument("--list", action="store_true", help="list the scenarios and their clauses")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--timeout", type=float, default=settings.timeout_s, help="seconds for what is owed"
    )
    parser.add_argument(
        "--quiet", type=float, default=settings.quiet_s, help="seconds to listen for silence"
    )
    parser.add_argument(
        "--token-file", type=Path, help=f"file of the token; default: {TOKEN_VARIABLE}"
    )


def _chosen(options: _Options) -> tuple[Scenario[Any], ...]:
    """Return the scenarios to play, in their order."""
    every: tuple[Scenario[Any], ...] = (
        SERVER_SCENARIOS if options.peer == "server" else CLIENT_SCENARIOS
    )
    unknown = set(options.only) - {scenario.name for scenario in every}
    if unknown:
        raise SetupError(f"no scenario {', '.join(sorted(unknown))}; --list names them")
    return tuple(s for s in every if not options.only or s.name in options.only)


def _grade(options: _Options, scenarios: Sequence[Scenario[Any]]) -> list[Result]:
    settings = Settings(
        timeout_s=options.timeout, quiet_s=options.quiet, token=read_token(options.token_file)
    )

    def tell(result: Result) -> None:
        print(report.line(result), file=sys.stderr if options.json else sys.stdout, flush=True)

    if options.url is not None:
        server = ServerUnderTest(ServerAddress(url=options.url), settings)
        return play(scenarios, server, tell=tell)
    with contextlib.closing(Listener(options.host, options.port)) as listener:
        if not options.command:
            text = "connect with it for each scenario, or give its command after --"
            print(f"listening on {listener.url}: {text}", file=sys.stderr, flush=True)
        words = options.command
        start = CommandStart(words, is_loud=options.show_output) if words else by_hand
        client = ClientUnderTest(listener, start, settings, options.connect_timeout)
        return play(scenarios, client, tell=tell)
