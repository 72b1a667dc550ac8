"""What a check is: a name, a phase, its reason, and a pure function over the facts of a phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from royale_server.preflight.finding import Finding, Level

FactsT = TypeVar("FactsT")


class Phase(Enum):
    """When facts are there to be judged."""

    START = "before listening"
    CLIENT = "when the first client has said hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[FactsT]):
    """One thing that is looked at."""

    name: str
    """Stable; for people, ``--explain`` and links."""
    phase: Phase
    looks_at: str
    """What exactly is looked at, for the table."""
    refuses: str
    """When the run does not start; empty for a check that only warns."""
    warns: str = ""
    """When a person is told and the run starts."""
    why: str
    """What it costs to run without it: the incident behind the check."""
    cure: str
    """What to do, in general."""
    judge: Callable[[FactsT], Iterable[Finding]]
    """What is wrong; nothing if all is well."""
    needs_machine: bool = False
    """Whether it is about this machine and its disk, which ``--structure-only`` leaves out."""


def judge(
    checks: Sequence[Check[FactsT]], facts: FactsT, *, structure_only: bool = False
) -> list[Finding]:
    """Judge facts by every check; all problems come at once.

    Args:
        checks: Of one phase.
        facts: Of that phase.
        structure_only: Leave out what is about this machine.

    Returns:
        At least one finding a check, in their order.
    """
    found: list[Finding] = []
    for check in checks:
        if structure_only and check.needs_machine:
            found.append(Finding(check=check.name, level=Level.SKIP, what="about this machine"))
            continue
        found += list(check.judge(facts)) or [
            Finding(check=check.name, level=Level.OK, what=check.looks_at)
        ]
    return found
