"""``royale verify-resume``: is a run that was killed and resumed the run that it would have been?

Reads the command, shows progress and the verdict. Leaves no process behind, and no run unless it is
told to keep it, or there is something to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from royale_client.wire.errors import ConfigError, RoyaleError
from royale_server import crash_points
from royale_server.cli import Command, RefusedCommandError, read_command, registry_for
from royale_server.monitoring.declarations import Dictionary, declared, deterministic_keys
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.tools.checkpoint_list import columns
from royale_server.tools.children import interruptible
from royale_server.tools.comparing import Difference
from royale_server.tools.kill_plan import RANDOM, KillPlan, parse_kill
from royale_server.tools.resume_check import Check, Verdict, carry_out
from royale_server.tools.verified_run import client_words
from royale_server.tools.verify_words import own_words

SAVE_EVERY = 3
DEFAULT_POINT = "learn"

_DESCRIPTION = """\
Check that a resumed run is the run that was interrupted. Run a goes through; run b has the same
words and flags, is killed with SIGKILL and resumed. Then every number of metrics.jsonl that is
declared deterministic must be the same in both, to the last bit, before and after the kill.

After -- come the words and flags of royale-server as you would type them. Where the runs lie, where
they listen and when they end is decided here, and checkpoints come every 3 iterations unless
--save-every says otherwise.

Clients are started by this command: give --client-command once for each; they reconnect by
themselves when the server dies, and are started again if they end. With --inline there are none.
Several clients need --deterministic, --min-clients and a --client-name each: without them the order
in which messages happen to arrive decides what is learned, and no two runs are the same.
"""
_EXAMPLES = """\
examples:
  royale verify-resume -- mlp-policy default ppo default --inline CartPole-v1

  royale verify-resume --kill-at collect \\
      --client-command 'royale-env-client gym --env-id CartPole-v1 --client-name one' \\
      --client-command 'royale-env-client gym --env-id CartPole-v1 --client-name two' \\
      -- mlp-policy default ppo default --deterministic --min-clients 2

