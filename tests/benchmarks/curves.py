"""Whether two runs learnt the same; ``python -m tests.benchmarks.curves RUN_DIR RUN_DIR``.

For an optimisation: run the same seeded deterministic command with the code of before and of
after, ten iterations or more, and compare the rows. Prints for each metric that is no time, rate or
count of the server the largest relative difference and the row of the first one. Ends with 1 if a
return or the length of an episode differs: rounding alone must not have changed an action.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OF_THE_MACHINE = ("time/", "throughput/", "server/")
OF_THE_RUN = frozenset({"seq", "step", "attempt", "wall", "run/attempt"})
OF_ACTIONS = ("env/",)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics rows of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def difference(one: object, other: object) -> float:
    """Relative difference of two numbers; infinite if one is missing."""
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return 0.0 if one == other else float("inf")
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def main() -> int:
    """Print a table."""
    one, other = (rows(Path(folder)) for folder in sys.argv[1:3])
    print(f"{len(one)} and {len(other)} rows")
    keys = sorted({key for row in one + other for key in row} - OF_THE_RUN)
    has_other_actions = len(one) != len(other)
    for key in keys:
        if key.startswith(OF_THE_MACHINE):
            continue
        found = [difference(a.get(key), b.get(key)) for a, b in zip(one, other, strict=False)]
        first = next((row for row, value in enumerate(found, 1) if value), None)
        has_other_actions |= key.startswith(OF_ACTIONS) and first is not None
        print(f"{key:28} {max(found):9.1e}" + (f"  from row {first} on" if first else ""))
    return int(has_other_actions)


if __name__ == "__main__":
    sys.exit(main())
