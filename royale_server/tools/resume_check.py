"""The check of ``royale verify-resume``: run A through, kill and resume run B, compare.

A goes first: its rows tell how many batches an iteration takes, and so where its middle is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from checkpoints import list_checkpoints
from royale_server import crash_points
from royale_server.monitoring.declarations import Dictionary, deterministic_keys
from royale_server.tools.comparing import (
    ATTEMPT,
    ITERATION,
    Difference,
    Row,
    differences,
    never_written,
)
from royale_server.tools.kill_plan import KillPlan
from royale_server.tools.verified_run import CheckFailedError, VerifiedRun

SPARE = 3
"""Iterations that a kill may come later than planned: a checkpoint is written while they go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is checked, and how."""

    words: tuple[str, ...]
    """Words and flags of both runs."""
    clients: tuple[str, ...]
    """Commands of clients."""
    keys: frozenset[str]
    """What must agree."""
    always: frozenset[str]
    """Those of them that every row has, by their declaration."""
    plan: KillPlan
    iterations: int
    """To be compared after the kill."""
    silence_s: float
    """Longest time without a new row, until a server listens, and until it ends."""
    folder: Path
    """Where runs and logs lie."""
    specs: Dictionary = field(default_factory=lambda: Dictionary(()))
    """Declarations: keys of families must agree where a row has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found."""

    differences: list[Difference]
    never_written: list[str]
    """Keys that every row should have and none has."""
    iterations: int
    """Compared in all."""
    after_kill: int
    """Of these, after the kill."""

    @property
    def is_same(self) -> bool:
        """Whether everything that was to be compared was, and is the same."""
        return not self.differences and not self.never_written


def carry_out(check: Check, say: Callable[[str], None]) -> Verdict:
    """Run both runs and compare them.

    Raises:
        CheckFailedError: If that was not possible.
    """
    new_run = partial(
        VerifiedRun,
        words=check.words,
        clients=check.clients,
        folder=check.folder,
        silence_s=check.silence_s,
        say=say,
    )
    with closing(new_run("a")) as a:
        a_rows = _go_through(a, check, say)
    last = max(a_rows)
    with closing(new_run("b")) as b:
        _kill(b, check, a_rows, say)
        killed_after = max(b.rows(), default=0)
        if not _has_checkpoint(b):
            raise CheckFailedError(
                f"b: was killed in iteration {killed_after + 1}, before its first checkpoint was "
                "on disk; write --kill-at with a larger count"
            )
        if killed_after + check.iterations > last:
            raise CheckFailedError(
                f"b: was killed in iteration {killed_after + 1}, later than expected, and a has "
                f"only {last}: try again, or write --kill-at with a smaller count"
            )
        _resume(b, killed_after, last, say)
        b_rows = b.rows()
    return judge(check, a_rows, b_rows, killed_after)


def judge(
    check: Check, a_rows: Mapping[int, Row], b_rows: Mapping[int, Row], killed_after: int
) -> Verdict:
    """Compare all rows of A with those of B.

    Args:
        check: What must agree.
        a_rows: Rows of A by iteration.
        b_rows: Rows of B by iteration.
        killed_after: Last iteration of B before it was killed.
    """
    last = max(a_rows)
    written = set[str]().union(*a_rows.values(), *b_rows.values())
    keys = check.keys | deterministic_keys(check.specs, written)
    return Verdict(
        differences=differences(a_rows, b_rows, keys, last_iteration=last),
        never_written=never_written([*a_rows.values(), *b_rows.values()], check.always),
        iterations=last,
        after_kill=last - killed_after,
    )


def _go_through(a: VerifiedRun, check: Check, say: Callable[[str], None]) -> Mapping[int, Row]:
    """Run A until everything that will be compared is there."""

    def goal() -> int | None:
        killed_in = check.plan.iteration(a.rows())
        return None if killed_in is None else killed_in + SPARE + check.iterations

    say("a: goes through")
    started = time.monotonic()
    a.start()
    a.wait_until(lambda: max(a.rows(), default=0) >= (goal() or max(a.rows(), default=0) + 1))
    a.stop()
    rows = a.rows()
    say(f"a: {max(rows)} iterations in {time.monotonic() - started:.0f} s")
    return rows


def _kill(
    b: VerifiedRun, check: Check, a_rows: Mapping[int, Row], say: Callable[[str], None]
) -> None:
    plan = check.plan
    if plan.by == "random":
        by = f"a random moment (--kill-seed {plan.seed})"
        say(f"b: is killed at {by}")
        b.start()
        b.wait_until(lambda: _has_checkpoint(b))
        time.sleep(plan.delay_s(a_rows))
        b.server.kill()
    else:
        by = plan.text(a_rows)
        say(f"b: is killed at {by}")
        b.start(environment={crash_points.VARIABLE: by})
        if plan.by == "stop":
            b.wait_until(lambda: max(b.rows(), default=0) >= plan.middle)
            b.server.terminate()
        last = max(a_rows)
        b.wait_until(lambda: max(b.rows(), default=0) > last, may_end=True)
    b.check_killed(by)


def _resume(b: VerifiedRun, killed_after: int, last: int, say: Callable[[str], None]) -> None:
    b.start(resume=True)
    b.wait_until(lambda: _has_resumed(b))
    first = next(row[ITERATION] for row in b.all_rows() if row[ATTEMPT] > 1)
    say(
        f"b: killed in iteration {killed_after + 1}, resumed from the checkpoint of iteration "
        f"{first - 1}"
    )
    b.wait_until(lambda: _has_resumed(b) and max(b.rows()) >= last, goal=last)
    b.stop()


def _has_checkpoint(run: VerifiedRun) -> bool:
    directory = run.directory
    return directory is not None and bool(list_checkpoints(directory)[0])


def _has_resumed(run: VerifiedRun) -> bool:
    return any(row[ATTEMPT] > 1 for row in run.all_rows())
