"""A B A B …: every contender of a bench once a round, round after round.

What changes on the machine meanwhile hits all of them alike; that is what makes ratios trustworthy
where single figures are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from royale_server.bench.plan import Bench, Contender, Figures
from royale_server.bench.stage import Stage

Samples = dict[str, list[Figures]]
"""What each contender of a bench measured, round by round, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A bench that was carried out."""

    bench: Bench
    samples: Samples
    left_out: tuple[str, ...] = ()
    """Contenders that could not take part, with the reason."""
    problem: str | None = None
    """Why it could not be carried out."""
    duration_s: float = 0.0


def measure(
    bench: Bench,
    contenders: Sequence[Contender],
    stage: Stage,
    *,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> Samples:
    """Carry a bench out.

    Args:
        bench: What is compared.
        contenders: Those of its contenders that take part.
        stage: Starts their processes; nothing of one is left when the next begins.
        rounds: How often each of them runs.
        seconds: How long each of them is measured each time.
        say: Shows a line of progress.

    Raises:
        BenchError: If one of them fails.
    """
    samples: Samples = {contender.name: [] for contender in contenders}
    for number in range(1, rounds + 1):
        for contender in contenders:
            started = time.monotonic()
            with stage:
                figures = contender.measure(stage, seconds)
            samples[contender.name].append(figures)
            shown = ", ".join(
                f"{name} {figures[name]:,.4g}" for name in bench.shown if name in figures
            )
            took_s = time.monotonic() - started
            say(f"{bench.name} {number}/{rounds}: {contender.name}: {shown} ({took_s:.0f} s)")
    return samples
