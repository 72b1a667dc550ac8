"""What an environment family offers to the command line: a name, its flags and a way to build it.

A plug-in is one object of class `EnvProvider`, named in the entry-point group ``royale.envs``. This
module builds nothing and imports no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from royale_client.driver import EnvDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvProvider:
    """One family of environments."""

    name: str
    """The word on the command line."""
    summary: str
    """One line for the list of environments."""
    config_type: type[Any]
    """Frozen dataclass whose fields become flags; must be importable without the environment."""
    env_id: Callable[[Any], str]
    """Returns the id of the environment that a config describes."""
    make: Callable[[Any, int], EnvDriver]
    """Builds one group: a config and a number of environments in, a driver out."""
    facts: Callable[[Any], Mapping[str, Any]]
    """Returns what else tells two environments apart: versions, arguments, wrappers; plain data."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Further names of common flags, as this family would call them: ``--battles`` is
    ``--num-envs``."""
