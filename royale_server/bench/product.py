"""The product as a contender: a server and its clients, as processes that a person would start.

Everything is read from the rows of ``metrics.jsonl`` that fall into the window, and from what the
kernel says of the server's process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from royale_server.bench import memory
from royale_server.bench.plan import BenchError, Figures
from royale_server.bench.stage import START_S, Process, Stage
from royale_server.run.records import read_records

WARM_UP_S = 2.0
FEWEST_ROWS = 4
"""In a window: the first one only says when the second began."""
MOST_EXTRA_S = 60.0
FOREVER = 10**15
"""Frames that no measurement reaches."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A server with ``clients`` clients of ``envs`` environments each."""

    name: str
    clients: int
    """Client commands; 0 runs the environments inside the server (``--inline``)."""
    envs: int
    """Environments of each client process."""
    flags: tuple[str, ...] = ()
    """Of the server, beside those that say where things lie."""
    pair: tuple[str, str, str, str] = ("mlp-policy", "default", "ppo", "default")
    client: tuple[str, ...] = ("gym", "--env-id", "CartPole-v1")
    """Words of the client command, without its size and its server."""
    procs: int = 1
    """Processes of each client command, with a connection each."""
    frame_bytes: int = 0
    """Bytes of one observation, for a figure in GB/s."""

    @property
    def peer(self) -> None:
        """It is no peer."""

    def measure(self, stage: Stage, seconds: float) -> Figures:
        """Run it, let it warm up, and read the rows of a window; see `Contender.measure`."""
        started = time.time()
        server = self.start(stage)
        rows = rows_of(stage.folder)
        stage.wait_for(lambda: bool(rows.read()), server, "its first row", START_S)
        first_row_s = rows.read()[0]["wall"] - started
        sleep_beside(server, WARM_UP_S)
        opened, cpu_before = time.time(), memory.cpu_s(server.pid)
        sleep_beside(server, seconds)
        deadline = time.monotonic() + MOST_EXTRA_S
        while len(found := rows.since(opened)) < FEWEST_ROWS:
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: {len(found)} rows in {seconds + MOST_EXTRA_S:g} s")
            sleep_beside(server, 0.25)
        cpu, elapsed = memory.cpu_s(server.pid) - cpu_before, time.time() - opened
        return {
            **window(found),
            "server_cpu_share": cpu / elapsed,
            "server_cpu_us_per_frame": 1e6 * cpu / (elapsed * window(found)["frames_per_s"]),
            "server_pss_mib": memory.pss_mib(server.pid),
            "first_row_s": first_row_s,
            "gb_per_s": window(found)["collect_per_s"] * self.frame_bytes / 1e9,
        }

    def start(self, stage: Stage, more_flags: Sequence[str] = ()) -> Process:
        """Start the server and its clients; return the server."""
        words = [sys.executable, "-m", "royale_server", *self.pair]
        words += ["--checkpoint-base-dir", str(stage.folder / "runs"), "--device", "cpu"]
        words += ["--algo.total-timesteps", str(FOREVER), *self.flags, *more_flags]
        if not self.clients:
            words += ["--inline", "CartPole-v1", "--inline-num-envs", str(self.envs)]
            return stage.start(words, "server")
        file = stage.folder / "address"
        words += ["--port", "0", "--address-file", str(file)]
        words += ["--min-clients", str(self.clients * self.procs)]
        server = stage.start(words, "server")
        stage.wait_for(lambda: bool(_text(file)), server, "it listened")
        self.start_clients(stage, f"ws://{_text(file)}")
        return server

    def start_clients(self, stage: Stage, url: str) -> None:
        """Start the client commands."""
        for number in range(self.clients):
            stage.start(self._client_words(number, url), f"client-{number}")

    def _client_words(self, number: int, url: str) -> list[str]:
        words = [sys.executable, "-m", "royale_client", *self.client]
        words += ["--num-envs", str(self.envs), "--server-url", url]
        words += ["--client-name", f"client-{number}"]
        return words if self.procs == 1 else [*words, "--num-procs", str(self.procs)]


class Rows:
    """The rows of a run, read as they come.

    Args:
        folder: Where the run's directory lies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> list[dict[str, Any]]:
        """All rows so far."""
        file = next(self._folder.glob("*/*/*/metrics.jsonl"), None)
        return [] if file is None else [r for r in read_records(file)[0] if "run/frames" in r]

    def since(self, wall: float) -> list[dict[str, Any]]:
        """The rows written after a moment."""
        return [row for row in self.read() if row["wall"] > wall]


def rows_of(folder: Path) -> Rows:
    """The rows of the only run of a stage."""
    return Rows(folder / "runs")


def window(rows: Sequence[Row]) -> Figures:
    """Rates over the rows after the first, whose end is where the second begins.

    Args:
        rows: At least two, in order.

    Returns:
        ``collect_per_s``: frames by the time spent collecting. ``frames_per_s``: frames by the
        time on the wall, learning and everything else included. Shares of the time.
    """
    counted = rows[1:]
    frames = sum(row["run/frames"] for row in counted)
    collect_s = sum(row["time/collection"] for row in counted)
    wall_s = rows[-1]["wall"] - rows[0]["wall"]
    return {
        "collect_per_s": frames / collect_s,
        "frames_per_s": frames / wall_s,
        "iterations": len(counted),
        "rows_per_batch": sum(row["throughput/rows_per_batch"] for row in counted) / len(counted),
        "infer_share_of_collecting": sum(row["time/inference"] for row in counted) / collect_s,
        "learn_share": sum(row["time/update"] for row in counted) / wall_s,
    }


def sleep_beside(child: Process, seconds: float) -> None:
    """Wait while a process works, and notice if it ends.

    Raises:
        BenchError: If it ends.
    """
    if child.wait(seconds):
        lines = "".join(f"\n  | {line}" for line in child.tail)
        raise BenchError(f"the server ended with exit code {child.code} while measured{lines}")


def _text(file: Path) -> str:
    return file.read_text("utf-8").strip() if file.exists() else ""
