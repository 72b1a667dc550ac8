"""What a check has found: a level, and the fields that a person needs to act on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from royale_client.wire.errors import RoyaleError


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    """Looked at, and as it should be."""
    WARN = "warn"
    """The run may start; a person should know. What is unset or cannot be told is never OK."""
    FAIL = "fail"
    """The run does not start."""
    SKIP = "skip"
    """Not looked at, since it was not asked for or there is nothing to look at yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of a report."""

    check: str
    """Name of the check."""
    level: Level
    what: str
    """What is the matter, as a sentence without a full stop."""
    where: str = ""
    """Flag, file or part of the environment that it is about."""
    got: str = ""
    expected: str = ""
    remedy: str = ""
    """What to do about it."""
    details: tuple[str, ...] = ()
    """Further lines: each difference, each disagreeing action."""

    @property
    def sentence(self) -> str:
        """All fields in one line but the details."""
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        parts += [f"got {self.got}"] if self.got else []
        parts += [f"expected {self.expected}"] if self.expected else []
        text = ", ".join(parts)
        return f"{text}; {self.remedy}" if self.remedy else text

    def lines(self) -> list[str]:
        """The sentence and the details."""
        return [self.sentence, *(f"  {detail}" for detail in self.details)]

    def to_data(self) -> dict[str, object]:
        """Plain data for ``--json``."""
        return {
            "check": self.check,
            "level": self.level.value,
            "what": self.what,
            "where": self.where,
            "got": self.got,
            "expected": self.expected,
            "remedy": self.remedy,
            "details": list(self.details),
        }


class PreflightError(RoyaleError):
    """A run that may not start.

    Args:
        findings: All of the phase; those that fail are told.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = failures(findings)
        count = len(self.findings)
        are = "1 check refuses" if count == 1 else f"{count} checks refuse"
        lines = [f"preflight: {are} this run, nothing was changed"]
        for finding in self.findings:
            first, *more = finding.lines()
            lines += [f"  {finding.check}: {first}", *(f"  {line}" for line in more)]
        super().__init__("\n".join(lines))


def failures(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that keep a run from starting."""
    return tuple(finding for finding in findings if finding.level is Level.FAIL)


def refusal(check: str, error: Exception | str) -> Finding:
    """Turn a refusal of another part of the server into a finding, word for word.

    Args:
        check: Name of the check.
        error: Its first line, «what; what to do», becomes the sentence, further ones the details.
    """
    first, *more = str(error).splitlines() or [""]
    what, _, remedy = first.partition("; ")
    return Finding(
        check=check,
        level=Level.FAIL,
        what=what,
        remedy=remedy,
        details=tuple(line.strip() for line in more),
    )