exit codes: 0 the same; 1 different, or the check could not be carried out; 2 wrong command
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    points = "\n".join(f"  {name:<10} {what}" for name, what in crash_points.POINTS.items())
    parser = subparsers.add_parser(
        "verify-resume",
        help="check that a killed and resumed run is the run that was interrupted",
        usage="royale verify-resume [flags] -- POLICY VARIANT ALGO VARIANT [flags of the server]",
        description=_DESCRIPTION,
        epilog=(
            f"points of --kill-at; POINT:N means the N-th time:\n{points}\n"
            f"  {RANDOM:<10} any moment after the first checkpoint\n\n{_EXAMPLES}"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--client-command",
        action="append",
        default=[],
        metavar="CMD",
        help="command of a client; {url} in it becomes the server's address, without it "
        "--server-url ADDRESS is appended; repeat for more clients",
    )
    parser.add_argument(
        "--kill-at", default=DEFAULT_POINT, metavar="POINT", help=f"see below ({DEFAULT_POINT})"
    )
    parser.add_argument(
        "--kill-seed", type=int, metavar="N", help="with --kill-at random: a seed it printed"
    )
    parser.add_argument(
        "--iterations", type=int, default=10, metavar="N", help="compared after the kill (10)"
    )
    parser.add_argument(
        "--silence",
        type=float,
        default=600.0,
        metavar="S",
        help="most seconds of no row, until a server listens, and until it ends (600)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep both runs and all logs in this new folder"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    own = own_words(arguments.after_separator, SAVE_EVERY)
    command = _read(own.words, arguments)
    specs = _declarations(command)
    keys = deterministic_keys(specs)
    plan = _plan(arguments, command.config.save_every)
    for flag in own.dropped:
        _say(f"left out, since the check decides it: {flag}")
    with interruptible(), _folder(arguments.keep) as folder:
        check = Check(
            words=own.words,
            clients=tuple(arguments.client_command),
            keys=keys,
            always=frozenset(key for key in keys if not specs[key].absent_when),
            plan=plan,
            iterations=arguments.iterations,
            silence_s=arguments.silence,
            folder=folder.path,
            specs=specs,
        )
        verdict = carry_out(check, _say)
        folder.is_worth_keeping = not verdict.is_same
        _report(verdict, check)
    return ToolCode.OK if verdict.is_same else ToolCode.FAILED


# --- reading ----------------------------------------------------------------------------------


def _read(words: tuple[str, ...], arguments: argparse.Namespace) -> Command:
    """Understand the command of the server, before anything is started."""
    if not arguments.after_separator:
        raise ToolError(ToolCode.USAGE, "the server's words are missing: write them after --")
    try:
        command = read_command(words, registry_for(words))
    except RefusedCommandError as refusal:
        raise ToolError(ToolCode.USAGE, "the server would refuse:", refusal.problems) from refusal
    except SystemExit as ended:  # its help, or a value that the parser has complained about
        raise ToolError(ToolCode.USAGE, "nothing was checked") from ended
    problem = _client_problem(command, arguments.client_command)
    if problem is not None:
        raise ToolError(ToolCode.USAGE, problem)
    if arguments.iterations < 1 or not arguments.silence > 0:
        raise ToolError(ToolCode.USAGE, "--iterations and --silence must be above 0")
    return command


def _client_problem(command: Command, clients: list[str]) -> str | None:
    if command.config.inline is not None:
        return "--client-command: --inline has no clients; leave one out" if clients else None
    if not clients:
        return "--client-command: needed once for each client (or --inline ENV after --)"
    if len(clients) > 1 and not command.config.deterministic:
        return (
            f"--deterministic is missing after --: {len(clients)} clients without it never give "
            "the same run twice, so nothing could be compared"
        )
    for client in clients:
        try:
            client_words(client, "")
        except ValueError as error:
            return f"--client-command {client!r}: {error}"
    return None


def _plan(arguments: argparse.Namespace, save_every: int) -> KillPlan:
    try:
        point, count = parse_kill(arguments.kill_at)
    except ConfigError as error:
        raise ToolError(ToolCode.USAGE, f"--kill-at: {error}") from error
    if arguments.kill_seed is not None and point != RANDOM:
        raise ToolError(ToolCode.USAGE, f"--kill-seed: only together with --kill-at {RANDOM}")
    seed = secrets.randbelow(2**32) if arguments.kill_seed is None else arguments.kill_seed
    return KillPlan(point=point, count=count, save_every=save_every, seed=seed)


def _declarations(command: Command) -> Dictionary:
    """What the numbers are; the learner says so of its own. This imports torch."""
    learner = command.chosen.algo_entry.load_implementation()
    return declared(learner.metrics)


# --- surroundings -----------------------------------------------------------------------------


class _Folder:
    """Where runs and logs lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_worth_keeping = False


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[_Folder]:
    """Make the folder; remove it at the end unless it is wanted or worth a look."""
    if keep is None:
        folder = _Folder(Path(tempfile.mkdtemp(prefix="royale-verify-")))
    else:
        try:
            keep.mkdir(parents=True)
        except FileExistsError as error:
            raise ToolError(ToolCode.USAGE, f"--keep {keep}: exists; name a new one") from error
        folder = _Folder(keep.resolve())
    try:
        yield folder
    except RoyaleError:
        folder.is_worth_keeping = True
        raise
    finally:
        if keep is not None or folder.is_worth_keeping:
            _say(f"runs and logs are in {folder.path}")
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


# --- showing ----------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _report(verdict: Verdict, check: Check) -> None:
    found = verdict.differences
    over = (
        f"{len(check.keys)} deterministic keys over {verdict.iterations} iterations, "
        f"{verdict.after_kill} of them after the kill"
    )
    for key in verdict.never_written:
        _say(f"NOT COMPARED: no row has {key}, and its declaration gives no `absent_when`")
    if verdict.is_same:
        _say(f"the same to the last bit: {over}")
        return
    if not found:
        return
    cells = [("key", "iteration", "a", "b"), *map(_cells, found)]
    _say(columns(cells, left=(0,)).rstrip("\n"))
    first = min(difference.iteration for difference in found)
    _say(f"DIFFERENT: {len(found)} numbers, from iteration {first} on, of {over}")


def _cells(difference: Difference) -> tuple[str, ...]:
    return (difference.key, str(difference.iteration), difference.a, difference.b)
