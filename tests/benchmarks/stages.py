"""Where the time of a round goes in a live server; ``python -m tests.benchmarks.stages``.

Starts a server whose stages carry stopwatches, and its clients, and prints for each stage the
median time and the median processor time of a call, and its mean share of a round. The watches
take about two microseconds a call themselves; do not add up what contains each other.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from royale_server.bench.yardstick import server_flags

REPORT = "ROYALE_STAGES_REPORT"
STAGES = (
    ("message: all", "royale_server.endpoint.hub", "Hub", "received"),
    ("message: read and check", "royale_server.endpoint.session", "ServerSession", "receive"),
    ("message: account and queue", "royale_server.endpoint.hub", "Hub", "_step"),
    ("scheduler: request", "royale_server.scheduler", "Scheduler", "request"),
    ("scheduler: advance", "royale_server.scheduler", "Scheduler", "advance"),
    ("inference: all", "royale_server.model.engine", "Engine", "infer"),
    ("inference: policy", "algorithms.policies.mlp", "MLPPolicy", "act"),
    ("settle what was inferred", "royale_server.model.engine", "Engine", "settle"),
    ("episodes: rows", "royale_server.endpoint.episodes", "EpisodeBook", "ended"),
    ("episodes: written", "royale_server.run.output", "RunOutput", "write_lines"),
    ("answers: all", "royale_server.endpoint.hub", "Hub", "_inferred"),
    ("answers: write one", "royale_server.endpoint.session", "ServerSession", "action"),
    ("answers: send one", "royale_server.endpoint.websocket_server", "SocketConnection", "send"),
)
WARM_UP_CALLS = 200
COLUMNS = ("calls_a_round", "wall_us", "cpu_us", "wall_us_a_round", "cpu_us_a_round")


class Stopwatch:
    """Times every call of one method."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def attached(self) -> Callable[..., Any]:
        """The method with the watch on it."""
        method, walls, cpus = self.method, self.walls, self.cpus
        clock, thread_clock = time.perf_counter, time.thread_time

        def timed(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = clock(), thread_clock()
            try:
                return method(*args, **kwargs)
            finally:
                cpus.append(thread_clock() - cpu)
                walls.append(clock() - wall)

        return timed


def serve(words: list[str]) -> int:
    """Be a server with stopwatches; write what they say when it ends."""
    from importlib import import_module

    watches: dict[str, Stopwatch] = {}
    for stage, module, owner, name in STAGES:
        kind = getattr(import_module(module), owner)
        watches[stage] = Stopwatch(getattr(kind, name))
        setattr(kind, name, watches[stage].attached())
    atexit.register(report, watches)
    from royale_server.cli import main

    return main(words)


def report(watches: dict[str, Stopwatch]) -> None:
    """Write medians of the calls after warm-up."""
    kept = {s: (w.walls[WARM_UP_CALLS:], w.cpus[WARM_UP_CALLS:]) for s, w in watches.items()}
    batches = max(1, len(kept["inference: all"][0]))
    rows = {
        stage: {
            "calls_a_round": len(walls) / batches,
            "wall_us": statistics.median(walls) * 1e6,
            "cpu_us": statistics.median(cpus) * 1e6,
            "wall_us_a_round": sum(walls) / batches * 1e6,
            "cpu_us_a_round": sum(cpus) / batches * 1e6,
        }
        for stage, (walls, cpus) in kept.items()
        if walls
    }
    Path(os.environ[REPORT]).write_text(json.dumps(rows), "utf-8")


def measure(
    folder: Path, *, clients: int, num_envs: int, iterations: int, vectorization: str
) -> dict[str, Any]:
    """Run it and return the report, with the median rate of collecting.

    The policy stays as random as it begins, so that episodes end as often as they can.
    """
    frames = 128 * clients * num_envs
    file, address = folder / "report.json", folder / "address"
    words = [*("mlp-policy", "default", "ppo", "default"), "--port", "0"]
    words += ["--address-file", str(address), "--min-clients", str(clients)]
    words += server_flags(clients * num_envs, learns=False)
    words += ["--algo.total-timesteps", str(frames * iterations), "--exp-name", "stages"]
    words += ["--checkpoint-base-dir", str(folder / "runs"), "--log-level", "warning"]
    run = [sys.executable, "-m", "tests.benchmarks.stages", "--serve", *words]
    with open(folder / "server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            run, env={**os.environ, REPORT: str(file)}, stdout=log, stderr=log
        )
        try:
            while not address.exists():
                if server.poll() is not None:
                    raise SystemExit((folder / "server.log").read_text("utf-8"))
                time.sleep(0.1)
            url = f"ws://{address.read_text('utf-8').strip()}"
            for number in range(clients):
                client = [sys.executable, "-m", "royale_client", "gym", "--env-id", "CartPole-v1"]
                client += ["--num-envs", str(num_envs), "--server-url", url]
                client += ["--client-name", f"client-{number}", "--vectorization", vectorization]
                subprocess.Popen(client, stdout=log, stderr=log)
            server.wait()
        finally:
            server.kill()
    lines = next(folder.glob("runs/*/*/*/metrics.jsonl")).read_text("utf-8").splitlines()
    rates = [json.loads(line)["throughput/collect_frames_per_s"] for line in lines[2:]]
    stages = json.loads(file.read_text("utf-8"))
    return {"collect_per_s": statistics.median(rates), "stages": stages}


def main() -> None:
    """Print a table."""
    if sys.argv[1:2] == ["--serve"]:
        raise SystemExit(serve(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--vectorization", default="sync", help="sync or vector_entry_point")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="royale-stages-") as folder:
        result = measure(Path(folder), **vars(arguments))
    rate = result["collect_per_s"]
    rows = arguments.clients * arguments.num_envs
    print(
        f"{arguments.clients} clients x {arguments.num_envs}: {rate:,.0f} frames/s,"
        f" a round of {rows} frames {1e6 * rows / rate:,.0f} us"
    )
    print(f"{'':28} {'calls':>9} {'of a call, median':>18} {'of a round, mean':>18}")
    print(f"{'stage':28} {'a round':>9} {'us':>9} {'cpu us':>8} {'us':>9} {'cpu us':>8}")
    for stage, row in result["stages"].items():
        calls, *times = (row[name] for name in COLUMNS)
        wall, cpu, round_wall, round_cpu = times
        print(f"{stage:28} {calls:9.2f} {wall:9.0f} {cpu:8.0f} {round_wall:9.0f} {round_cpu:8.0f}")


if __name__ == "__main__":
    main()
