"""The flags of a configuration: their names, kinds and meanings, read from its dataclasses.

One walk serves the parser, the help and the hints, so that they cannot disagree. Nothing is
parsed here and nothing is printed.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Settings: TypeAlias = Any
"""An instance of some settings dataclass."""
Value: TypeAlias = Any
"""What a settings field holds."""
Annotation: TypeAlias = Any
"""The type of a settings field, as ``typing.get_type_hints`` returns it."""
Kind: TypeAlias = Literal["switch", "integer", "number", "choice", "text", "several"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag and the settings field behind it."""

    path: tuple[str, ...]
    """Field names from the configuration down: ``("algo", "clip_coef")``."""
    annotation: Annotation
    """The field's type, with extras."""
    default: Value
    meaning: str
    """The field's docstring as one paragraph."""
    kind: Kind
    item_kind: Kind
    """Kind of one value: that of the items of a tuple, else the same as ``kind``."""
    optional: bool
    """Whether ``none`` is a value."""
    choices: tuple[str, ...]
    repeatable: bool

    @property
    def name(self) -> str:
        """How the flag is written: ``--algo.clip-coef``."""
        return flag_name(self.path)

    @property
    def off_name(self) -> str:
        """How a switch is turned off: ``--track.no-enabled``."""
        return flag_name((*self.path[:-1], f"no-{self.path[-1]}"))

    @property
    def takes(self) -> str:
        """What kind of value it takes, for messages."""
        words = {
            "switch": "no value",
            "integer": "a whole number",
            "number": "a number",
            "choice": f"one of {', '.join(self.choices)}",
            "text": "a value",
            "several": "whole numbers" if self.item_kind == "integer" else "one or more values",
        }
        return words[self.kind] + (" or none" if self.optional else "")


def flag_name(path: tuple[str, ...]) -> str:
    """Spell a field path as a flag."""
    return "--" + ".".join(path).replace("_", "-")


def flags_of(config: Settings, prefix: tuple[str, ...] = ()) -> list[Flag]:
    """List the flags of a configuration, those of nested dataclasses included.

    Args:
        config: A dataclass instance; its values are the defaults.
        prefix: Field path of ``config`` itself.

    Returns:
        Flags in the order of declaration.
    """
    flags: list[Flag] = []
    docstrings = field_docstrings(type(config))
    for field, annotation in shown_fields(type(config)):
        path, value = (*prefix, field.name), getattr(config, field.name)
        if is_settings(value):
            flags.extend(flags_of(value, path))
        else:
            meaning = docstrings.get(field.name, "")
            flags.append(_flag(path, annotation, value, meaning, field))
    return flags


def shown_fields(config_class: type[Any]) -> list[tuple[dataclasses.Field[Any], Annotation]]:
    """The fields of a config class that are flags or groups of flags, with their types."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    return [
        (field, hints[field.name])
        for field in dataclasses.fields(config_class)
        if field.init and field.metadata.get("flag", True)
    ]


def is_settings(value: Value) -> bool:
    """Whether a value is a nested group of settings."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def field_docstrings(config_class: type[Any]) -> dict[str, str]:
    """The string below each field of a dataclass, base classes included, as one paragraph each.

    A class without source (made at run time) has none.
    """
    found: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(owner):
            found.update(_own_docstrings(owner))
    return found


def _own_docstrings(owner: type[Any]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    definition = ast.parse(source).body[0]
    if not isinstance(definition, ast.ClassDef):
        return {}
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _flag(
    path: tuple[str, ...],
    annotation: Annotation,
    default: Value,
    meaning: str,
    field: dataclasses.Field[Any],
) -> Flag:
    inner, optional = _without_none(_without_extras(annotation))
    item = _item(inner)
    choices = tuple(str(choice) for choice in typing.get_args(item)) if _is_literal(item) else ()
    return Flag(
        path=path,
        annotation=annotation,
        default=default,
        meaning=meaning,
        kind=_kind(inner),
        item_kind=_kind(item),
        optional=optional,
        choices=choices,
        repeatable=bool(field.metadata.get("repeatable", False)),
    )


def _kind(inner: Annotation) -> Kind:
    simple: dict[Any, Kind] = {
        bool: "switch",
        int: "integer",
        float: "number",
        str: "text",
        Path: "text",
    }
    if inner in simple:
        return simple[inner]
    return "choice" if _is_literal(inner) else "several"


def _item(annotation: Annotation) -> Annotation:
    """The item type of ``tuple[X, ...]``; other types as they are."""
    origin: object = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    is_open = origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    return arguments[0] if is_open else annotation


def _is_literal(annotation: Annotation) -> bool:
    origin: object = typing.get_origin(annotation)
    return origin is Literal


def _without_extras(annotation: Annotation) -> Annotation:
    origin: object = typing.get_origin(annotation)
    return typing.get_args(annotation)[0] if origin is typing.Annotated else annotation


def _without_none(annotation: Annotation) -> tuple[Annotation, bool]:
    """Split ``X | None`` into ``X`` and whether None was in it."""
    origin: object = typing.get_origin(annotation)
    if origin not in (typing.Union, types.UnionType):
        return annotation, False
    arms = [arm for arm in typing.get_args(annotation) if arm is not type(None)]
    optional = len(arms) < len(typing.get_args(annotation))
    return (arms[0] if len(arms) == 1 else annotation), optional
