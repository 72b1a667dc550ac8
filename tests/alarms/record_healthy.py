"""Makes ``healthy.json`` of recorded runs: what alarms read of every row, nothing else.

The runs it was made of, each with a client of its own::

    royale-server mlp-policy default ppo classic --algo.frames-per-iteration 512 --seed 1 \
        --algo.stop-at-return none --until-timesteps 122880
    royale-env-client gym --env-id CartPole-v1 --num-envs 8

    royale-server arena-policy default ppo arena --algo.frames-per-iteration 1024 --seed 1 \
        --until-timesteps 225280
    royale-env-client arena --battles 16

    python -m tests.alarms.record_healthy cartpole=RUN arena=RUN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.keeper import ITERATION
from royale_server.run.records import read_records

FILE = Path(__file__).parent / "healthy.json"
DIGITS = 5


def main(words: list[str]) -> None:
    """Write the file."""
    runs = {name: _columns(Path(run)) for name, _, run in (word.partition("=") for word in words)}
    FILE.write_text(json.dumps(runs, separators=(",", ":")) + "\n", "utf-8")


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a recorded run; a key that was absent from a row is absent again."""
    count = len(columns[ITERATION])
    return [
        {key: column[i] for key, column in columns.items() if column[i] is not None}
        for i in range(count)
    ]


def _columns(run: Path) -> dict[str, list[Any]]:
    rows, _ = read_records(run / "metrics.jsonl")
    read = {
        key for alarm in BUILT_IN_ALARMS for key in (*alarm.when.keys, *alarm.when.optional_keys)
    }
    kept = sorted({ITERATION} | {key for key in read if any(key in row for row in rows)})
    return {key: [_rounded(row.get(key)) for row in rows] for key in kept}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1:])
