"""Makes ``healthy.json`` of recorded runs: what alarms read of every row, and which of them spoke.

The runs it was made of, the arena with two clients, as ``x.py train`` starts them, each with a
name of its own, and CartPole with one::

    royale-server arena-policy default ppo arena --torch-threads 2 --seed 1 --save-every 10 \
        --selfplay.mix mirror=0.2,pool=0.1,scripted=0.7 --algo.total-timesteps 100000000 \
        --algo.frames-per-iteration 2048 --until-timesteps 450000
    royale-env-client arena --battles 64 --bots random heuristic push

    royale-server mlp-policy default ppo classic --algo.frames-per-iteration 512 --seed 1 \
        --algo.stop-at-return none --until-timesteps 122880 --save-every 10
    royale-env-client gym --env-id CartPole-v1 --num-envs 8

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
    runs = {
        name: {"raised": _raised(Path(run)), "columns": _columns(Path(run))}
        for name, _, run in (word.partition("=") for word in words)
    }
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


def _raised(run: Path) -> list[str]:
    """Names of the alarms that spoke in the run, asked of rows or of samples."""
    file = run / "alarms.jsonl"
    records = read_records(file)[0] if file.exists() else []
    return sorted({record["alarm"] for record in records if record["kind"] == "raise"})


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1:])
