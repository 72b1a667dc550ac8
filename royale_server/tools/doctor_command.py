"""``royale doctor POLICY VARIANT ALGO VARIANT --flags``: would this server start, and if not, why.

Runs the checks of `royale_server.preflight`, the very ones of a start, and tells what came of them.
Edits, moves and deletes nothing, starts no server, and has no flag that passes over a check.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from royale_server.cli import Command, RefusedCommandError, read_command, registry_for
from royale_server.config import ServerConfig
from royale_server.config_document import to_document
from royale_server.preflight import machine
from royale_server.preflight.check import Check, judge
from royale_server.preflight.client_checks import CLIENT_CHECKS
from royale_server.preflight.finding import Finding, Level, failures
from royale_server.preflight.report import explanation, rows, verdict
from royale_server.preflight.start_checks import CONFIGURATION, START_CHECKS
from royale_server.tools.answers import ToolCode, ToolError

if TYPE_CHECKING:
    from royale_server.preflight.examine import Examination

CHECKS: tuple[Check[Any], ...] = (*START_CHECKS, *CLIENT_CHECKS)
NEXT_STEPS = 8
"""Most steps that are numbered."""

_DESCRIPTION = """\
Run the checks of a start, and nothing else: the words and flags are those of royale-server. What
depends on the environments is checked with --inline ENV or --resume; else when the first client
comes. Nothing is changed, and no check can be passed over.
"""
_EXAMPLES = """\
examples:
  royale doctor mlp-policy default ppo classic --exp-name first
  royale doctor mlp-policy default ppo classic --inline CartPole-v1 --json
  royale doctor mlp-policy default ppo classic --exp-name first --resume
  royale doctor mlp-policy default ppo classic --structure-only    on another machine than the run's
  royale doctor --explain mask-agreement

exit codes: 0 safe to run; 1 not; 2 wrong command
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that is told."""

    findings: list[Finding]
    config: ServerConfig | None = None
    run_directory: Path | None = None
    log: Path | None = None


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        aliases=["check"],
        help="say whether a server would start, and what is in its way",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--structure-only", action="store_true", help="leave out what is about this machine"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")
    parser.add_argument("--explain", metavar="NAME", help="say all about one check")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="POLICY …", help="as for royale-server"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> ToolCode:
    """Carry the subcommand out."""
    words, own = _split(arguments.words)
    explain = own.explain or arguments.explain
    if explain is not None:
        return _explain(explain)
    structure_only = arguments.structure_only or own.structure_only
    diagnosis = diagnose(words, structure_only=structure_only)
    if arguments.json or own.json:
        sys.stdout.write(json.dumps(_to_data(diagnosis, words), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_text(diagnosis, words)) + "\n")
    return ToolCode.FAILED if failures(diagnosis.findings) else ToolCode.OK


def diagnose(words: Sequence[str], *, structure_only: bool = False) -> Diagnosis:
    """Judge a command of ``royale-server``.

    Args:
        words: Its arguments.
        structure_only: Leave out what is about this machine.

    Raises:
        ToolError: If the words ask for help or a value cannot be read at all.
    """
    try:
        command = read_command(words, registry_for(words))
    except RefusedCommandError as refused:
        found = [
            Finding(check=CONFIGURATION, level=Level.FAIL, what=problem)
            for problem in refused.problems
        ]
        return Diagnosis(findings=[*found, *(() if structure_only else refused.besides())])
    except SystemExit as ended:  # tyro has said why
        code = ToolCode.USAGE if ended.code else ToolCode.OK
        raise ToolError(code, "nothing was checked") from ended
    return _diagnosed(command, structure_only=structure_only)


def _diagnosed(command: Command, *, structure_only: bool) -> Diagnosis:
    from royale_server.preflight.examine import examine  # torch: no earlier than it must

    config, chosen = command.config, command.chosen
    examined = examine(config, chosen.policy_entry, chosen.algo_entry)
    findings = judge(START_CHECKS, examined.facts, structure_only=structure_only)
    if failures(findings):
        findings += _not_made("the start is refused before it")
    else:
        findings += _second_phase(config, examined, structure_only=structure_only)
    plan = examined.plan
    return Diagnosis(
        findings=findings,
        config=config,
        run_directory=None if plan is None else plan.layout.directory,
        log=None if plan is None else plan.layout.server_log(plan.attempt),
    )


def _second_phase(
    config: ServerConfig, examined: Examination, *, structure_only: bool
) -> list[Finding]:
    """Build what the run would build, where it is known for which spaces."""
    from royale_server.preflight.rehearse_start import rehearsed_facts

    if examined.prepared is None:  # what refuses it is about this machine, and was left out
        return _not_made("about this machine")
    facts = rehearsed_facts(config, examined)
    if facts is None:
        return _not_made("the first client brings the environment")
    if isinstance(facts, Finding):
        return [facts]
    return judge(CLIENT_CHECKS, facts, structure_only=structure_only)


def _not_made(why: str) -> list[Finding]:
    return [Finding(check=check.name, level=Level.SKIP, what=why) for check in CLIENT_CHECKS]


def _split(words: Sequence[str]) -> tuple[list[str], argparse.Namespace]:
    """Take the doctor's own flags out of the words, wherever they stand."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--structure-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--explain")
    own, rest = parser.parse_known_args(list(words))
    return rest, own


