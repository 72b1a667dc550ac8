"""From checked tokens to a validated ServerConfig.

tyro turns the tokens into typed values of *mirrors*: dataclasses with the same fields, help and
defaults as the real ones but without their checks. The real ones are then built one by one, so
that the problems of all of them can be listed together; tyro alone would end at the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from royale_server.cli_flags import (
    Annotation,
    Settings,
    Value,
    field_docstrings,
    flag_name,
    is_settings,
    shown_fields,
)
from royale_server.config import ServerConfig


def parse_values(defaults: ServerConfig, tokens: Sequence[str], program: str) -> Settings:
    """Parse tokens into a mirror of ``defaults``.

    Args:
        defaults: The settings before any flag.
        tokens: Flags and values; ``["--help"]`` prints the help and exits.
        program: What the usage line calls the program.

    Returns:
        A mirror instance, to be given to :func:`build`.

    Raises:
        SystemExit: After printing help (code 0) or a parse error (code 2).
    """
    import tyro

    mirror = _mirror_class(
        defaults, "Serve a policy to environment clients and train it. Times are in seconds."
    )
    values: Settings = tyro.cli(mirror, args=list(tokens), prog=program)
    return values


def build(defaults: ServerConfig, values: Settings) -> tuple[ServerConfig | None, list[str]]:
    """Build the real configuration from a mirror.

    Returns:
        The configuration and no problems, or None and every problem, each starting with its flag.
    """
    problems: list[str] = []
    config = _build(defaults, values, (), problems)
    return (None if problems else config), problems


def _mirror_class(config: Settings, meaning: str) -> type[Any]:
    """Make the unchecked twin of a settings object, its values as defaults."""
    docstrings = field_docstrings(type(config))
    fields = []
    for field, annotation in shown_fields(type(config)):
        value, text = getattr(config, field.name), docstrings.get(field.name, "")
        shown = _mirror_class(value, text) if is_settings(value) else annotation
        fields.append((field.name, _with_help(shown, text, field), _default_of(value, shown)))
    return dataclasses.make_dataclass(
        type(config).__name__, fields, namespace={"__doc__": meaning}, kw_only=True, frozen=True
    )


def _with_help(annotation: Annotation, text: str, field: dataclasses.Field[Any]) -> Annotation:
    import tyro

    extras: list[Any] = [tyro.conf.arg(help=text)]
    if field.metadata.get("repeatable", False):
        extras.append(tyro.conf.UseAppendAction)
    return Annotated[annotation, *extras]


def _default_of(value: Value, shown: Annotation) -> Value:
    if is_settings(value):
        return dataclasses.field(default_factory=shown)
    return dataclasses.field(default_factory=lambda: value)


def _build(
    default: Settings, values: Settings, path: tuple[str, ...], problems: list[str]
) -> Settings:
    """Build one settings object and those inside it; on failure note why and keep the default."""
    settings = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    for field, _ in shown_fields(type(default)):
        value = getattr(values, field.name)
        is_group = is_settings(settings[field.name])
        settings[field.name] = (
            _build(settings[field.name], value, (*path, field.name), problems)
            if is_group
            else value
        )
    settings = {f.name: settings[f.name] for f in dataclasses.fields(default) if f.init}
    try:
        return type(default)(**settings)
    except ValueError as error:
        problems.extend(_problem_lines(error, default, path))
        return default


def _problem_lines(error: ValueError, config: Settings, path: tuple[str, ...]) -> list[str]:
    """Make each line of a config's complaint start with the flag it is about."""
    names = {field.name for field in dataclasses.fields(config)}
    return [_problem_line(line, names, path) for line in str(error).splitlines()]


def _problem_line(line: str, names: set[str], path: tuple[str, ...]) -> str:
    first, _, rest = line.partition(": ")
    if first.startswith("--"):
        return line
    if rest.startswith("--"):  # "ppo: --algo.gamma: got …": the flag says whose it is
        return rest
    if first in names and rest:
        return f"{flag_name((*path, first))}: {rest}"
    return f"{flag_name(path)}: {line}" if path else line
