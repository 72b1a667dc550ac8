"""One yardstick in a process of its own: ``python -m … TASK FILE OPTIONS``.

Imports the task's module alone, so that its memory and its time are its own; the answer goes to a
file as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Run the task and write what it found."""
    task, answer, options = sys.argv[1:]
    module = importlib.import_module(f"royale_server.bench.work.{task}")
    figures = module.measure(**json.loads(options))
    Path(answer).write_text(json.dumps(figures), "utf-8")


if __name__ == "__main__":
    main()
