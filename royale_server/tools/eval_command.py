"""``royale eval PLAYER --against PLAYER``: paired battles, and a win rate with its interval.

Reads checkpoints, changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from royale_server.config import TORCH_THREADS
from royale_server.evaluation.metrics import verdict_line
from royale_server.evaluation.round import EvaluationRound, Verdict
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.run_argument import find_run

if TYPE_CHECKING:
    from royale_server.evaluation.players import Player

BATTLES = 1000
_AGAINST = ("random", "heuristic")
_SAY_EVERY_S = 2.0

_DESCRIPTION = """\
Let two players of the arena play against each other: every deal twice, with the seats exchanged. A
player is a scripted bot by its name, a run (its newest whole checkpoint), or a run and a step,
RUN@STEP. The same seed gives the same battles.
"""
_EXAMPLES = """\
examples:
  royale eval latest                                 the run that was started last, against two bots
  royale eval first --against heuristic --battles 4000
  royale eval first --against first@200704           against its own past
  royale eval heuristic --against random

  royale eval first --against heuristic --replays replays     see royale replay

exit codes: 0 done; 1 a checkpoint could not be read; 2 no such player, or a wrong flag; 130 Ctrl-C
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "eval",
        help="let policies and scripted bots play against each other",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("player", metavar="PLAYER", help="a bot, a run, or RUN@STEP")
    parser.add_argument(
        "--against",
        action="append",
        metavar="PLAYER",
        help=f"whom to play; can be given several times ({', '.join(_AGAINST)})",
    )
    parser.add_argument(
        "--battles", type=int, default=BATTLES, metavar="N", help=f"an even number ({BATTLES})"
    )
    parser.add_argument("--seed", type=int, default=0, help="what all deals follow from (0)")
    parser.add_argument(
        "--greedy", action="store_true", help="policies take their most likely action"
    )
    parser.add_argument(
        "--torch-threads",
        type=int,
        default=1,
        metavar="N",
        help="threads within one torch operation (1): more only help large networks",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
    )
    parser.add_argument(
        "--replays", type=Path, metavar="DIR", help="record one battle against each of them there"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    if arguments.battles < 2 or arguments.battles % 2:
        raise ToolError(
            ToolCode.USAGE,
            f"--battles {arguments.battles}: expected an even number of at least 2",
        )
    if not 0 <= arguments.seed < 2**63:
        raise ToolError(ToolCode.USAGE, f"--seed {arguments.seed}: expected 0 to 2**63 - 1")
    low, high = TORCH_THREADS
    if not low <= arguments.torch_threads <= high:
        raise ToolError(
            ToolCode.USAGE,
            f"--torch-threads {arguments.torch_threads}: expected {low:,} to {high:,}",
        )
    try:
        from royale_server.evaluation.battles import play
    except ImportError as error:
        raise ToolError(
            ToolCode.FAILED, f"battles need numba: pip install 'royale-rl[arena]' ({error})"
        ) from error
    first = _player(arguments.player, arguments)
    rows = []
    for name in arguments.against or _AGAINST:
        evaluation = EvaluationRound(arguments.battles // 2, arguments.seed)
        progress = _Progress(name, arguments.battles)
        replay = play(evaluation, first, _player(name, arguments), progress=progress)
        if arguments.replays is not None:
            arguments.replays.mkdir(parents=True, exist_ok=True)
            replay.write(arguments.replays / _file_name(arguments.player, name))
        rows.append((name, evaluation.verdict()))
        if not arguments.json:
            sys.stdout.write(f"{verdict_line(arguments.player, name, rows[-1][1])}\n")
            sys.stdout.flush()
    if arguments.json:
        sys.stdout.write(json.dumps([_as_data(arguments, *row) for row in rows], indent=2) + "\n")
    return ToolCode.OK


def _file_name(*players: str) -> str:
    """Return a file name of two players' names; of a directory, the last part is name enough."""
    short = (name.rstrip("/").rpartition("/")[2] for name in players)
    names = ("".join(c if c.isalnum() or c in "@_." else "-" for c in name) for name in short)
    return "-".join(names) + ".json"


def _player(name: str, arguments: argparse.Namespace) -> Player:
    from royale_server.evaluation.players import (
        PolicyPlayer,
        bot_names,
        bot_player,
        load_policy,
    )

    bot = bot_player(name)
    if bot is not None:
        return bot
    run_name, _, step = name.partition("@")
    try:
        run_folder = find_run(run_name, arguments.runs)
    except ToolError as error:
        bots = ", ".join(bot_names())
        raise ToolError(
            ToolCode.USAGE, f"{name!r} is no bot ({bots}), and {error}", error.details
        ) from error
    policy = load_policy(run_folder, _checkpoint(run_folder, step), arguments.torch_threads)
    return PolicyPlayer(name, policy, greedy=arguments.greedy)


def _checkpoint(run_folder: Path, step: str) -> Path:
    from checkpoints import list_checkpoints, newest

    if not step:
        return newest(run_folder)[0]
    whole, _ = list_checkpoints(run_folder)
    found = {str(entry.step): entry.path for entry in whole}
    if step not in found:
        steps = sorted(found, key=int)
        raise ToolError(
            ToolCode.USAGE, f"{run_folder} has no whole checkpoint {step}; it has:", steps
        )
    return found[step]


class _Progress:
    """Says now and then how far a round is."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._said_at = time.monotonic()

    def __call__(self, known: int) -> None:
        if time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._said_at = time.monotonic()
            sys.stderr.write(f"against {self._name}: {known:,} of {self._total:,} battles\n")


def _as_data(arguments: argparse.Namespace, name: str, verdict: Verdict) -> dict[str, object]:
    return {
        "player": arguments.player,
        "against": name,
        "seed": arguments.seed,
        "greedy": arguments.greedy,
        "win_rate": verdict.win_rate,
        **asdict(verdict),
    }
