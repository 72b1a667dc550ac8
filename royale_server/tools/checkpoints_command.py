"""``royale checkpoints RUN``: list the checkpoints of a run, check, prune, pin.

Pruning is dry unless told otherwise, never touches the newest whole checkpoint, and leaves the
newest two of a run that a process works on alone: it may be about to be resumed from one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from checkpoints import CheckpointEntry, list_checkpoints, pin, prune, surplus, unpin
from royale_server.run.lock import Owner, holder
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.checkpoint_list import CheckpointRow, read_rows, size_text, table
from royale_server.tools.run_argument import find_run

KEEP_LAST = 3
LOCK_FILE = "lock"
SAFE_IN_A_LIVE_RUN = 2

_DESCRIPTION = """\
List the checkpoints of a run, oldest first: the newest whole one is what --resume takes, the best
one has the highest evaluation, or else mean return, and a torn one is passed over by everybody.
"""
_EXAMPLES = """\
examples:
  royale checkpoints latest                     the run that was started last
  royale checkpoints first --verify             hash every file of the run called first
  royale checkpoints first --pin 20480          never prune that one
  royale checkpoints first --prune --keep-last 2          say what would go
  royale checkpoints first --prune --keep-last 2 --yes    let it go

exit codes: 0 done; 1 --verify found one that is not whole; 2 no such run, step or flag;
4 not done, since it could cost a run its checkpoints
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "checkpoints",
        help="list, check, prune and pin the checkpoints of a run",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run", metavar="RUN", help="path, name, unique beginning of a name, or latest"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--verify", action="store_true", help="hash every file; may take a while")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prune", action="store_true", help="say which checkpoints could go")
    what.add_argument("--pin", type=int, metavar="STEP", help="never prune this one")
    what.add_argument("--unpin", type=int, metavar="STEP", help="let this one be pruned again")
    parser.add_argument("--yes", action="store_true", help="with --prune: remove them")
    parser.add_argument(
        "--keep-last",
        type=_at_least_one,
        metavar="N",
        help=f"with --prune: newest ones that stay ({KEEP_LAST})",
    )
    parser.add_argument(
        "--keep-every",
        type=_at_least_one,
        metavar="FRAMES",
        help="with --prune: of each such stretch of frames the first one stays (none)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    _check(arguments)
    directory = find_run(arguments.run, arguments.runs)
    if arguments.prune:
        return _prune(directory, arguments)
    if arguments.pin is not None:
        pin(_entry(directory, arguments.pin).path)
    if arguments.unpin is not None:
        unpin(_entry(directory, arguments.unpin).path)
    rows = read_rows(directory, hashes=arguments.verify)
    owner = holder(directory / LOCK_FILE)
    if arguments.json:
        _print_json({"run": str(directory), "live": owner is not None, **_rows_as_json(rows)})
    else:
        sys.stdout.write(_listing(directory, owner, rows))
    is_torn = any(row.problem is not None for row in rows)
    return ToolCode.FAILED if arguments.verify and is_torn else ToolCode.OK


def _check(arguments: argparse.Namespace) -> None:
    only_with_prune = {
        "--yes": arguments.yes,
        "--keep-last": arguments.keep_last is not None,
        "--keep-every": arguments.keep_every is not None,
    }
    strays = [flag for flag, given in only_with_prune.items() if given and not arguments.prune]
    if strays:
        raise ToolError(ToolCode.USAGE, f"{', '.join(strays)}: only together with --prune")
    if arguments.verify and arguments.prune:
        raise ToolError(ToolCode.USAGE, "--verify and --prune: got both, expected one")


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, expected 1 or more")
    return number


def _rows_as_json(rows: Sequence[CheckpointRow]) -> dict[str, object]:
    return {"checkpoints": [row.as_json() for row in rows]}


def _listing(directory: Path, owner: Owner | None, rows: Sequence[CheckpointRow]) -> str:
    live = f", in use by {owner}" if owner is not None else ""
    if not rows:
        return f"{directory}: no checkpoints{live}\n"
    total = size_text(sum(row.size_bytes for row in rows))
    return f"{directory}: {_count(len(rows))}, {total}{live}\n{table(rows)}"


def _count(number: int) -> str:
    return "1 checkpoint" if number == 1 else f"{number} checkpoints"


def _entry(directory: Path, step: int) -> CheckpointEntry:
    entries, _ = list_checkpoints(directory)
    for entry in entries:
        if entry.step == step:
            return entry
    steps = ", ".join(str(entry.step) for entry in entries) or "none"
    raise ToolError(ToolCode.USAGE, f"{directory} has no checkpoint of step {step}; it has {steps}")


# --- pruning --------------------------------------------------------------------------------


def _prune(directory: Path, arguments: argparse.Namespace) -> ToolCode:
    keep_last, keep_every = arguments.keep_last or KEEP_LAST, arguments.keep_every
    entries, _ = list_checkpoints(directory)
    doomed = surplus(entries, keep_last=keep_last, keep_every=keep_every)
    _refuse_to_cost_a_run(directory, entries, doomed)
    if arguments.yes:
        stay = {entry.step for entry in entries} - {entry.step for entry in doomed}
        removed = prune(directory, keep_last=keep_last, keep_every=keep_every, protect=stay)
        if doomed and not removed:
            raise ToolError(ToolCode.REFUSED, "nothing is removed: the newest one is not whole")
        doomed = [entry for entry in doomed if entry.path in removed]
    _report_pruned(directory, doomed, arguments)
    return ToolCode.OK


def _refuse_to_cost_a_run(
    directory: Path, entries: Sequence[CheckpointEntry], doomed: Sequence[CheckpointEntry]
) -> None:
    if not doomed:
        return
    newest = read_rows(directory, hashes=False)[len(entries) - 1]
    if newest.problem is not None:
        raise ToolError(
            ToolCode.REFUSED,
            f"nothing is removed, since the newest checkpoint, {newest.step}, is not whole: "
            f"{newest.problem}",
        )
    owner = holder(directory / LOCK_FILE)
    safe = {entry.step for entry in entries[-SAFE_IN_A_LIVE_RUN:]}
    if owner is not None and any(entry.step in safe for entry in doomed):
        raise ToolError(
            ToolCode.REFUSED,
            f"{directory} is in use by {owner}, and its newest {SAFE_IN_A_LIVE_RUN} checkpoints "
            f"stay: write --keep-last {SAFE_IN_A_LIVE_RUN}, or stop it first",
        )


def _report_pruned(
    directory: Path, doomed: Sequence[CheckpointEntry], arguments: argparse.Namespace
) -> None:
    freed = sum(entry.size_bytes for entry in doomed)
    if arguments.json:
        steps = [entry.step for entry in doomed]
        key = "removed" if arguments.yes else "would_remove"
        _print_json({"run": str(directory), key: steps, "freed_bytes": freed})
        return
    if not doomed:
        sys.stdout.write(f"{directory}: nothing to prune\n")
        return
    steps_text = ", ".join(f"{entry.step:,}" for entry in doomed)
    what = f"{_count(len(doomed))}, {size_text(freed)}: {steps_text}"
    if arguments.yes:
        sys.stdout.write(f"{directory}: removed {what}\n")
    else:
        sys.stdout.write(f"{directory}: would remove {what}\nadd --yes to remove them\n")


def _print_json(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
