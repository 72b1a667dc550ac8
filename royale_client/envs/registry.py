"""Finds environment families by name: the built-in ones and those of installed plug-ins.

Names are read from package metadata, so a plug-in that is not used is never imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from royale_client.envs.provider import EnvProvider
from royale_client.wire.errors import ConfigError

GROUP = "royale.envs"

_BUILT_IN = {
    "gym": "royale_client.envs.gymnasium_envs:PROVIDER",
    "arena": "royale_client.envs.arena.provider:PROVIDER",
    "dummy-v1": "royale_client.envs.dummy:PROVIDER",
}
BUILT_IN_SUMMARIES = {
    "gym": "any environment with a Gymnasium id, for example CartPole-v1 or my_package:MyEnv-v0",
    "arena": "battles of two seats with cards; --battles is --num-envs",
    "dummy-v1": "no environment: fixed episode lengths, for trying connections and speed",
}


def provider_names(plugins: Iterable[EntryPoint] | None = None) -> dict[str, str]:
    """Return every known name and where it comes from, without importing anything.

    Raises:
        ConfigError: If two packages claim one name.
    """
    sources = dict(_BUILT_IN)
    found = entry_points(group=GROUP) if plugins is None else plugins
    for entry in found:
        if sources.get(entry.name, entry.value) != entry.value:
            raise ConfigError(
                f"environment name {entry.name!r} is claimed by {sources[entry.name]} and by "
                f"{entry.value}; uninstall one of the two packages"
            )
        sources[entry.name] = entry.value
    return sources


def find_provider(name: str, plugins: Iterable[EntryPoint] | None = None) -> EnvProvider:
    """Return the environment family called ``name``.

    Raises:
        ConfigError: If there is none; names the ones that are there. If its module cannot be
            imported, or holds something else.
    """
    sources = provider_names(plugins)
    if name not in sources:
        close = difflib.get_close_matches(name, sources, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ConfigError(
            f"unknown environment {name!r}: {hint}known are {', '.join(sorted(sources))}. For a "
            f"Gymnasium id write: royale-env-client gym --env-id {name}"
        )
    provider = load_object(sources[name], f"environment {name!r}")
    if not isinstance(provider, EnvProvider):
        raise ConfigError(
            f"environment {name!r}: {sources[name]} is a {type(provider).__name__}, expected an "
            "EnvProvider"
        )
    return provider


def load_object(reference: str, what: str) -> object:
    """Import what ``module:name`` refers to.

    Args:
        reference: A module and a name in it, with a colon between.
        what: Whose reference it is; for error messages.

    Raises:
        ConfigError: If the form is wrong, or module or name is missing.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{what}: {reference!r} is not of the form module:name")
    found: object = _imported(module_name, what)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{what}: module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _imported(module_name: str, what: str) -> object:
    importer: Callable[[str], object] = import_module
    try:
        return importer(module_name)
    except ImportError as error:
        raise ConfigError(f"{what}: cannot import {module_name!r}: {error}") from error