def _explain(name: str) -> ToolCode:
    check = next((check for check in CHECKS if check.name == name), None)
    if check is None:
        known = ", ".join(check.name for check in CHECKS)
        raise ToolError(ToolCode.USAGE, f"there is no check {name!r}; known: {known}")
    sys.stdout.write("\n".join(explanation(check)) + "\n")
    return ToolCode.OK


def _text(diagnosis: Diagnosis, words: Sequence[str]) -> list[str]:
    lines = [verdict(diagnosis.findings), "", *rows(diagnosis.findings)]
    if diagnosis.config is not None:
        lines += ["", "parameters:", *(f"  {line}" for line in _parameters(diagnosis.config))]
        lines += ["", *_landing(diagnosis, diagnosis.config)]
    steps = [f"  {n}. {step}" for n, step in enumerate(_next_steps(diagnosis, words), 1)]
    return [*lines, "", "next steps:", *steps]


def _parameters(config: ServerConfig) -> list[str]:
    return json.dumps(to_document(config), indent=2).splitlines()


def _landing(diagnosis: Diagnosis, config: ServerConfig) -> Iterator[str]:
    """Say where the logs land, and who will see them."""
    if diagnosis.run_directory is None:
        yield "run directory: none, the start is refused"
    else:
        yield f"run directory: {diagnosis.run_directory}"
        yield f"log:           {diagnosis.log}"
    yield f"dashboard:     {_visibility(config)}"


def _visibility(config: ServerConfig) -> str:
    seen = machine.dashboards()
    mirror = f"; mirrored to {config.track.tracker}" if config.track.enabled else ""
    if seen is None:
        return f"whether one runs cannot be told on this system{mirror}"
    if not seen:
        return f"none runs on this machine; the curves are in metrics.jsonl{mirror}"
    told = "; ".join(f"process {pid}: {command}" for pid, command in seen)
    return f"{told}: it sees the run if it serves {config.checkpoint_base_dir.absolute()}{mirror}"


def _next_steps(diagnosis: Diagnosis, words: Sequence[str]) -> list[str]:
    """Blockers first, then how to start, then what to look at."""
    failed = failures(diagnosis.findings)
    warned = [f for f in diagnosis.findings if f.level is Level.WARN and f.remedy]
    steps = [f"{f.check}: {f.remedy or f.what}" for f in failed]
    if failed:
        return [*steps[:NEXT_STEPS], f"again: royale doctor {shlex.join(words)}"]
    steps += [f"consider ({f.check}): {f.remedy}" for f in warned]
    start = f"start: royale-server {shlex.join(words)}"
    connect = "connect: royale-env-client ENV --server-url URL, the URL that the server prints"
    config = diagnosis.config
    is_inline = config is not None and config.inline is not None
    return [*steps[:NEXT_STEPS], start, *([] if is_inline else [connect])]


def _shown(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _to_data(diagnosis: Diagnosis, words: Sequence[str]) -> dict[str, Any]:
    config = diagnosis.config
    return {
        "safe_to_run": not failures(diagnosis.findings),
        "findings": [finding.to_data() for finding in diagnosis.findings],
        "parameters": None if config is None else to_document(config),
        "run_directory": _shown(diagnosis.run_directory),
        "log": _shown(diagnosis.log),
        "dashboard": None if config is None else _visibility(config),
        "next_steps": _next_steps(diagnosis, words),
    }
