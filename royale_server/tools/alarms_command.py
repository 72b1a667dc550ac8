"""``royale alarms``: every alarm there is, or those of a run: open ones first, then what was.

Reads files, changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from royale_server.alarms.declaration import Alarm
from royale_server.alarms.history import Span, spans
from royale_server.alarms.words import default_limits, rule_text, values_text
from royale_server.builtin_components import builtin_registry
from royale_server.run.records import read_records
from royale_server.tools.answers import ToolCode
from royale_server.tools.run_argument import find_run

ALARMS_FILE = "alarms.jsonl"

_DESCRIPTION = """\
Without RUN: every alarm, when it fires, and what to do about it. With RUN: the alarms of that run,
open ones first.
"""
_EXAMPLES = """\
examples:
  royale alarms                   the table
  royale alarms latest            of the run that was started last
  royale alarms latest --open     only those that are not over

exit codes: 0 done, also where there is none; 1 with --open: there are open ones; 2 no such run
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "alarms",
        help="list all alarms, or those of a run",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="path, name, unique beginning of a name, or latest"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs)"
    )
    parser.add_argument("--open", action="store_true", help="only alarms that are not over")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    if arguments.run is None:
        alarms = builtin_registry().alarms.described()
        _print(_as_data(alarms), arguments.json, _table_lines(alarms))
        return ToolCode.OK
    file = find_run(arguments.run, arguments.runs) / ALARMS_FILE
    records = read_records(file)[0] if file.exists() else []
    found = spans(records)
    shown = [span for span in found if span.ending == "open"] if arguments.open else found
    _print([_span_data(span) for span in shown], arguments.json, _history_lines(shown))
    return ToolCode.FAILED if arguments.open and shown else ToolCode.OK


def _print(data: object, as_json: bool, lines: Sequence[str]) -> None:
    text = json.dumps(data, indent=2) if as_json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


def _as_data(alarms: Sequence[Alarm]) -> list[dict[str, Any]]:
    limits = default_limits()
    return [
        {
            "alarm": alarm.name,
            "severity": alarm.severity,
            "patience": alarm.patience,
            "keys": list(alarm.keys),
            "fires": _rule(alarm, limits),
            "population": alarm.population,
            "meaning": alarm.meaning,
            "remedy": alarm.remedy.replace("`", ""),
        }
        for alarm in alarms
    ]


def _table_lines(alarms: Sequence[Alarm]) -> list[str]:
    limits = default_limits()
    lines: list[str] = []
    group = ""
    for alarm in alarms:
        if alarm.group != group:
            group = alarm.group
            lines += ["", group] if lines else [group]
        lines += [
            f"  {alarm.name}  [{alarm.severity}, after {alarm.patience}]",
            f"    fires when: {_rule(alarm, limits)}",
            f"    {alarm.meaning}",
            f"    do: {alarm.remedy.replace('`', '')}",
        ]
    return lines


def _rule(alarm: Alarm, limits: Mapping[str, float]) -> str:
    return rule_text(alarm, limits).replace("`", "")


def _history_lines(found: Sequence[Span]) -> list[str]:
    is_open = [span for span in found if span.ending == "open"]
    over = [span for span in found if span.ending != "open"]
    lines = [f"{len(is_open)} open, {len(over)} over"]
    for span in (*is_open, *reversed(over)):
        until = "" if span.until is None else f" to {span.until}"
        record = span.record
        lines.append(
            f"  {span.ending:8} [{span.severity}] {span.alarm}: iteration {span.since}{until}, "
            f"{_when(record)}: {values_text(record.get('values', {}))} -- "
            f"{record.get('meaning', '')}"
        )
    return lines


def _span_data(span: Span) -> dict[str, Any]:
    return {
        "alarm": span.alarm,
        "severity": span.severity,
        "since": span.since,
        "until": span.until,
        "ending": span.ending,
        "record": dict(span.record),
    }


def _when(record: Mapping[str, Any]) -> str:
    wall = record.get("wall")
    if not isinstance(wall, (int, float)):
        return "at an unknown time"
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
