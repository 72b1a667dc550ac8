"""``royale SUBCOMMAND``: reads the command, carries it out, turns refusals into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from royale_client.wire.errors import RoyaleError
from royale_server.tools import (
    alarms_command,
    bench_command,
    bundle_command,
    chaos_command,
    checkpoints_command,
    control_commands,
    doctor_command,
    eval_command,
    heatmap_command,
    replay_command,
    verify_command,
)
from royale_server.tools.answers import ToolCode, ToolError
from royale_server.version import product_version

PROGRAM = "royale"
SEPARATOR = "--"

_DESCRIPTION = """\
Look at runs of royale-server, check them, and ask something of a server that runs. A running server
is not disturbed unless it is asked.
"""
_EXAMPLES = """\
examples:
  royale doctor mlp-policy default ppo classic --exp-name first
  royale checkpoints latest
  royale verify-resume -- mlp-policy default ppo default --inline CartPole-v1

royale SUBCOMMAND --help says more about each.

exit codes: 0 done; 1 a check failed; 2 wrong command, or nothing or several things of that name;
3 nothing works on the run; 4 not done, since it could cost a run; 130 Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``royale`` and return its exit code.

    Args:
        argv: Arguments after the program's name; the process's own by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    at = words.index(SEPARATOR) if SEPARATOR in words else len(words)
    parser = make_parser()
    try:
        arguments = parser.parse_args(words[:at])
    except SystemExit as ended:  # after help (0), or a word that cannot be read (2)
        return ToolCode.OK if not ended.code else ToolCode.USAGE
    arguments.after_separator = words[at + 1 :]
    if arguments.after_separator and arguments.command is not verify_command.run:
        return _refused(ToolError(ToolCode.USAGE, f"nothing is expected after {SEPARATOR}"))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    return _run(arguments)


def make_parser() -> argparse.ArgumentParser:
    """Describe the whole command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {product_version()}")
    subparsers = parser.add_subparsers(metavar="SUBCOMMAND", required=True)
    alarms_command.add_parser(subparsers)
    bundle_command.add_parser(subparsers)
    control_commands.add_parsers(subparsers)
    doctor_command.add_parser(subparsers)
    checkpoints_command.add_parser(subparsers)
    verify_command.add_parser(subparsers)
    bench_command.add_parser(subparsers)
    eval_command.add_parser(subparsers)
    replay_command.add_parser(subparsers)
    heatmap_command.add_parser(subparsers)
    chaos_command.add_parser(subparsers)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.command(arguments))
    except ToolError as error:
        return _refused(error)
    except (RoyaleError, OSError) as error:
        return _refused(ToolError(ToolCode.FAILED, str(error)))
    except KeyboardInterrupt:
        return ToolCode.INTERRUPTED
    finally:
        _flush()


def _refused(error: ToolError) -> int:
    sys.stderr.write(f"{PROGRAM}: {error.sentence}\n")
    sys.stderr.writelines(f"  {line}\n" for line in error.details)
    return error.code


def _flush() -> None:
    """A reader such as ``head`` may have gone; that is no failure of the command."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
