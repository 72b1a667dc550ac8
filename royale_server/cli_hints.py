"""What is wrong with a list of flags, each with the spelling that works.

The parser behind it would stop at the first mistake and does not say what to type instead; this
reads the same tokens first and names every mistake. It never guesses a value and never prints.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from royale_server.cli_flags import Flag, flag_name

_NONE = "none"
_TOKEN_HINT = (
    "--token: a token on the command line can be read by other users; "
    "set ROYALE_TOKEN or write --token-file FILE"
)


@dataclass(slots=True)
class CheckedFlags:
    """Tokens ready for the parser, or the problems that keep them from it."""

    tokens: list[str] = field(default_factory=list)
    given: set[tuple[str, ...]] = field(default_factory=set)
    """Field paths that the user set."""
    problems: list[str] = field(default_factory=list)


def check_flags(flags: Sequence[Flag], tokens: Sequence[str]) -> CheckedFlags:
    """Read the tokens after the four words.

    Args:
        flags: Every flag that exists.
        tokens: The rest of the command line.

    Returns:
        The tokens in the parser's own spelling (``--x=v`` split, ``none`` as ``None``), and one
        sentence for each mistake.
    """
    spelled = _spellings(flags)
    checked = CheckedFlags()
    for name, values in _grouped(tokens, checked):
        match spelled.get(name.replace("_", "-")):
            case None:
                checked.problems.append(unknown_flag(name, values, flags))
            case flag, is_off:
                _check_one(flag, is_off, values, checked)
    return checked


def _spellings(flags: Sequence[Flag]) -> dict[str, tuple[Flag, bool]]:
    """Flag as written -> (flag, whether this spelling switches it off)."""
    spelled = {flag.name: (flag, False) for flag in flags}
    spelled |= {flag.off_name: (flag, True) for flag in flags if flag.kind == "switch"}
    return spelled


def _grouped(tokens: Sequence[str], checked: CheckedFlags) -> list[tuple[str, list[str]]]:
    """Cut the tokens into flags with the values that follow them."""
    groups: list[tuple[str, list[str]]] = []
    for token in tokens:
        if token.startswith("--"):
            name, equals, value = token.partition("=")
            groups.append((name, [value] if equals else []))
        elif groups:
            groups[-1][1].append(token)
        else:
            checked.problems.append(f"unexpected word {token!r} after the four words")
    return groups


def _check_one(flag: Flag, is_off: bool, values: list[str], checked: CheckedFlags) -> None:
    if flag.path in checked.given and not flag.repeatable:
        checked.problems.append(f"{flag.name}: given twice; keep one of them")
        return
    checked.given.add(flag.path)
    problem = _value_problem(flag, values)
    if problem:
        checked.problems.append(f"{flag.name}: {problem}")
        return
    checked.tokens.append(flag.off_name if is_off else flag.name)
    is_none = flag.optional and [value.lower() for value in values] == [_NONE]
    checked.tokens.extend(["None"] if is_none else values)


def _value_problem(flag: Flag, values: list[str]) -> str | None:
    """What is wrong with the values of one flag; None if nothing is."""
    if flag.kind == "switch":
        return _switch_problem(flag, values)
    if not values:
        return f"needs {flag.takes}; write {_example(flag)}"
    is_several = flag.kind == "several" and not flag.repeatable
    if len(values) > 1 and not is_several:
        extra = " ".join(values[1:])
        return f"takes one value, got {extra!r} besides; write {flag.name} {values[0]}"
    if flag.optional and [value.lower() for value in values] == [_NONE]:
        return None
    problems = (_single_value_problem(flag, value) for value in values)
    return next((problem for problem in problems if problem), None)


def _switch_problem(flag: Flag, values: list[str]) -> str | None:
    if not values:
        return None
    return (
        f"takes no value, got {' '.join(values)!r}; "
        f"write {flag.name} to switch it on, {flag.off_name} to switch it off"
    )


def _single_value_problem(flag: Flag, value: str) -> str | None:
    match flag.item_kind:
        case "integer" if not _is_integer(value):
            return f"takes {flag.takes}, got {value!r}; write {_integer_example(flag, value)}"
        case "number" if not _is_number(value):
            return f"takes {flag.takes}, got {value!r}; write {_example(flag)}"
        case "choice" if value not in flag.choices:
            near = difflib.get_close_matches(value.lower(), flag.choices, n=1, cutoff=0.5)
            return (
                f"takes {flag.takes}, got {value!r}; write {flag.name} {(near or flag.choices)[0]}"
            )
    return None


def unknown_flag(name: str, values: Sequence[str], flags: Sequence[Flag]) -> str:
    """Say what to write in place of a flag that does not exist."""
    if name == "--token":
        return _TOKEN_HINT
    wanted = name.replace("_", "-")
    return (
        _group_hint(wanted, flags)
        or _off_switch_hint(wanted, flags)
        or _prefix_hint(wanted, values, flags)
        or _near_hint(wanted, flags)
    )


def _group_hint(name: str, flags: Sequence[Flag]) -> str | None:
    """``--track false``: a group is not a flag."""
    members = [flag for flag in flags if flag.name.startswith(f"{name}.")]
    if not members:
        return None
    switch = next((flag for flag in members if flag.path[-1] == "enabled"), None)
    if switch:
        return (
            f"{name}: is a group of flags; write {switch.name} to switch it on, "
            f"{switch.off_name} to switch it off"
        )
    return f"{name}: is a group of flags; write one of {', '.join(f.name for f in members[:6])}, …"


def _off_switch_hint(name: str, flags: Sequence[Flag]) -> str | None:
    """``--no-track.enabled``: the ``no-`` belongs to the last part."""
    misplaced = {
        "--no-" + flag.name.removeprefix("--"): flag for flag in flags if flag.kind == "switch"
    }
    flag = misplaced.get(name)
    return f"{name}: write {flag.off_name}" if flag else None


def _prefix_hint(name: str, values: Sequence[str], flags: Sequence[Flag]) -> str | None:
    """``--clip-coef`` for ``--algo.clip-coef``: right last part, wrong prefix."""
    last = name.removeprefix("--").split(".")[-1]
    same = [_respell(flag, last) for flag in flags if last in _last_parts(flag)]
    if not same:
        return None
    shown = " or ".join(" ".join([spelling, *values]) for spelling in same)
    return f"{name}: is unknown; write {shown}"


def _last_parts(flag: Flag) -> set[str]:
    parts = {flag.name.removeprefix("--").split(".")[-1]}
    if flag.kind == "switch":
        parts.add(flag.off_name.removeprefix("--").split(".")[-1])
    return parts


def _respell(flag: Flag, last: str) -> str:
    return flag_name((*flag.path[:-1], last))


def _near_hint(name: str, flags: Sequence[Flag]) -> str:
    near = difflib.get_close_matches(name, [flag.name for flag in flags], n=3, cutoff=0.6)
    if near:
        return f"{name}: is unknown; did you mean {' or '.join(near)}?"
    return f"{name}: is unknown; --help after the four words lists all flags"


def _example(flag: Flag) -> str:
    """A spelling that works, built on the default."""
    samples: Mapping[str, object] = {
        "integer": 1,
        "number": 1.0,
        "text": "VALUE",
        "several": "VALUE",
        "choice": flag.choices[0] if flag.choices else "",
    }
    has_default = flag.default is not None and flag.default != ()
    value = flag.default if has_default else samples[flag.kind]
    shown = " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return f"{flag.name} {shown}"


def _integer_example(flag: Flag, value: str) -> str:
    """``8e3`` -> ``--port 8000``; anything else -> the default."""
    if _is_number(value) and float(value).is_integer():
        return f"{flag.name} {int(float(value))}"
    return _example(flag)


def _is_integer(value: str) -> bool:
    try:
        int(value)
    except ValueError:
        return False
    return True


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
