"""Settings of a run as its directory holds them, turned back into the classes they came from."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from royale_client.wire.errors import ConfigError, brief
from royale_server.builtin_components import builtin_registry

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """Which policy and algorithm a run has, and their settings."""

    policy: Any
    algo: Any
    policy_class: Any
    algo_class: Any


def read_settings(run: Path) -> SavedSettings:
    """Read what a run's newest attempt was started with.

    Raises:
        ConfigError: If the file is no settings of a run, or of components that are not there.
    """
    file = run / CONFIG_FILE
    try:
        document = json.loads(file.read_text("utf-8"))
        pair, plugins = document["pair"], document["plugin"]
        registry = builtin_registry()
        registry.add_installed_plugins()
        for plugin in plugins:
            registry.load_plugin(plugin)
        policy = registry.policies.get(pair["policy"])
        algo = registry.algorithms.get(pair["algo"])
        return SavedSettings(
            policy=from_document(policy.load_config_class(), document["policy"]),
            algo=from_document(algo.load_config_class(), document["algo"]),
            policy_class=policy.load_implementation(),
            algo_class=algo.load_implementation(),
        )
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise ConfigError(f"{file}: these are no settings of a run: {error!r}") from error


def from_document(kind: Any, document: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any settings
    """Return settings of class ``kind`` from what `config_document` made of such.

    Raises:
        TypeError: If it is no mapping, or has a setting that the class does not have.
    """
    if not isinstance(document, Mapping):
        raise TypeError(f"{kind.__name__}: {brief(document)} is no mapping of settings")
    hints = typing.get_type_hints(kind)
    values = {name: _value(hints.get(name, Any), value) for name, value in document.items()}
    return kind(**values)


def _value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any setting
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and Path in options:
        return Path(value)
    if isinstance(value, str) and float in options and str not in options:
        return float(value)  # what JSON has no number for
    if isinstance(value, dict):
        kinds = [option for option in options if dataclasses.is_dataclass(option)]
        if not kinds:
            raise TypeError(f"a mapping where {hint} is expected")
        return from_document(kinds[0], value)
    return value


def _is_union(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
