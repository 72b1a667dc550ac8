"""The environment that a word and a JSON object name, where there is no command line to parse.

The word is one of the families of `royale-env-client`, and the object has its flags; any other word
is a Gymnasium id, and the object has the environment's arguments. Builds no environment.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from royale_client.envs.gymnasium_envs import PROVIDER as GYM
from royale_client.envs.gymnasium_envs import GymConfig
from royale_client.envs.provider import EnvProvider
from royale_client.envs.registry import find_provider, provider_names
from royale_client.wire.errors import ConfigError

_PLAIN: tuple[type, ...] = (bool, int, str, NoneType)


def chosen_env(word: str, options: Mapping[str, Any]) -> tuple[EnvProvider, Any]:
    """Return the family that a word names, and its settings.

    Args:
        word: A family such as ``arena``, or a Gymnasium id.
        options: Settings by name, as JSON has them.

    Raises:
        ConfigError: If the family has no such setting, or a value is of another kind or senseless.
    """
    if word not in provider_names():
        return GYM, GymConfig(env_id=word, env_kwargs=json.dumps(options))
    provider = find_provider(word)
    return provider, settings_of(provider, options)


def settings_of(provider: EnvProvider, options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the settings of a family, those that are not given as their flags' defaults.

    Args:
        provider: The family.
        options: Fields of its settings; ``-`` and ``_`` are the same.

    Raises:
        ConfigError: If there is no such field, one is missing, or a value is of another kind.
    """
    hints = get_type_hints(provider.config_type)
    given: dict[str, Any] = {}
    for key, value in options.items():
        name = key.replace("-", "_")
        if name not in hints:
            raise ConfigError(_unknown(provider, key))
        try:
            given[name] = _as(value, hints[name])
        except ValueError as misfit:
            raise ConfigError(
                f"{provider.name}, {key}: got {json.dumps(value)}, expected {misfit}"
            ) from misfit
    try:
        return provider.config_type(**given)
    except TypeError as error:  # a field without a default
        raise ConfigError(f"{provider.name}: a setting is missing ({error})") from error


def _unknown(provider: EnvProvider, key: str) -> str:
    known = [field.name for field in fields(provider.config_type)]
    close = difflib.get_close_matches(key.replace("-", "_"), known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{provider.name} has no setting {key!r}: {hint}its settings are {', '.join(known)}"


def _as(value: Any, hint: Any) -> Any:  # noqa: ANN401 - what JSON holds, as what a field says
    """Return what JSON holds as a field has it.

    Raises:
        ValueError: Saying what the field takes.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _as_any_of(value, arguments)
    if origin is Literal:
        # 1 equals True and 1.0, and is neither.
        if any(value == one and type(value) is type(one) for one in arguments):
            return value
        raise ValueError(" or ".join(map(json.dumps, arguments)))
    if origin is tuple and isinstance(value, list):
        return _as_tuple(value, arguments)
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in _PLAIN and type(value) is hint:
        return value
    raise ValueError(_name(hint))


def _as_any_of(value: Any, hints: Sequence[Any]) -> Any:  # noqa: ANN401
    for hint in hints:
        try:
            return _as(value, hint)
        except ValueError:
            continue
    raise ValueError(" or ".join(map(_name, hints)))


def _as_tuple(values: list[Any], hints: Sequence[Any]) -> tuple[Any, ...]:
    if hints[-1] is Ellipsis:
        return tuple(_as(value, hints[0]) for value in values)
    if len(values) != len(hints):
        raise ValueError(f"a list of {len(hints)}")
    return tuple(map(_as, values, hints))


def _name(hint: Any) -> str:  # noqa: ANN401
    """Return what a person writes for a field of this type."""
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if hint is Path:
        return "a path"
    if get_origin(hint) is tuple:
        return f"a list, of {_name(get_args(hint)[0])} each"
    return "null" if hint is NoneType else names.get(hint, f"a value of {hint}")
