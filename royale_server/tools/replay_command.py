"""``royale replay FILE``: play a recorded battle again, verify it, and show it.

Reads a file, and writes a page if told to.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from royale_server.tools.answers import ToolCode, ToolError

_DESCRIPTION = """\
Play a recorded battle again and print what was played. It is verified: what it comes to must be
what was recorded. royale eval --replays DIR records battles.
"""
_EXAMPLES = """\
examples:
  royale eval latest --against heuristic --replays replays
  royale replay replays/latest-heuristic.json
  royale replay replays/latest-heuristic.json --page battle.html     to be opened in a browser

exit codes: 0 done; 1 it is no replay, of other rules, or came to something else; 2 wrong flag
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "replay",
        help="show a recorded battle, and verify it",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a replay")
    parser.add_argument(
        "--page", type=Path, metavar="HTML", help="write a page that plays it, in place of text"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    try:
        from royale_server.evaluation.replays import page_of, text_of
    except ImportError as error:
        raise ToolError(
            ToolCode.FAILED, f"battles need numba: pip install 'royale-rl[arena]' ({error})"
        ) from error
    if arguments.page is None:
        for line in text_of(arguments.file):
            sys.stdout.write(f"{line}\n")
        return ToolCode.OK
    arguments.page.write_text(page_of(arguments.file), "utf-8")
    sys.stdout.write(f"verified; open {arguments.page} in a browser\n")
    return ToolCode.OK
