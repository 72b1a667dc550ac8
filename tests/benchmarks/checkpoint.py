"""What a checkpoint of a large model costs the run; ``python -m tests.benchmarks.checkpoint``.

Measures, for a policy of 50 million weights with the moments of Adam:

- how long the model thread is busy with a save, against one plain copy of the same tensors;
- how long the writer thread writes, hashes and flushes;
- how long a ping to a real server takes while it does so, against a server that does nothing.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from checkpoints import CheckpointContents, save
from royale_server.model.engine import Engine, Snapshot
from royale_server.saver import NO_CELLS
from tests.algorithms.rollouts import collect, learn, make_policy
from tests.system.processes import PPO as PPO_PAIR
from tests.system.processes import Processes, Server, Zygote
from tests.system.test_pings import dial, join_as_onlooker, ping_s

WIDTH, DEPTH = 3536, 3
"""Two towers of two square layers of this width: 4 x 3536² = 50.0 million weights."""
ROUNDS = 7
NUM_SAVES = 3
"""Saves that a server is pinged through."""
PAUSE_S = 0.002
PATIENCE_S = 300.0
"""Making a large model takes its time on a small machine."""


@dataclass(frozen=True, slots=True)
class CopyCost:
    """Seconds of each round, the two measured in turn."""

    num_weights: int
    num_bytes: int
    copy_s: list[float]
    """One plain copy of every tensor of model and optimizer."""
    snapshot_s: list[float]
    """What the model thread does for a save."""
    write_s: list[float]
    """What the writer thread does for it."""

    @property
    def ratio(self) -> float:
        """How many copies a save costs the model thread: the median over rounds."""
        return float(np.median(np.array(self.snapshot_s) / np.array(self.copy_s)))


@dataclass(frozen=True, slots=True)
class PingCost:
    """Seconds of pings to a server that writes, and to one at rest, sent in turn."""

    writing_s: list[float]
    resting_s: list[float]


def make_engine() -> Engine:
    """Engine of a large model that has learnt once, so that Adam has moments of every weight."""
    policy = make_policy(hidden_sizes=(WIDTH,) * DEPTH)
    learner = PPO(PPOConfig(num_epochs=1, minibatch_size=16), policy, seed=0)
    storage, cells = collect(policy, num_slots=4, num_steps=4)
    learn(learner, storage, cells)
    return Engine(learner.policy, learner, storage)


def measure_copies(folder: Path, rounds: int = ROUNDS) -> CopyCost:
    """Measure copy, save and write, in turn.

    Args:
        folder: Where checkpoints are written; they are left there.
        rounds: How often. One more is not counted: the first touches memory for the first time.
    """
    engine = make_engine()
    state = engine.learner.state()
    tensors = [*state.model.values(), *state.optimizer.values()]
    cost = CopyCost(
        num_weights=sum(tensor.numel() for tensor in state.model.values()),
        num_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        copy_s=[],
        snapshot_s=[],
        write_s=[],
    )
    for index in range(rounds + 1):
        # Each begins with the same memory free: pages that were never touched take longer.
        copied_s = timed(lambda: [tensor.clone() for tensor in tensors])
        kept: list[Snapshot] = []
        snapshot_s = timed(lambda kept=kept: kept.append(engine.snapshot(NO_CELLS)))
        write_s = timed(lambda i=index, kept=kept: write(folder, i, kept.pop()))
        if index:
            cost.copy_s.append(copied_s)
            cost.snapshot_s.append(snapshot_s)
            cost.write_s.append(write_s)
    return cost


def timed(work: Callable[[], object]) -> float:
    """Do something with the garbage collector at rest; return its seconds."""
    gc.collect()
    started = time.perf_counter()
    result = work()
    taken_s = time.perf_counter() - started
    del result
    return taken_s


def write(folder: Path, step: int, snapshot: Snapshot) -> None:
    """Write a checkpoint of the learner, as the writer thread does."""
    save(
        folder,
        CheckpointContents(
            step=step,
            tensors={"model": snapshot.state.model, "optimizer": snapshot.state.optimizer},
            documents={"state": snapshot.state.counters, "rng": snapshot.generators},
        ),
    )


def measure_pings(processes: Processes, num_saves: int = NUM_SAVES) -> PingCost:
    """Ping a server while its writer writes checkpoints of a large model, and one at rest."""
    server = processes.server(
        *("--policy.hidden-sizes", *[WIDTH] * DEPTH, "--algo.frames-per-iteration", 16),
        *("--algo.num-epochs", 1, "--algo.minibatch-size", 16, "--save-every", 1),
        *("--keep-last", 2, "--algo.total-timesteps", 10**9, "--exp-name", "large"),
        pair=PPO_PAIR,
    )
    resting = processes.server(runs=processes.directory / "resting")
    processes.client(server, "dummy-v1", "--num-envs", 4)
    cost = PingCost(writing_s=[], resting_s=[])
    server.wait_for("joined from", timeout_s=PATIENCE_S)
    with dial(server) as writing, dial(resting) as idle:
        for connection in (writing, idle):
            join_as_onlooker(connection)
        server.wait_for("iteration 1:", timeout_s=PATIENCE_S)
        while server.program.count("saved the checkpoint") < num_saves:
            if is_writing(server):
                cost.writing_s.append(ping_s(writing))
                cost.resting_s.append(ping_s(idle))
            time.sleep(PAUSE_S)
    return cost


def is_writing(server: Server) -> bool:
    """Whether files of a checkpoint are being written right now."""
    return any(server.run.glob(".tmp-*/model.safetensors"))


def report_copies(cost: CopyCost) -> str:
    """Say what was measured."""
    return (
        f"{cost.num_weights / 1e6:.1f} million weights, {cost.num_bytes / 1e6:.0f} MB with the "
        f"moments of Adam\n"
        f"one plain copy         {milliseconds(cost.copy_s)}\n"
        f"model thread, a save   {milliseconds(cost.snapshot_s)}\n"
        f"save / copy            median {cost.ratio:.2f} (bar 1.5)\n"
        f"writer thread, a save  {milliseconds(cost.write_s)}"
    )


def report_pings(cost: PingCost) -> str:
    """Say what was measured."""
    return (
        f"pings while it writes  {latencies(cost.writing_s)} (bar: p99 below 100 ms)\n"
        f"pings to one at rest   {latencies(cost.resting_s)}"
    )


def milliseconds(taken_s: Sequence[float]) -> str:
    low, middle, high = np.percentile(np.array(taken_s) * 1e3, [0, 50, 100])
    return f"median {middle:.0f} ms ({low:.0f} to {high:.0f}, {len(taken_s)} times)"


def latencies(taken_s: Sequence[float]) -> str:
    middle, late, latest = np.percentile(np.array(taken_s) * 1e3, [50, 99, 100])
    return f"p50 {middle:.1f}, p99 {late:.1f}, max {latest:.1f} ms ({len(taken_s)} pings)"


def main() -> int:
    """Measure and print."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(report_copies(measure_copies(Path(folder))), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        zygote = Zygote()
        processes = Processes(Path(folder), zygote)
        try:
            print(report_pings(measure_pings(processes)))
        finally:
            for program in processes.all:
                program.end()
            zygote.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
