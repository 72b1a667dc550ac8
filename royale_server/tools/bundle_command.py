"""``royale bundle show DIR``: read a bundle back for a person.

A battle is played again from its recorded actions. Writes only a replay, and only if told to.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from royale_server.alarms.words import values_text
from royale_server.bundle import EPISODE, HALT, RATIOS, ROWS_FILE, SUMMARY
from royale_server.run.records import read_records
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.run_argument import find_run

ARENA = "royale/arena"

_DESCRIPTION = """\
Show what was known when an alarm spoke: the alarms and what they read, the checkpoint and the
command that resumes from it, an episode, and the frames whose probability ratio was worst.
"""
_EXAMPLES = """\
examples:
  royale bundle show latest                           the newest bundle of the newest run
  royale bundle show runs/ppo/arena-policy/a/bundles/000120
  royale bundle show latest --replay battle.json      for: royale replay battle.json

exit codes: 0 done; 1 the episode does not come to what was recorded; 2 there is no bundle
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "bundle",
        help="show what was known when an alarm stopped a run",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["show"], metavar="show")
    parser.add_argument("bundle", metavar="DIR", help="a bundle, or a run: its newest one")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="write the battle for royale replay"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    directory = _find(arguments.bundle, arguments.runs)
    for line in (*_head(directory), *_ratios(directory)):
        sys.stdout.write(f"{line}\n")
    episode = _read(directory / EPISODE)
    if episode is None:
        sys.stdout.write("no episode is recorded\n")
        return ToolCode.OK
    for line in _episode(episode):
        sys.stdout.write(f"{line}\n")
    if _is_arena(directory):
        return _play_again(episode, arguments.replay)
    if arguments.replay is not None:
        raise ToolError(ToolCode.USAGE, "--replay: only battles of the arena can be played again")
    return ToolCode.OK


def _find(argument: str, runs: Path) -> Path:
    direct = Path(argument)
    if (direct / SUMMARY).is_file():
        return direct
    bundles = find_run(argument, runs) / "bundles"
    found = sorted(bundles.glob(f"*/{SUMMARY}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ToolError(ToolCode.USAGE, f"there is no bundle in {bundles}: no alarm has left one")
    return found[-1].parent


def _head(directory: Path) -> Iterator[str]:
    halt = _read(directory / HALT) or {"alarms": []}
    summary = _read(directory / SUMMARY) or {}
    yield f"bundle {directory}: iteration {summary.get('iteration')}"
    for alarm in halt["alarms"]:
        yield f"  alarm [{alarm['severity']}] {alarm['alarm']}: {values_text(alarm['values'])}"
        yield f"    {alarm['meaning']}"
        yield f"    fires when: {alarm['rule'].replace('`', '')}"
        for key, values in alarm["last_values"].items():
            yield f"    last values of {key}: {', '.join(map(str, values))}"
        yield f"    do: {alarm['remedy'].replace('`', '')}"
    if halt.get("refused_batch"):
        yield f"  batch refused: {halt['refused_batch']['message']}"
    rows = directory / ROWS_FILE
    if rows.exists():
        yield f"  {len(read_records(rows)[0])} rows in {ROWS_FILE}"
    yield f"  checkpoint: {halt.get('checkpoint') or 'none'}"
    if halt.get("resume"):
        yield f"  resume with: {halt['resume']}"
    for note in summary.get("notes", ()):
        yield f"  not written: {note}"


def _ratios(directory: Path) -> Iterator[str]:
    for cell in _read(directory / RATIOS) or ():
        yield f"  ratio {values_text(cell)}"


def _episode(episode: Mapping[str, Any]) -> Iterator[str]:
    record = episode["record"]
    yield (
        f"  episode: client {episode['client']}, slot {episode['slot']}, "
        f"return {record.get('return')}, length {record.get('length')}, "
        f"{record.get('player', 'learner')} against {record.get('opponent') or 'nobody'}"
    )
    if "actions" in episode:
        yield f"    {len(episode['actions'])} recorded actions in {EPISODE}"
    else:
        yield "    its actions are not recorded: a bot played it, or they are no longer kept"


def _is_arena(directory: Path) -> bool:
    identity = _read(directory / "identity.json") or {}
    return any(ARENA in str(environment) for environment in identity.get("environments", ()))


def _play_again(episode: Mapping[str, Any], file: Path | None) -> ToolCode:
    try:
        from royale_server.evaluation.reconstruction import reconstructed
    except ImportError as error:
        raise ToolError(
            ToolCode.FAILED, f"battles need numba: pip install 'royale-rl[arena]' ({error})"
        ) from error
    replay = reconstructed(episode)
    sys.stdout.write(
        f"    played again from its recorded actions: {len(replay.actions)} decisions come to what "
        f"was recorded, {replay.result.crowns[0]} to {replay.result.crowns[1]} crowns\n"
    )
    if file is not None:
        replay.write(file)
        sys.stdout.write(f"    watch it with: royale replay {file}\n")
    return ToolCode.OK


def _read(path: Path) -> Any:  # noqa: ANN401 - whatever JSON the file holds
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ToolError(ToolCode.FAILED, f"{path} is damaged: {error}") from error
