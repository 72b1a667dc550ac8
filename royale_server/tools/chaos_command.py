"""``royale chaos``: a proxy between clients and a server that has a bad network's faults.

Reads the command, runs the proxy until Ctrl-C, prints every fault as a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import sys
from dataclasses import asdict
from typing import Any

from royale_client.wire.errors import ConfigError
from royale_server.chaos.plan import KINDS, PLANS, Clause, parse_plan, schedule
from royale_server.chaos.proxy import FaultProxy
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.children import interruptible

_DESCRIPTION = """\
Stand between clients and a server, carry what they say, and have faults at moments that the seed
decides. Clients connect to the address of --listen. Every fault is printed as a line of JSON.
"""
_EPILOG = """\
a plan is the name of one, or clauses with commas between them:
  KIND [up|down|both] every SECONDS [for SECONDS] [of AMOUNT]
where SECONDS and AMOUNT after «for» and «of» may be ranges, 1-10, and KIND is one of
{kinds}

plans:
{plans}

example:
  royale chaos --upstream 127.0.0.1:8000 --seed 7 --plan 'cut every 30 for 1-10'

exit codes: 0 the time of --seconds is over; 1 it cannot listen there; 2 wrong command; 130 Ctrl-C
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    kinds = "\n".join(
        f"  {kind:11} {facts.meaning.format(amount='AMOUNT')}" for kind, facts in KINDS.items()
    )
    plans = "\n".join(f"  {name:11} {plan}" for name, plan in PLANS.items())
    parser = subparsers.add_parser(
        "chaos",
        help="a proxy that delays, cuts and corrupts connections",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(kinds=kinds, plans=plans),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--upstream", required=True, metavar="HOST:PORT", help="where the server listens"
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="where to listen; port 0, the default, takes a free one and says which",
    )
    parser.add_argument("--plan", default="wifi", help="what goes wrong (wifi)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides when (0)")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="how long to run; until Ctrl-C without it"
    )
    parser.add_argument(
        "--show", type=int, metavar="N", help="print the first N faults of the plan, and end"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    try:
        clauses = parse_plan(arguments.plan)
    except ConfigError as error:
        raise ToolError(ToolCode.USAGE, f"--plan: {error}") from error
    if arguments.show is not None:
        for fault in itertools.islice(schedule(clauses, arguments.seed), max(0, arguments.show)):
            _print(asdict(fault))
        return ToolCode.OK
    upstream = _address("--upstream", arguments.upstream, lowest_port=1)
    listen = _address("--listen", arguments.listen, lowest_port=0)
    proxy = FaultProxy(upstream, listen=listen, seed=arguments.seed, on_fault=_print)
    with interruptible():
        asyncio.run(_proxy(proxy, clauses, arguments.seed, arguments.seconds))
    return ToolCode.OK


async def _proxy(
    proxy: FaultProxy, clauses: tuple[Clause, ...], seed: int, seconds: float | None
) -> None:
    async with proxy:
        host, port = proxy.address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        sys.stderr.write(f"listening on ws://{place}\n")
        sys.stderr.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await proxy.play(schedule(clauses, seed))


def _address(flag: str, given: str, lowest_port: int) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isdecimal() and lowest_port <= int(port) <= 65535):
        raise ToolError(ToolCode.USAGE, f"{flag} {given}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _print(done: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({key: _plain(value) for key, value in done.items()}) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    """Round a number for the eye; JSON has no infinity."""
    if not isinstance(value, float):
        return value
    return round(value, 3) if math.isfinite(value) else None
