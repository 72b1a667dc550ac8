"""What an alarm can ask: small pure questions about the numbers of one row.

A condition sees numbers by key, limits by name and a memory of its own that lasts from row to row.
It reads no clock and raises nothing; it is asked only when every key it needs is there and finite.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Numbers: TypeAlias = Mapping[str, float]
Memory: TypeAlias = dict[str, Any]
"""Plain data; goes into checkpoints."""
Limit: TypeAlias = str | float
"""A number, or the name of one in the settings of the alarms."""
Relation: TypeAlias = Literal["above", "at or above", "below"]

ATTEMPT = "run/attempt"
ACTOR_FROZEN = "ppo/actor_frozen"

_RELATIONS: Mapping[Relation, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "at or above": operator.ge,
    "below": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a condition may look at."""

    values: Numbers
    """Finite numbers of the row, by key."""
    limits: Numbers
    """Settings of the alarms, by name."""
    memory: Memory
    """What the same condition left there at the row before."""

    def limit(self, limit: Limit) -> float:
        """Return a limit as a number."""
        return self.limits[limit] if isinstance(limit, str) else limit


class Condition(ABC):
    """A question about one row."""

    __slots__ = ()

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Keys without which it is not asked."""

    @property
    def optional_keys(self) -> tuple[str, ...]:
        """Keys that it looks at if they are there."""
        return ()

    @property
    @abstractmethod
    def limits(self) -> tuple[Limit, ...]:
        """Limits that it holds numbers against."""

    @abstractmethod
    def holds(self, reading: Reading) -> bool:
        """Answer it; may change the memory."""

    @abstractmethod
    def words(self) -> str:
        """Say when it holds; limits of the settings stand in braces."""


@dataclass(frozen=True, slots=True)
class Compares(Condition):
    """A number is above, at least or below the product of some limits."""

    key: str
    relation: Relation
    factors: tuple[Limit, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.key,)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return self.factors

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        bound = 1.0
        for factor in self.factors:
            bound *= reading.limit(factor)
        return _RELATIONS[self.relation](reading.values[self.key], bound)

    def words(self) -> str:
        """See `Condition`."""
        return f"`{self.key}` {self.relation} {' × '.join(map(_words, self.factors))}"


def above(key: str, *factors: Limit) -> Compares:
    """A number is larger than a limit, or than a product of limits."""
    return Compares(key, "above", factors)


def at_least(key: str, *factors: Limit) -> Compares:
    """A number is a limit or larger."""
    return Compares(key, "at or above", factors)


def below(key: str, *factors: Limit) -> Compares:
    """A number is smaller than a limit."""
    return Compares(key, "below", factors)


@dataclass(frozen=True, slots=True)
class AboveFull(Condition):
    """A share of something is more than all of it, or than a larger limit."""

    key: str
    limit: Limit

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.key,)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return (self.limit,)

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        return reading.values[self.key] > max(1.0, reading.limit(self.limit))

    def words(self) -> str:
        """See `Condition`."""
        return f"`{self.key}` above max(1, {_words(self.limit)})"


@dataclass(frozen=True, slots=True)
class Nonzero(Condition):
    """A number that is 0 by construction is not."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.key,)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return ()

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        return reading.values[self.key] != 0

    def words(self) -> str:
        """See `Condition`."""
        return f"`{self.key}` is not 0"


@dataclass(frozen=True, slots=True)
class Exceeds(Condition):
    """One number is larger than another."""

    key: str
    other: str

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.key, self.other)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return ()

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        return reading.values[self.key] > reading.values[self.other]

    def words(self) -> str:
        """See `Condition`."""
        return f"`{self.key}` above `{self.other}`"


@dataclass(frozen=True, slots=True)
class OutsideBand(Condition):
    """A whole interval lies beyond one end of a band."""

    low_key: str
    high_key: str
    low: Limit
    high: Limit

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.low_key, self.high_key)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return (self.low, self.high)

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        is_below = reading.values[self.high_key] < reading.limit(self.low)
        return is_below or reading.values[self.low_key] > reading.limit(self.high)

    def words(self) -> str:
        """See `Condition`."""
        low, high = _words(self.low), _words(self.high)
        return f"`{self.high_key}` below {low}, or `{self.low_key}` above {high}"


