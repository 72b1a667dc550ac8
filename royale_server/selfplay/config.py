"""The settings of self-play. Holds numbers and texts, decides nothing, imports no NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from royale_client.wire.errors import ConfigError

SHARES = ("mirror", "pool", "scripted")
EXAMPLE = "mirror=0.5,pool=0.35,scripted=0.15"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfPlayConfig:
    """Opponents in environments with several seats. Others are not touched by it."""

    mix: str = EXAMPLE
    """Shares of battles that add up to 1: ``mirror`` (the policy in every seat), ``pool`` (against
    a snapshot of its past), ``scripted`` (against a bot that the client plays). A share that is not
    named is 0. While there is no snapshot, scripted bots take the battles of the pool; where a
    client has no bots, the policy plays itself."""
    scripted: tuple[str, ...] = ()
    """Scripted bots to play against, by name; every client must offer them. When absent, all that a
    client offers."""
    max_resident: int = 2
    """Snapshots that play at one time, 2 or more: one finishes its battles while others go on. Each
    is inferred in a batch of its own."""
    snapshot_every: int = 10
    """Iterations between snapshots of the policy into the pool."""
    pool_size: int = 16
    """Snapshots kept. They are part of every checkpoint; the oldest go first."""

    def __post_init__(self) -> None:
        problems = [*_mix_problems(self.mix), *_count_problems(self)]
        if not problems:
            problems = _exclusions(self)
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """The mixture as exact numbers, by the names in ``SHARES``."""
        return _shares(self.mix)


def _shares(text: str) -> dict[str, Fraction]:
    """Read a mixture; raises ValueError with half a sentence."""
    shares = dict.fromkeys(SHARES, Fraction(0))
    seen: set[str] = set()
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in shares:
            raise ValueError(f"{name!r} is none of {', '.join(SHARES)}")
        if name in seen:
            raise ValueError(f"{name} is named twice")
        seen.add(name)
        shares[name] = _share(name, number)
    total = sum(shares.values())
    if total != 1:
        raise ValueError(f"the shares add up to {float(total):g}")
    return shares


def _share(name: str, number: str) -> Fraction:
    try:
        share = Fraction(number)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"the share of {name} is {number!r}, which is no number") from None
    if not 0 <= share <= 1:
        raise ValueError(f"the share of {name} is {number}, outside 0 to 1")
    return share


def _mix_problems(mix: str) -> list[str]:
    try:
        _shares(mix)
    except ValueError as error:
        return [f"mix: got {mix!r}, expected shares that add up to 1, as {EXAMPLE}; {error}"]
    return []


def _count_problems(config: SelfPlayConfig) -> list[str]:
    problems = [
        f"{name}: got {getattr(config, name)}, expected a whole number of at least {low}"
        for name, low in (("max_resident", 2), ("snapshot_every", 1))
        if getattr(config, name) < low
    ]
    if config.pool_size <= config.max_resident:
        problems.append(
            f"pool_size: got {config.pool_size}, expected more than the {config.max_resident} of "
            "max_resident, so that one can go while these play"
        )
    problems += [
        f"scripted: got {name!r}, expected the name of a bot"
        for name in config.scripted
        if not (name and name.isprintable())
    ]
    if len(set(config.scripted)) < len(config.scripted):
        problems.append(f"scripted: got {' '.join(config.scripted)}, expected each name once")
    return problems


def _exclusions(config: SelfPlayConfig) -> list[str]:
    """Settings that would be ignored."""
    shares = config.shares
    problems = []
    if not shares["pool"]:
        problems += [
            f"{name}: only counts with a share of pool in mix"
            for name, default in (("max_resident", 2), ("snapshot_every", 10), ("pool_size", 16))
            if getattr(config, name) != default
        ]
    if config.scripted and not (shares["scripted"] or shares["pool"]):
        problems.append("scripted: only counts with a share of scripted or pool in mix")
    return problems
