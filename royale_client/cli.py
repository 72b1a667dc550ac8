"""The command `royale-env-client ENV …`: reads flags, configures logging, runs a client.

Two stages: the first word names the environment family, which is looked up without importing
anything else; its flags and the common ones are then parsed together. This is the only module of
the client that writes to the terminal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from royale_client.envs.registry import BUILT_IN_SUMMARIES, find_provider, provider_names
from royale_client.wire.errors import ConfigError, RoyaleError

if TYPE_CHECKING:
    from royale_client.config import ClientConfig
    from royale_client.envs.provider import EnvProvider
    from royale_client.leaving import LeaveRequest
    from royale_client.processes import ChildIdentity

logger = logging.getLogger(__name__)

PROGRAM = "royale-env-client"
_USAGE_ERROR = 2

_HELP = """\
usage: {program} ENV [flags]

Runs environments for a royale server: steps them with the actions it sends, and needs neither
torch nor the policy.

ENV is one of:
{environments}

Examples:
  # eight CartPoles against a server on this machine (start the server first, or within 30 s)
  {program} gym --env-id CartPole-v1 --num-envs 8

  # another machine, two groups in flight, a token, back again after every network failure
  {program} gym --env-id HalfCheetah-v5 --num-envs 16 --groups 2 \\
      --server-url ws://192.0.2.7:8000 --token-file token.txt --reconnect

  # an environment of your own package, four processes
  {program} gym --env-id my_package:MyEnv-v0 --num-envs 4 --num-procs 4

  # is the server there?
  {program} dummy-v1 --num-episodes 1

Exit codes: 0 the server stopped or the episodes are complete; 1 the environment failed; 2 bad flags
or refused by the server; 75 no server within the time allowed; 77 wrong token; 130 Ctrl-C.

`{program} ENV --help` lists the flags of an environment.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: Command line without the program; None takes that of the process.
    """
    from royale_client.leaving import LeaveRequest

    return run_command(sys.argv[1:] if arguments is None else arguments, LeaveRequest(), None)


def run_command(arguments: Sequence[str], leave: LeaveRequest, child: ChildIdentity | None) -> int:
    """Run one client process, or the parent of several.

    Args:
        arguments: Command line without the program.
        leave: Flag that ends the client in order.
        child: Which child this process is, or None if a person started it.
    """
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(_help())
            return 0 if arguments else _USAGE_ERROR
        if arguments[0].startswith("-"):
            raise ConfigError(
                f"the environment comes first: {PROGRAM} ENV {' '.join(arguments[:2])} …, where "
                f"ENV is one of {', '.join(sorted(provider_names()))}"
            )
        provider = find_provider(arguments[0])
        env_config, client = parse_flags(provider, arguments[1:])
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return _USAGE_ERROR
    configure_logging(client.log_level, child)
    # A module of the user's own lies where the command is called; installed ones come first.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    is_parent = child is None and client.num_procs > 1

    def run() -> int | None:
        if is_parent:
            from royale_client.processes import run_processes

            return run_processes(arguments, client.num_procs, leave, restarts=client.restarts)
        _run_client(provider, env_config, client, leave, child)
        return None

    return _run_to_exit_code(run, leave)


def parse_flags(provider: EnvProvider, arguments: Sequence[str]) -> tuple[Any, ClientConfig]:
    """Parse the flags of one environment family together with the common ones.

    Raises:
        ConfigError: If the family claims a common flag.
        SystemExit: If a flag is wrong (code 2), or help was asked for (code 0).
    """
    import tyro

    from royale_client.config import ClientConfig

    shared = {f.name for f in fields(ClientConfig)} & {f.name for f in fields(provider.config_type)}
    if shared:
        raise ConfigError(
            f"environment {provider.name!r} claims flags that every environment has: "
            f"{', '.join(sorted(shared))}; rename these fields"
        )
    command = make_dataclass("Command", [("env", provider.config_type), ("client", ClientConfig)])
    parsed: Any = tyro.cli(
        command,
        config=(tyro.conf.OmitArgPrefixes,),
        prog=f"{PROGRAM} {provider.name}",
        description=f"Run {provider.name}: {provider.summary}.",
        args=[_common_name(word, provider.synonyms) for word in arguments],
    )
    return parsed.env, parsed.client


def _common_name(word: str, synonyms: Mapping[str, str]) -> str:
    """Return a flag, with its value or without, by the name that every environment has for it."""
    flag, equals, value = word.partition("=")
    return f"{synonyms[flag]}{equals}{value}" if flag in synonyms else word


def configure_logging(level: str, child: ChildIdentity | None) -> None:
    """Log to standard error, the lines of child processes with their number."""
    prefix = "" if child is None else f"[{child.index}] "
    logging.basicConfig(
        level=level.upper(), format=f"%(asctime)s %(levelname)-7s {prefix}%(message)s"
    )
    logging.getLogger("websockets").setLevel(logging.WARNING)


def _run_to_exit_code(run: Callable[[], int | None], leave: LeaveRequest) -> int:
    """Run something to its end and turn every ending into an exit code."""
    from royale_client.leaving import EXIT_FINISHED, EXIT_INTERRUPTED, leaving_on_signals
    from royale_client.runner import exit_code

    try:
        with leaving_on_signals(leave):
            code = run()
    except RoyaleError as error:
        logger.error("%s", error)
        return exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        logger.exception("the client failed")
        return exit_code(error)
    if code is not None:
        return code
    return EXIT_INTERRUPTED if leave.is_made else EXIT_FINISHED


def _run_client(
    provider: EnvProvider,
    env_config: Any,  # noqa: ANN401 - the family's own config class
    client: ClientConfig,
    leave: LeaveRequest,
    child: ChildIdentity | None,
) -> None:
    """Build the environments and run one client with them."""
    from royale_client.grouping import make_drivers
    from royale_client.hello import default_client_name
    from royale_client.serve import run_drivers

    address = client.address()
    env_id = provider.env_id(env_config)
    name = client.client_name or default_client_name(env_id)
    drivers = make_drivers(client.groups, client.num_envs, partial(provider.make, env_config))
    try:
        run_drivers(
            drivers,
            address,
            env_id=env_id,
            facts=provider.facts(env_config),
            client_name=name if child is None else child.name(name),
            role=client.role,
            num_episodes=client.num_episodes,
            seed=client.seed if child is None else child.seed(client.seed, client.num_envs),
            patience=client.patience,
            float16_observations=client.float16_observations,
            leave=leave,
        )
    finally:
        for driver in drivers:
            driver.close()


def _help() -> str:
    names = provider_names()
    lines = [
        f"  {name:12} {BUILT_IN_SUMMARIES.get(name, f'from {source}')}"
        for name, source in sorted(names.items())
    ]
    return _HELP.format(program=PROGRAM, environments="\n".join(lines))
