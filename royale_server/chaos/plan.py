"""Which faults a connection suffers, and when: written in words, drawn from a seed.

Pure: the same plan and seed give the same faults. Opens no socket and reads no clock.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias, cast

from royale_client.wire.errors import ConfigError

Kind: TypeAlias = Literal[
    "delay", "throttle", "cut", "half-close", "duplicate", "corrupt", "black-hole"
]
Direction: TypeAlias = Literal["up", "down", "both"]
"""``up`` is what the client says, ``down`` what the server says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """What a clause about one kind of fault may say."""

    meaning: str
    """One sentence, with {amount} for the amount."""
    amount: tuple[float, float, float] | None = None
    """Amount when none is given, and the range of amounts; None for a kind that has none."""
    lasting_s: float = 0.0
    """Seconds when none are given."""
    direction: Direction | None = "both"
    """Direction when none is given; None draws one of the two. """


KINDS: Mapping[Kind, KindFacts] = {
    "delay": KindFacts(
        meaning="bytes arrive {amount} seconds late", amount=(0.2, 0.0, 3600.0), lasting_s=5.0
    ),
    "throttle": KindFacts(
        meaning="at most {amount} bytes pass in a second", amount=(5e4, 1.0, 1e12), lasting_s=5.0
    ),
    "cut": KindFacts(meaning="the connection is reset, and no new one taken meanwhile"),
    "half-close": KindFacts(
        meaning="one side is told that the other has nothing more to say", direction=None
    ),
    "duplicate": KindFacts(
        meaning="another connection says what the client said at first", lasting_s=5.0
    ),
    "corrupt": KindFacts(
        meaning="{amount} of the next bytes are changed", amount=(1.0, 1.0, 1e6), direction=None
    ),
    "black-hole": KindFacts(
        meaning="nothing arrives any more, and nobody is told; what was held comes afterwards",
        lasting_s=10.0,
    ),
}

PLANS: Mapping[str, str] = {
    "wifi": "delay every 5 for 1-3 of 0.05-0.4, throttle every 20 for 2-5 of 20000, "
    "black-hole every 60 for 1-5, cut every 120 for 1-10",
    "restless": "cut every 10 for 0-2, half-close every 30, duplicate every 20",
    "hostile": "corrupt every 5, duplicate every 15, half-close every 20, black-hole every 30 "
    "for 5-15, cut every 20",
}
"""Plans that have a name."""

_CLAUSE = re.compile(
    r"(?P<kind>[a-z-]+)(?: (?P<direction>up|down|both))? every (?P<every>\S+)"
    r"(?: for (?P<lasting>\S+))?(?: of (?P<amount>\S+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A number that is drawn evenly from a range."""

    low: float
    high: float

    def draw(self, random: Random) -> float:
        """Draw one; a range of one number draws it."""
        return self.low + (self.high - self.low) * random.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One kind of fault that comes again and again."""

    kind: Kind
    direction: Direction | None
    """None draws one of the two each time."""
    every_s: float
    """Mean time between two of them; each gap is drawn from a half to one and a half of it."""
    lasting_s: Span
    amount: Span | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong at one moment."""

    at_s: float
    """Seconds since the start."""
    kind: Kind
    direction: Direction = "both"
    lasting_s: float = 0.0
    amount: float = 0.0
    """Unit by kind, see `KINDS`."""
    victim: float = 0.0
    """Which of the connections that are open then suffers it, from 0 (the oldest) up to 1."""


def parse_plan(text: str) -> tuple[Clause, ...]:
    """Read a plan: the name of one, or clauses with commas between them.

    A clause is ``KIND [up|down|both] every S [for S] [of N]``; a number may be a range, ``1-10``.

    Raises:
        ConfigError: It is none; says which clause and what was expected.
    """
    return tuple(_clause(part.strip()) for part in PLANS.get(text, text).split(","))


def schedule(clauses: Sequence[Clause], seed: int) -> Iterator[Fault]:
    """Draw the faults of a plan, in order of time, without an end.

    A clause draws from a stream of its own, so that another one added leaves its faults as they
    are.

    Args:
        clauses: The plan.
        seed: Seeds every draw.
    """
    streams = [
        _stream(clause, Random(f"{seed} {place} {clause.kind}"))
        for place, clause in enumerate(clauses)
    ]
    return heapq.merge(*streams, key=lambda fault: fault.at_s)


def _stream(clause: Clause, random: Random) -> Iterator[Fault]:
    at_s = 0.0
    while True:
        at_s += clause.every_s * (0.5 + random.random())
        drawn: Direction = random.choice(("up", "down"))
        yield Fault(
            at_s=at_s,
            kind=clause.kind,
            direction=clause.direction or drawn,
            lasting_s=clause.lasting_s.draw(random),
            amount=0.0 if clause.amount is None else clause.amount.draw(random),
            victim=random.random(),
        )


def _clause(text: str) -> Clause:
    found = _CLAUSE.fullmatch(text)
    if found is None or found["kind"] not in KINDS:
        raise ConfigError(
            f"plan: got {text!r}, expected KIND [up|down|both] every S [for S] [of N] with KIND "
            f"one of {', '.join(KINDS)}, or one of the plans {', '.join(PLANS)}"
        )
    kind = cast(Kind, found["kind"])
    facts = KINDS[kind]
    every = _span(text, "every", found["every"], 0.001, math.inf)
    if every.low != every.high:
        raise ConfigError(f"plan: {text!r}: one number after «every», its gaps are drawn anyway")
    lasting = found["lasting"]
    return Clause(
        kind=kind,
        direction=cast("Direction | None", found["direction"]) or facts.direction,
        every_s=every.low,
        lasting_s=_fixed(facts.lasting_s)
        if lasting is None
        else _span(text, "for", lasting, 0.0, math.inf),
        amount=_amount(text, found["amount"], facts),
    )


def _amount(text: str, given: str | None, facts: KindFacts) -> Span | None:
    if facts.amount is None:
        if given is not None:
            raise ConfigError(f"plan: {text!r}: this kind of fault has no amount")
        return None
    default, low, high = facts.amount
    return _fixed(default) if given is None else _span(text, "of", given, low, high)


def _span(text: str, word: str, given: str, low: float, high: float) -> Span:
    """Read ``N`` or ``N-M``."""
    first, dash, second = given.partition("-")
    try:
        span = Span(low=float(first), high=float(second if dash else first))
    except ValueError:
        span = Span(low=math.nan, high=math.nan)
    if not low <= span.low <= span.high <= high:
        bound = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        raise ConfigError(
            f"plan: {text!r}: got {given!r} after «{word}», expected a number or a range such as "
            f"1-10, {bound}"
        )
    return span


def _fixed(number: float) -> Span:
    return Span(low=number, high=number)