@dataclass(frozen=True, slots=True)
class Together(Condition):
    """Several conditions hold at once."""

    parts: tuple[Condition, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return tuple(dict.fromkeys(key for part in self.parts for key in part.keys))

    @property
    def optional_keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return tuple(dict.fromkeys(key for part in self.parts for key in part.optional_keys))

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return tuple(limit for part in self.parts for limit in part.limits)

    def holds(self, reading: Reading) -> bool:
        """See `Condition`. Every part is asked, so that each remembers every row."""
        answers = [part.holds(reading) for part in self.parts]
        return all(answers)

    def words(self) -> str:
        """See `Condition`."""
        return ", and ".join(part.words() for part in self.parts)


@dataclass(frozen=True, slots=True)
class Rose(Condition):
    """A counter of something that should not happen is higher than at the row before.

    Counters begin at 0 with every start of the server, and before the first row.
    """

    counters: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return self.counters

    @property
    def optional_keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (ATTEMPT,)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return ()

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        memory, attempt = reading.memory, reading.values.get(ATTEMPT)
        is_anew = memory.get(ATTEMPT) != attempt
        before = {} if is_anew else memory.get("counters", {})
        now = {key: reading.values[key] for key in self.counters}
        memory.update({ATTEMPT: attempt, "counters": now})
        return any(_risen(now[key], before.get(key, 0.0)) for key in self.counters)

    def words(self) -> str:
        """See `Condition`."""
        return " or ".join(f"`{key}`" for key in self.counters) + " rose since the row before"


def _risen(now: float, before: float) -> bool:
    """Whether a counter rose; one that fell began anew."""
    return now > (before if now >= before else 0.0)


@dataclass(frozen=True, slots=True)
class SlowerThanBest(Condition):
    """Something takes a multiple of the shortest time it ever took, while something is short.

    The best is a running minimum, so a slow row cannot raise the bar it is held against. Rows with
    the actor frozen do less and keep a best of their own.
    """

    duration: str
    factor: Limit
    free: str
    least_free: Limit

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (self.duration, self.free)

    @property
    def optional_keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (ACTOR_FROZEN,)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return (self.factor, self.least_free)

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        state = "best, frozen" if reading.values.get(ACTOR_FROZEN) else "best"
        duration = reading.values[self.duration]
        best = min(duration, reading.memory.get(state, duration))
        reading.memory[state] = best
        is_slow = duration >= reading.limit(self.factor) * best
        return is_slow and reading.values[self.free] < reading.limit(self.least_free)

    def words(self) -> str:
        """See `Condition`."""
        return (
            f"`{self.duration}` at least {_words(self.factor)} × its lowest of the same actor "
            f"state, and `{self.free}` below {_words(self.least_free)}"
        )


@dataclass(frozen=True, slots=True)
class AfterThaw(Condition):
    """A number is too large in the first rows after a frozen actor began to move."""

    parts: tuple[Compares, ...]
    since: str
    window: Limit

    @property
    def keys(self) -> tuple[str, ...]:
        """See `Condition`."""
        return (*(part.key for part in self.parts), self.since)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """See `Condition`."""
        return (*(limit for part in self.parts for limit in part.limits), self.window)

    def holds(self, reading: Reading) -> bool:
        """See `Condition`."""
        is_fresh = reading.values[self.since] <= reading.limit(self.window)
        return is_fresh and any(part.holds(reading) for part in self.parts)

    def words(self) -> str:
        """See `Condition`."""
        either = " or ".join(part.words() for part in self.parts)
        return f"{either}, while `{self.since}` is at most {_words(self.window)}"


def _words(limit: Limit) -> str:
    """Show a limit in the words of a condition."""
    return f"{{{limit}}}" if isinstance(limit, str) else f"{limit:g}"
