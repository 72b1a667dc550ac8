"""``royale bench NAME…``: Royale against what a user would do instead, in turn on this machine.

Reads the command, shows progress, prints tables, writes JSON. Ends every process it started.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from royale_server.bench import machine, memory, peers
from royale_server.bench.catalog import by_name
from royale_server.bench.peers import PEERS
from royale_server.bench.plan import Bench, BenchError
from royale_server.bench.results import FEWEST_ROUNDS, as_document, as_text, failures
from royale_server.bench.rounds import Measured, measure
from royale_server.bench.stage import Stage
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.children import interruptible

ROUNDS = 5
SECONDS = 6.0

_DESCRIPTION = """\
Measure Royale and what it is compared with in turn, each time in fresh processes, and print the
ratios of the medians. Let the machine do nothing else meanwhile.
"""
_EXAMPLES = """\
examples:
  royale bench --list
  royale bench rollout-64 rollout-16
  royale bench --all --peers --json results.json

exit codes: 0 done, every bar reached; 1 a bar is not reached, or something could not be measured;
2 wrong command; 130 Ctrl-C
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "bench",
        help="measure Royale against what one would do instead",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; see --list")
    parser.add_argument("--list", action="store_true", help="say what can be measured, and end")
    parser.add_argument("--all", action="store_true", help="measure everything")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        metavar="N",
        help=f"times each contender runs ({ROUNDS}); below {FEWEST_ROUNDS} no bar is judged",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"length of a measurement, after warm-up ({SECONDS:g})",
    )
    parser.add_argument(
        "--peers", action="store_true", help="include other libraries, where installed"
    )
    parser.add_argument(
        "--peer-python",
        action="append",
        default=[],
        metavar="PEER=PYTHON",
        help=f"interpreter of a peer ({', '.join(PEERS)}) that lives in its own environment",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    if arguments.list:
        _print_list()
        return ToolCode.OK
    benches, pythons = _chosen(arguments), _pythons(arguments.peer_python)
    if not memory.is_known():
        raise ToolError(ToolCode.USAGE, "measuring reads /proc, which only Linux has")
    wanted = PEERS.values() if arguments.peers else ()
    versions = {p.name: peers.version(p, pythons.get(p.name, sys.executable)) for p in wanted}
    known = {**machine.facts(), "peers": versions}
    sys.stdout.write(machine.as_text(known))
    if arguments.rounds < FEWEST_ROUNDS:
        _say(f"{arguments.rounds} rounds: too few to claim anything, {FEWEST_ROUNDS} are needed")
    measured: list[Measured] = []
    with interruptible(), tempfile.TemporaryDirectory(prefix="royale-bench-") as folder:
        stage = Stage(Path(folder), pythons)
        for bench in benches:
            measured.append(_measured(bench, stage, versions, arguments))
            sys.stdout.write("\n" + as_text(measured[-1]))
            sys.stdout.flush()
            if arguments.json is not None:  # after each, so that an interruption loses little
                _write_json(arguments, measured, known)
    is_whole = all(one.problem is None for one in measured)
    return ToolCode.OK if is_whole and not failures(measured) else ToolCode.FAILED


def _measured(
    bench: Bench,
    stage: Stage,
    versions: Mapping[str, str | None],
    arguments: argparse.Namespace,
) -> Measured:
    contenders, left_out = peers.split(bench.contenders, versions)
    started = time.monotonic()
    samples, problem = {}, None
    try:
        samples = measure(
            bench,
            contenders,
            stage,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            say=_say,
        )
    except BenchError as error:  # the others can still be measured
        problem = str(error)
    return Measured(
        bench=bench,
        samples=samples,
        left_out=left_out,
        problem=problem,
        duration_s=time.monotonic() - started,
    )


# --- reading ----------------------------------------------------------------------------------


def _chosen(arguments: argparse.Namespace) -> list[Bench]:
    known = by_name()
    if arguments.all == bool(arguments.names):
        raise ToolError(ToolCode.USAGE, "name what to measure, or --all; --list says what there is")
    strangers = [name for name in arguments.names if name not in known]
    if strangers:
        raise ToolError(
            ToolCode.USAGE, f"unknown: {', '.join(strangers)}; known: {', '.join(known)}"
        )
    if arguments.rounds < 1 or not arguments.seconds > 0:
        raise ToolError(ToolCode.USAGE, "--rounds and --seconds must be above 0")
    return list(known.values()) if arguments.all else [known[name] for name in arguments.names]


def _pythons(pairs: Sequence[str]) -> dict[str, str]:
    pythons = {}
    for pair in pairs:
        peer, _, python = pair.partition("=")
        if peer not in PEERS or not Path(python).is_file():
            raise ToolError(
                ToolCode.USAGE,
                f"--peer-python {pair}: expected PEER=PYTHON, PEER one of {', '.join(PEERS)} and "
                "PYTHON the file of an interpreter",
            )
        pythons[peer] = python
    return pythons


# --- showing ----------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _print_list() -> None:
    for bench in by_name().values():
        sys.stdout.write(f"{bench.name}\n    {bench.title}\n")
        for claim in bench.claims:
            if claim.bar is not None:
                sign = "≤" if claim.at_most else "≥"
                aim = "" if claim.aim is None else f", aim {claim.aim:g}"
                unit = f" {claim.unit}" if claim.unit else ""
                sys.stdout.write(f"    {claim.text}: {sign} {claim.bar:g}{unit}{aim}\n")


def _write_json(
    arguments: argparse.Namespace, measured: Sequence[Measured], known: dict[str, object]
) -> None:
    document = as_document(
        measured, machine=known, rounds=arguments.rounds, seconds=arguments.seconds
    )
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
