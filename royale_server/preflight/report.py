"""What a person reads of findings: what passed in one line, a row for each problem. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from royale_server.preflight.check import Check
from royale_server.preflight.finding import Finding, Level, failures

MARKS = {Level.OK: "OK", Level.WARN: "WARN", Level.FAIL: "FAIL", Level.SKIP: "SKIP"}


def passed_line(findings: Sequence[Finding]) -> str:
    """Fold everything that is as it should be into one line."""
    passed = [finding.check for finding in findings if finding.level is Level.OK]
    names = ", ".join(dict.fromkeys(passed))
    return f"preflight: {len(passed)} checks passed ({names})"


def verdict(findings: Iterable[Finding]) -> str:
    """Say whether the run would start; warnings never change it."""
    return f"SAFE TO RUN: {'NO' if failures(findings) else 'YES'}"


def rows(findings: Sequence[Finding]) -> list[str]:
    """Return the report: problems first, one row each, then what passed in one row."""
    order = {Level.FAIL: 0, Level.WARN: 1, Level.SKIP: 2}
    told = [finding for finding in findings if finding.level is not Level.OK]
    skipped = [finding for finding in told if finding.level is Level.SKIP]
    lines = []
    for finding in sorted(told, key=lambda finding: order[finding.level]):
        if finding.level is not Level.SKIP:
            lines += _row(finding)
    if skipped:
        names = ", ".join(finding.check for finding in skipped)
        lines.append(f"SKIP  {len(skipped)} checks not made ({skipped[0].what}): {names}")
    passed = [finding.check for finding in findings if finding.level is Level.OK]
    lines.append(f"OK    {len(passed)} checks passed: {', '.join(dict.fromkeys(passed)) or 'none'}")
    return lines


def _row(finding: Finding) -> list[str]:
    where = f"{finding.where}: " if finding.where else ""
    lines = [f"{MARKS[finding.level]:5} {finding.check}: {where}{finding.what}"]
    lines += [f"      got:      {finding.got}"] if finding.got else []
    lines += [f"      expected: {finding.expected}"] if finding.expected else []
    lines += [f"      {detail}" for detail in finding.details]
    lines += [f"      fix:      {finding.remedy}"] if finding.remedy else []
    return lines


def explanation(check: Check[Any]) -> list[str]:
    """Say all about one check."""
    lines = [f"{check.name} ({check.phase.value})", f"  looks at: {check.looks_at}"]
    lines += [f"  refuses:  if {check.refuses}"] if check.refuses else []
    lines += [f"  warns:    if {check.warns}"] if check.warns else []
    return [*lines, f"  why:      {check.why}", f"  cure:     {check.cure}"]


def markdown_table(checks: Iterable[Check[Any]]) -> str:
    """Return the table of the documentation."""
    lines = [
        "| check | looks at | refuses the run if | warns if | without it | cure |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{c.name}` | {c.looks_at} | {c.refuses or '–'} | {c.warns or '–'} | {c.why} "
        f"| {c.cure} |"
        for c in checks
    ]
    return "\n".join(lines)
