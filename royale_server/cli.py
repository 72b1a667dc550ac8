"""``royale-server POLICY VARIANT ALGO VARIANT --flags``: read the command, run the server, exit.

The one place of the server that prints, sets up logging and turns errors into exit codes. Help and
refusals never import torch; the application, and torch with it, is imported last.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from royale_client.wire.errors import ConfigError, RoyaleError
from royale_server.builtin_components import builtin_registry
from royale_server.cli_build import build, parse_values
from royale_server.cli_flags import Settings, flags_of
from royale_server.cli_help import USAGE, root_help
from royale_server.cli_hints import CheckedFlags, check_flags
from royale_server.cli_words import PROGRAM, Chosen, choose, split_words
from royale_server.config import Pair, ServerConfig
from royale_server.config_document import to_document
from royale_server.exit_codes import ExitCode
from royale_server.preconditions import precondition_problems
from royale_server.registry import Registry
from royale_server.version import product_version

if TYPE_CHECKING:
    from royale_server.alarms.declaration import Alarm
    from royale_server.preflight.finding import Finding

logger = logging.getLogger(__name__)

_NO_PAIR = Pair(policy="", policy_variant="", algo="", algo_variant="")
SERVER_LIBRARIES = frozenset({"torch", "safetensors", "swanlab", "rich"})
_NOT_INSTALLED = (
    "{} is not installed, this is the client alone; install the server's libraries with: "
    "pip install 'royale-rl[server]' (from a checkout: pip install '.[server]')"
)
_HELP_FLAGS = frozenset({"-h", "--help"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line that was understood and may run."""

    config: ServerConfig
    chosen: Chosen
    alarms: Sequence[Alarm]
    """What is asked of every metrics row."""


class RefusedCommandError(ConfigError):
    """A command line that cannot run.

    Args:
        problems: One sentence each.
        program: The program with as many words as were understood.
        values: The settings as far as they could be read; None if they could not.
        pair: What is trained by what, where there are settings.
    """

    def __init__(
        self,
        problems: Sequence[str],
        program: str = PROGRAM,
        values: Settings | None = None,
        pair: Pair = _NO_PAIR,
    ) -> None:
        self.problems = tuple(problems)
        self.program = program
        self._values, self._pair = values, pair
        super().__init__("\n".join(problems))

    def besides(self) -> tuple[Finding, ...]:
        """Look for what else would refuse the start on this machine."""
        if self._values is None:
            return ()
        from royale_server.preflight.early import early_failures  # NumPy: not for help

        return early_failures(self._values, self._pair)

    def text(self, besides: Sequence[Finding] = ()) -> str:
        """Return the refusal as it is shown.

        Args:
            besides: What else would refuse the start.
        """
        count = len(self.problems)
        title = "1 problem" if count == 1 else f"{count} problems"
        lines = [f"{PROGRAM}: {title} with this command, nothing was started"]
        lines += [f"  {problem}" for problem in self.problems]
        lines += ["and it would not start then:"] if besides else []
        lines += [f"  {line}" for finding in besides for line in finding.lines()]
        lines += [USAGE] if self.program == PROGRAM else []
        return "\n".join([*lines, f"more: {self.program} --help"]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``royale-server`` and return its exit code.

    Args:
        argv: Arguments after the program's name; the process's own by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{PROGRAM} {product_version()}\n")
        return ExitCode.FINISHED
    try:
        registry = registry_for(arguments)
        if _asks_for_root_help(arguments):
            sys.stdout.write(root_help(registry))
            return ExitCode.FINISHED
        command = read_command(arguments, registry)
    except RefusedCommandError as refusal:
        sys.stderr.write(refusal.text(refusal.besides()))
        return ExitCode.REFUSED
    except SystemExit as ended:  # tyro, after its help (0) or a value it cannot read (2)
        return ExitCode.FINISHED if not ended.code else ExitCode.REFUSED
    if command.config.dry_run:
        sys.stdout.write(json.dumps(to_document(command.config), indent=2) + "\n")
        return ExitCode.FINISHED
    return run_command(command, arguments)


def read_command(arguments: Sequence[str], registry: Registry) -> Command:
    """Turn arguments into a validated command.

    Raises:
        RefusedCommandError: With every problem found.
        SystemExit: After the help of a pair, or for a value whose type cannot be read.
    """
    chosen, tokens = _read_words(arguments, registry)
    program = f"{PROGRAM} {chosen.pair}"
    defaults = ServerConfig(pair=chosen.pair, policy=chosen.policy, algo=chosen.algo)
    if _HELP_FLAGS & set(tokens):
        parse_values(defaults, ["--help"], program)
    checked = check_flags(flags_of(defaults), tokens)
    values = parse_values(defaults, checked.tokens, program)
    config, problems = build(defaults, values)
    alarms: list[Alarm] = []
    if config is not None:
        # The alarms are many; whoever only wants to read the help does not wait for them.
        from royale_server.alarms.choice import chosen_alarms

        alarms, of_alarms = chosen_alarms(config.alarms, registry)
        problems = [*problems, *of_alarms]
    problems = _joined(checked, problems, precondition_problems(values, checked.given, os.environ))
    if config is None or problems:
        raise RefusedCommandError(problems, program, values, chosen.pair)
    return Command(config=config, chosen=chosen, alarms=alarms)


def run_command(command: Command, arguments: Sequence[str]) -> int:
    """Run the server of an understood command and return its exit code.

    Args:
        command: The command.
        arguments: The words it was read from.
    """
    from royale_server.monitoring.console import Console
    from royale_server.monitoring.logging_setup import configure
    from royale_server.monitoring.terminal import Terminal

    terminal = Terminal.of_stderr()
    configure(command.config.log_level, terminal)
    console = Console(terminal, arguments=arguments)
    try:
        from royale_server import app

        return app.run(
            command.config,
            policy_entry=command.chosen.policy_entry,
            algo_entry=command.chosen.algo_entry,
            alarms=command.alarms,
            console=console,
        )
    except (RoyaleError, FileExistsError, FileNotFoundError) as error:
        return _refused(error)
    except KeyboardInterrupt:
        logger.warning("interrupted before the run went on: nothing was changed or saved")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, ImportError) and error.name in SERVER_LIBRARIES:
            return _refused(RoyaleError(_NOT_INSTALLED.format(error.name)))
        logger.exception("the server crashed; this is a defect")
        return ExitCode.CRASHED
    finally:
        console.close()


