"""The four words of the command, POLICY VARIANT ALGO VARIANT, checked against the registry.

Everything that is wrong with them is said at once, with the words that fit. Only the plug-ins
that are named get imported; nothing is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from royale_client.wire.errors import ConfigError
from royale_server.cli_flags import Flag, Settings
from royale_server.config import Pair
from royale_server.registry import (
    AlgorithmEntry,
    Catalog,
    ComponentEntry,
    EntryT,
    PolicyEntry,
    Registry,
    close_match_hint,
)

WORDS = ("POLICY", "VARIANT", "ALGO", "VARIANT")
PROGRAM = "royale-server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the four words stand for."""

    pair: Pair
    policy_entry: PolicyEntry
    algo_entry: AlgorithmEntry
    policy: Settings
    """The policy variant's settings."""
    algo: Settings
    """The algorithm variant's settings."""


def split_words(argv: Sequence[str], server_flags: Sequence[Flag]) -> tuple[list[str], list[str]]:
    """Cut a command line into its words and its flags.

    Args:
        argv: Arguments after the program's name.
        server_flags: Flags that exist whatever the words are; used to tell a word from a value.

    Raises:
        ConfigError: If flags stand before or between the words, with the order that works.
    """
    count = next((i for i, token in enumerate(argv) if token.startswith("-")), len(argv))
    words, rest = list(argv[:count]), list(argv[count:])
    strays, flags = _separate(rest, server_flags)
    if strays and len(words) < len(WORDS) <= len(words) + len(strays):
        ordered = [*words, *strays[: len(WORDS) - len(words)], *flags]
        raise ConfigError(
            f"flags come after the four words {' '.join(WORDS)}; "
            f"write: {PROGRAM} {' '.join(ordered)}"
        )
    return words, rest


def choose(words: Sequence[str], registry: Registry) -> Chosen:
    """Look the words up.

    Raises:
        ConfigError: With one line for everything that is wrong.
    """
    if len(words) != len(WORDS):
        raise ConfigError(_count_problem(words, registry))
    problems: list[str] = []
    policy_entry = _entry(registry.policies, words[0], problems)
    algo_entry = _entry(registry.algorithms, words[2], problems)
    policy = _variant(policy_entry, words[1], problems)
    algo = _variant(algo_entry, words[3], problems)
    if policy_entry and algo_entry and not registry.fits(policy_entry, algo_entry):
        problems.append(_pair_problem(policy_entry, algo_entry, registry))
    if policy_entry is None or algo_entry is None or problems:
        raise ConfigError("\n".join([*problems, *_order_hint(words, registry)]))
    pair = Pair(policy=words[0], policy_variant=words[1], algo=words[2], algo_variant=words[3])
    return Chosen(
        pair=pair, policy_entry=policy_entry, algo_entry=algo_entry, policy=policy, algo=algo
    )


def _separate(tokens: Sequence[str], server_flags: Sequence[Flag]) -> tuple[list[str], list[str]]:
    """Tell stray words among flags from the values of flags, as far as the flags are known."""
    switches = {flag.name for flag in server_flags if flag.kind == "switch"}
    switches |= {flag.off_name for flag in server_flags if flag.kind == "switch"}
    strays: list[str] = []
    flags: list[str] = []
    takes_value = False
    for token in tokens:
        if token.startswith("-"):
            takes_value = (
                token not in switches and "=" not in token and token not in ("-h", "--help")
            )
            flags.append(token)
        elif takes_value:
            flags.append(token)
            takes_value = False
        else:
            strays.append(token)
    return strays, flags


def _entry(catalog: Catalog[EntryT], uid: str, problems: list[str]) -> EntryT | None:
    try:
        return catalog.get(uid)
    except ConfigError as error:
        problems.append(str(error))
        return None


def _variant(entry: ComponentEntry | None, name: str, problems: list[str]) -> Settings | None:
    if entry is None:
        return None
    try:
        variants = entry.load_variants()
    except ConfigError as error:
        problems.append(str(error))
        return None
    if name not in variants:
        problems.append(
            f"variant {name!r} of {entry.uid} is unknown{close_match_hint(name, variants)}; "
            f"{entry.uid} has: {', '.join(variants)}"
        )
        return None
    return variants[name]


def _pair_problem(policy: PolicyEntry, algo: AlgorithmEntry, registry: Registry) -> str:
    pairs = registry.pairs()
    with_policy = [a for p, a in pairs if p == policy.uid] or ["none"]
    with_algo = [p for p, a in pairs if a == algo.uid] or ["none"]
    return (
        f"{policy.uid} and {algo.uid} do not fit together; "
        f"algorithms for {policy.uid}: {', '.join(with_policy)}; "
        f"policies for {algo.uid}: {', '.join(with_algo)}"
    )


def _order_hint(words: Sequence[str], registry: Registry) -> list[str]:
    """The algorithm was named first."""
    is_swapped = words[0] in registry.algorithms.names() and words[2] in registry.policies.names()
    swapped = " ".join([words[2], words[3], words[0], words[1]])
    return [f"the policy comes first; write: {PROGRAM} {swapped}"] if is_swapped else []


def _count_problem(words: Sequence[str], registry: Registry) -> str:
    """Too few or too many words: say what comes next, or what is too much."""
    if len(words) > len(WORDS):
        extra = " ".join(words[len(WORDS) :])
        return f"expected {' '.join(WORDS)} and then flags, got {extra!r} after the four words"
    missing = " ".join(WORDS[len(words) :])
    got = f"got {' '.join(words)!r}, missing {missing}" if words else "got no words"
    return f"expected {' '.join(WORDS)}, {got}; {_next_word_hint(words, registry)}"


def _next_word_hint(words: Sequence[str], registry: Registry) -> str:
    if not words:
        return f"policies: {', '.join(registry.policies.names())}"
    policy = registry.policies.get(words[0])
    if len(words) == 1:
        return f"variants of {policy.uid}: {', '.join(policy.load_variants())}"
    fitting = [a for p, a in registry.pairs() if p == policy.uid]
    if len(words) == 2:
        return f"algorithms for {policy.uid}: {', '.join(fitting)}"
    algorithm = registry.algorithms.get(words[2])
    return f"variants of {algorithm.uid}: {', '.join(algorithm.load_variants())}"
