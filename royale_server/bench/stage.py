"""Starts the processes of a measurement and ends every one of them, whatever happens.

One torch and one BLAS thread each, pinned to no core. Scratch files lie in a folder of the stage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import royale_server
from royale_server.bench.plan import BenchError, Figures
from royale_server.tools.children import Child

POLL_S = 0.02
START_S = 120.0
"""Longest time from the start of a process to its first sign of life, on a busy machine."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
}


class Process(Child):
    """A child whose number is of interest."""

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid


class Stage:
    """Where one contender runs at a time.

    Args:
        folder: For scratch files.
        pythons: Interpreter of each peer that has one of its own.
    """

    def __init__(self, folder: Path, pythons: Mapping[str, str] | None = None) -> None:
        self._root = folder
        self._pythons = dict(pythons or {})
        self._children: list[Process] = []
        self._turn = 0
        self.folder = folder

    def __enter__(self) -> Stage:
        """Clear the stage for the next contender."""
        self._turn += 1
        self.folder = self._root / f"turn-{self._turn}"
        self.folder.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process, the latest first; a second Ctrl-C does not keep it from that."""
        interruption: KeyboardInterrupt | None = None
        while self._children:
            try:
                self._children[-1].kill()
                self._children.pop()
            except KeyboardInterrupt as again:
                interruption = again
        if interruption is not None:
            raise interruption

    def python_of(self, peer: str) -> str:
        """The interpreter that a peer is run with."""
        return self._pythons.get(peer, sys.executable)

    def start(
        self, words: Sequence[str], name: str, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a command; its output goes to a file of that name."""
        log = self.folder / f"{name}.log"
        child = Process(words, log, {**ONE_THREAD, **(environment or {})})
        self._children.append(child)
        return child

    def wait_for(
        self, is_there: Callable[[], bool], child: Child, what: str, limit_s: float = START_S
    ) -> None:
        """Wait for something that a process brings about.

        Raises:
            BenchError: If it ends before, or takes too long.
        """
        deadline = time.monotonic() + limit_s
        while not is_there():
            if child.code is not None:
                raise failed(child, f"ended with exit code {child.code} before {what}")
            if time.monotonic() > deadline:
                raise failed(child, f"no {what} within {limit_s:g} s")
            time.sleep(POLL_S)

    def work(self, task: str, options: Mapping[str, Any], peer: str | None = None) -> Figures:
        """Run one yardstick in a fresh process.

        Args:
            task: Module of ``royale_server.bench.work``.
            options: Arguments of its function ``measure``.
            peer: Whose interpreter to use.

        Raises:
            BenchError: If it fails or takes far too long.
        """
        answer = self.folder / f"{task}.json"
        python = sys.executable if peer is None else self.python_of(peer)
        words = [python, "-m", "royale_server.bench.worker", task, str(answer), json.dumps(options)]
        # Elsewhere our packages are found by a folder that holds nothing else.
        path = None if python == sys.executable else {"PYTHONPATH": str(self._own_packages())}
        child = self.start(words, task, path)
        limit_s = START_S + 3 * float(options.get("seconds", 0.0))
        if not child.wait(limit_s):
            raise failed(child, f"did not end within {limit_s:g} s")
        if child.code != 0:
            raise failed(child, f"ended with exit code {child.code}")
        figures: Figures = json.loads(answer.read_text("utf-8"))
        return figures

    def _own_packages(self) -> Path:
        ours = Path(next(iter(royale_server.__path__))).parent
        folder = self.folder / "packages"
        folder.mkdir(exist_ok=True)
        for package in ("royale_server", "royale_client"):
            link = folder / package
            if not link.is_symlink():
                os.symlink(ours / package, link)
        return folder


def failed(child: Child, what: str) -> BenchError:
    """Describe a process that failed, with its last lines."""
    lines = "".join(f"\n  | {line}" for line in child.tail)
    return BenchError(f"{' '.join(child.words[:6])} …: {what}{lines}")
