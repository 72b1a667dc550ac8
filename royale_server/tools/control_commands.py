"""``royale checkpoint|stop|pause|continue RUN``: ask a running server for something, and wait.

Leaves a request in the run's directory and follows ``events.jsonl`` to the answer. Signals nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from royale_server.run.lock import holder
from royale_server.run.requests import ANSWERED, Request, Verb, leave_request
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.run_argument import find_run

EVENTS_FILE, LOCK_FILE, REQUESTS = "events.jsonl", "lock", "requests"
LOOK_EVERY_S = 0.1
TIMEOUT_S = 120.0

_MEANINGS = {
    Verb.CHECKPOINT: "have a running server write a checkpoint, and go on",
    Verb.STOP: "have a running server write a checkpoint and end",
    Verb.PAUSE: "have a running server rest until it is told to go on",
    Verb.CONTINUE: "end a pause",
}
_EXIT_CODES = """\
exit codes: 0 done; 1 the server did not do it, or has not answered in time; 2 no such run;
3 nothing works on the run
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommands."""
    for verb, meaning in _MEANINGS.items():
        parser = subparsers.add_parser(
            verb.value,
            help=meaning,
            description=f"{meaning[0].upper()}{meaning[1:]}.",
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument(
            "run", metavar="RUN", help="path, name, unique beginning of a name, or latest"
        )
        parser.add_argument(
            "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=TIMEOUT_S,
            metavar="S",
            help=f"seconds to wait for it ({TIMEOUT_S:g})",
        )
        parser.set_defaults(command=partial(run, verb))


def run(verb: Verb, arguments: argparse.Namespace) -> ToolCode:
    """Carry one of the subcommands out."""
    directory = find_run(arguments.run, arguments.runs)
    owner = holder(directory / LOCK_FILE)
    if owner is None:
        raise ToolError(ToolCode.NOT_LIVE, f"nothing works on {directory}: there is nobody to ask")
    deadline = time.monotonic() + arguments.timeout
    events = _Tail(directory / EVENTS_FILE)
    request = leave_request(directory / REQUESTS, verb)
    _say(f"asked {owner} for: {verb.value}")
    answer = _answer(request, directory, events, deadline)
    if answer is None:
        _withdraw(directory, request)
        raise ToolError(
            ToolCode.FAILED,
            f"no answer within {arguments.timeout:g} s; the server may be busy or its disk slow: "
            "royale checkpoints and the log tell more",
        )
    _say(str(answer.get("message")))
    if not answer.get("ok"):
        return ToolCode.FAILED
    if verb is not Verb.STOP:
        return ToolCode.OK
    return _follow_to_end(directory, events, deadline)


def _answer(
    request: Request, directory: Path, events: _Tail, deadline: float
) -> dict[str, Any] | None:
    while time.monotonic() < deadline:
        for event in events.new():
            if event.get("kind") == ANSWERED and event.get("request") == request.id:
                return event
        if holder(directory / LOCK_FILE) is None:
            return None
        time.sleep(LOOK_EVERY_S)
    return None


def _follow_to_end(directory: Path, events: _Tail, deadline: float) -> ToolCode:
    """Show what a server that ends says, until it has let go of the run."""
    while time.monotonic() < deadline:
        for event in events.new():
            _say(str(event.get("message")))
        if holder(directory / LOCK_FILE) is None:
            for event in events.new():
                _say(str(event.get("message")))
            return ToolCode.OK
        time.sleep(LOOK_EVERY_S)
    raise ToolError(ToolCode.FAILED, "it has not ended yet; its log says what it waits for")


def _withdraw(directory: Path, request: Request) -> None:
    """A request nobody took must not be obeyed when nobody expects it."""
    with contextlib.suppress(OSError):
        (directory / REQUESTS / f"{request.id}.json").unlink()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Tail:
    """What is appended to a file of records from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records that have come whole since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)
