"""Scenarios as data, and how they are played one after the other. Knows no socket, no message."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from royale_client.wire.limits import Limits

Stage = TypeVar("Stage")

LIMITS = Limits()
"""What the suite itself refuses for its size."""


class ViolationError(Exception):
    """The peer broke clauses of the protocol.

    Args:
        clauses: Numbers of the clauses, such as ``P34``.
        sentence: What came, and what was expected.
    """

    def __init__(self, clauses: Sequence[str], sentence: str) -> None:
        super().__init__(sentence)
        self.clauses = tuple(clauses)
        self.sentence = sentence


class NotApplicableError(Exception):
    """The scenario says nothing about this peer; the text says why."""


class SetupError(Exception):
    """The suite cannot go on: nobody there, or a port that cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How patient the suite is, and what it presents."""

    timeout_s: float = 10.0
    """Seconds within which what is owed must come."""
    quiet_s: float = 0.5
    """Seconds for which a peer that must be silent is listened to."""
    turns: int = 12
    """Requests of each group in scenarios about turns."""
    token: str | None = None
    """Token of the server under test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Generic[Stage]):
    """One thing that is tried."""

    name: str
    """Short, in words joined by hyphens."""
    clauses: tuple[str, ...]
    """What it checks beyond what is watched in every conversation."""
    title: str
    """What a peer that passes does, as the rest of a sentence."""
    play: Callable[[Stage], None]
    """Raises `ViolationError` or `NotApplicableError`."""


class Outcome(Enum):
    """How a scenario ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One scenario that was played."""

    name: str
    title: str
    clauses: tuple[str, ...]
    """What the scenario checks."""
    outcome: Outcome
    broken: tuple[str, ...] = ()
    """Clauses that were broken, if it failed."""
    sentence: str = ""
    """What was wrong, or why it was skipped."""
    seconds: float = 0.0


def play(
    scenarios: Sequence[Scenario[Stage]],
    stage: Stage,
    *,
    tell: Callable[[Result], None] = lambda _result: None,
) -> list[Result]:
    """Play scenarios in order.

    Args:
        scenarios: What to play.
        stage: The peer under test.
        tell: Called after each one.

    Raises:
        SetupError: The suite cannot go on.
    """
    results = []
    for scenario in scenarios:
        result = _play_one(scenario, stage)
        tell(result)
        results.append(result)
    return results


def _play_one(scenario: Scenario[Stage], stage: Stage) -> Result:
    started_s = time.monotonic()
    broken: tuple[str, ...] = ()
    outcome, sentence = Outcome.PASSED, ""
    try:
        scenario.play(stage)
    except ViolationError as violation:
        outcome, broken, sentence = Outcome.FAILED, violation.clauses, violation.sentence
    except NotApplicableError as reason:
        outcome, sentence = Outcome.SKIPPED, str(reason)
    return Result(
        name=scenario.name,
        title=scenario.title,
        clauses=scenario.clauses,
        outcome=outcome,
        broken=broken,
        sentence=sentence,
        seconds=time.monotonic() - started_s,
    )


def has_failed(results: Sequence[Result]) -> bool:
    """Tell whether any scenario failed."""
    return any(result.outcome is Outcome.FAILED for result in results)
