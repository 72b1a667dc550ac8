"""The text of ``royale-server --help``: what the four words can be, and what the command does.

Text only. Plug-ins appear by name; none of them is imported to print this.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TypeVar

from royale_client.wire.errors import ConfigError
from royale_server.exit_codes import EXIT_CODE_MEANINGS
from royale_server.registry import Catalog, ComponentEntry, Registry

EntryT = TypeVar("EntryT", bound=ComponentEntry)

USAGE = "usage: royale-server POLICY VARIANT ALGO VARIANT [--flags]"

_INTRODUCTION = """\
Serve a policy to environment clients, and train it on what they send back.

The four words choose what is trained and how; flags follow them.
  royale-server POLICY VARIANT ALGO VARIANT --help    lists all flags of that choice"""

_EXAMPLES = (
    ("royale-server dummy-policy default dummy default", "check the loop without a model"),
    ("royale-server mlp-policy default ppo default --exp-name first", "train, and name the run"),
    (
        "royale-server mlp-policy default ppo default --exp-name first --resume",
        "continue it from its newest checkpoint",
    ),
    (
        "royale-server mlp-policy default ppo default --inline CartPole-v1",
        "no network: environments in this process",
    ),
)

_FLAG_NOTES = (
    ("--policy.*, --algo.*", "override one setting of the chosen variant"),
    ("--exp-name, --resume, --overwrite", "name, continue or replace a run"),
    ("--host, --port, --token-file", "where to listen, and who may connect"),
    ("--min-clients, --dispatch, …", "whom to wait for, and when to infer"),
    ("--track.enabled", "mirror the curves to a tracker; --track.no-enabled switches it off"),
    ("--plugin MODULE", "use policies and algorithms of a module that is not installed"),
    ("--dry-run", "check everything, print the resolved configuration, end"),
)


def root_help(registry: Registry) -> str:
    """Return the help of the bare command."""
    sections = [
        USAGE,
        _INTRODUCTION,
        _section("policies", _component_lines(registry.policies)),
        _section("algorithms", _component_lines(registry.algorithms)),
        _section("pairs that fit", [f"{policy} + {algo}" for policy, algo in registry.pairs()]),
        _section("flags, after the four words", _columns(_FLAG_NOTES)),
        _section("examples", [f"{command}\n    {why}" for command, why in _EXAMPLES]),
        _section(
            "exit codes",
            _columns((str(code.value), text) for code, text in EXIT_CODE_MEANINGS.items()),
        ),
    ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(textwrap.indent(line, "  ") for line in lines)
    return f"{title}:\n{body}"


def _component_lines(catalog: Catalog[EntryT]) -> list[str]:
    described = [
        f"{entry.uid}\n    {entry.summary}\n    variants: {_variant_names(entry)}"
        for entry in catalog.described()
    ]
    plugins = [
        f"{name}\n    plug-in from {source}; choose it to load it"
        for name, source in catalog.undescribed().items()
    ]
    return described + plugins


def _variant_names(entry: ComponentEntry) -> str:
    """The names, or why they cannot be shown: help must come out even then."""
    try:
        return ", ".join(entry.load_variants())
    except ConfigError as error:
        return f"not available ({error})"


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    table = list(rows)
    width = max(len(left) for left, _ in table)
    return [f"{left:<{width}}  {right}" for left, right in table]