def registry_for(arguments: Sequence[str]) -> Registry:
    """The built-in names, the installed plug-ins, and the modules of ``--plugin``.

    Raises:
        RefusedCommandError: If one of them cannot be used.
    """
    try:
        registry = builtin_registry()
        for module in _plugin_modules(arguments):
            registry.load_plugin(module)
    except ConfigError as error:
        raise RefusedCommandError(str(error).splitlines()) from error
    return registry


def _plugin_modules(arguments: Sequence[str]) -> list[str]:
    """Modules named by ``--plugin``; needed before the words can be understood."""
    following = [b for a, b in itertools.pairwise(arguments) if a == "--plugin"]
    joined = [a.partition("=")[2] for a in arguments if a.startswith("--plugin=")]
    return list(dict.fromkeys(following + joined))


def _asks_for_root_help(arguments: Sequence[str]) -> bool:
    """Help without four words before it is about the words."""
    help_at = next((i for i, a in enumerate(arguments) if a in _HELP_FLAGS), None)
    return help_at is not None and any(a.startswith("-") for a in arguments[: min(help_at + 1, 4)])


def _read_words(arguments: Sequence[str], registry: Registry) -> tuple[Chosen, list[str]]:
    server_flags = flags_of(ServerConfig(pair=_NO_PAIR, policy=None, algo=None))
    try:
        words, tokens = split_words(arguments, server_flags)
        return choose(words, registry), tokens
    except ConfigError as error:
        raise RefusedCommandError(str(error).splitlines()) from error


def _refused(error: Exception) -> int:
    """Say why the server did not start, or stopped, without a traceback."""
    for line in str(error).splitlines():
        logger.error("%s", line)
    return ExitCode.REFUSED


def _joined(
    checked: CheckedFlags, of_config: Sequence[str], of_machine: Sequence[str]
) -> list[str]:
    """List all problems once, without those that may only follow from a misspelt flag."""
    misspelt = {problem.partition(":")[0] for problem in checked.problems}
    following = [p for p in of_config if not misspelt & set(re.findall(r"--[\w.-]+", p))]
    named = {problem.partition(":")[0] for problem in [*checked.problems, *following]}
    new = [problem for problem in of_machine if problem.partition(":")[0] not in named]
    return [*checked.problems, *following, *new]
