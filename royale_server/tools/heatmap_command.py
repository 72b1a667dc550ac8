"""``royale heatmap RUN``: where a run's policy puts its cards down, over training.

Reads a run's file, and writes a page if told to.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from royale_server.tools.answers import ToolCode
from royale_server.tools.run_argument import find_run

HEAT_MAPS_FILE = "heatmaps.jsonl"

_DESCRIPTION = """\
Show where in the arena the policy of a run plays each card: its newest heat-maps as text, or all of
them as a page with a slider over the iterations. The server writes them every --heatmap-every
iterations, from the learner's own training battles.
"""
_EXAMPLES = """\
examples:
  royale heatmap latest
  royale heatmap first --iteration 40            those that iteration 40 went into
  royale heatmap first --page heat.html          to be opened in a browser

exit codes: 0 done; 1 the run has no heat-maps, or not those; 2 no such run, or a wrong flag
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "heatmap",
        help="show where a policy of the arena plays its cards",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="a run: path, name, or latest")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--iteration", type=int, metavar="N", help="which to show (the newest)")
    shown.add_argument(
        "--page", type=Path, metavar="HTML", help="write a page of all, in place of text"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    folder = find_run(arguments.run, arguments.runs)
    from royale_server.evaluation.heat_maps import as_page, as_text, choose, read_windows

    windows = read_windows(folder / HEAT_MAPS_FILE)
    if arguments.page is None:
        for line in as_text(choose(windows, arguments.iteration)):
            sys.stdout.write(f"{line}\n")
        return ToolCode.OK
    arguments.page.write_text(as_page(f"{folder.name}: plays by card", windows), "utf-8")
    sys.stdout.write(f"{len(windows)} heat-maps; open {arguments.page} in a browser\n")
    return ToolCode.OK
