"""How fast candidate trunks of the arena policy are; ``python -m tests.benchmarks.arena_trunks``.

One core, made-up observations of the arena's shape. Acting is everything between observations and
actions at 256 rows, sampling included; keeping adds the critic and the log-probabilities, which a
training client waits for too. Learning is one forward and one backward pass of actor and critic at
512 rows, losses included. Each number is the median of several runs; candidates take turns, so that
a busy machine is unfair to none.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import product

import numpy as np
import torch

from algorithms.noise import Noise
from algorithms.policies.arena import ArenaPolicy
from algorithms.policies.config import ArenaPolicyConfig
from algorithms.spaces import Spaces
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec

PLANES, WIDTH = 18, 195
ACT_ROWS, LEARN_ROWS = 256, 512
SPACES = Spaces(
    observation=DictSpec(
        (
            ("planes", BoxSpec(0, 255, (PLANES, 20, 12), "uint8")),
            ("vector", BoxSpec(-1, 1, (WIDTH,), "float32")),
        )
    ),
    action=DiscreteSpec(961),
    masks=True,
)


class Candidate:
    """One policy and what it is asked."""

    def __init__(self, channels: int, blocks: int, stride: int) -> None:
        torch.manual_seed(0)
        config = ArenaPolicyConfig(channels=channels, blocks=blocks, stride=stride)
        self.name = f"{channels} channels, {blocks} blocks, stride {stride}"
        self.policy = ArenaPolicy(config, SPACES)
        self.act_times: list[float] = []
        self.keep_times: list[float] = []
        self.learn_times: list[float] = []

    def measure(self) -> None:
        """Time every kind of work once."""
        observations, masks = observe(ACT_ROWS)
        noise = Noise(*(np.arange(ACT_ROWS, dtype=np.uint64) for _ in range(3)))
        self.act_times.append(timed(lambda: self.policy.act(observations, masks, noise)))
        self.keep_times.append(
            timed(lambda: self.policy.act(observations, masks, noise).complete())
        )
        observations, masks = observe(LEARN_ROWS)
        tensors, mask = self.policy.prepare(observations), torch.from_numpy(masks)
        self.learn_times.append(timed(lambda: self.learn(tensors, mask)))

    def learn(self, tensors: tuple[torch.Tensor, ...], mask: torch.Tensor) -> None:
        """One forward and one backward pass."""
        actions = torch.zeros(LEARN_ROWS, dtype=torch.int64)
        now = self.policy.evaluate_actions(tensors, mask, actions)
        (now.log_prob + 0.01 * now.entropy + now.values.square()).mean().backward()

    def row(self) -> str:
        """One line of the table."""
        parameters = sum(p.numel() for p in self.policy.parameters())
        rates = [
            f"{rows / statistics.median(times):,.0f}"
            for rows, times in (
                (ACT_ROWS, self.act_times),
                (ACT_ROWS, self.keep_times),
                (LEARN_ROWS, self.learn_times),
            )
        ]
        return f"| {self.name} | {parameters:,} | {' | '.join(rates)} |"


def observe(rows: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Observations and masks that nobody played: mostly empty tiles, a third of them legal."""
    generator = np.random.default_rng(rows)
    planes = generator.integers(0, 30, (rows, PLANES, 20, 12), np.uint8)
    planes *= generator.random(planes.shape) < 0.05
    vector = generator.random((rows, WIDTH), np.float32)
    masks = generator.random((rows, 961)) < 0.35
    masks[:, 0] = True
    return (planes, vector), masks


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of one call: other programs of a busy machine count little."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--channels", type=int, nargs="+", default=[8, 16, 24])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--strides", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sizes = product(given.channels, given.blocks, given.strides)
    candidates = [Candidate(*size) for size in sizes]
    for repeat in range(given.repeats + 1):
        for candidate in candidates:
            candidate.measure()
            if repeat == 0:  # the first time finds memory and chooses kernels
                candidate.act_times.clear()
                candidate.keep_times.clear()
                candidate.learn_times.clear()
    print("| trunk | parameters | acting, decisions/s | acting and keeping | learning, frames/s |")
    print("| --- | --- | --- | --- | --- |")
    for candidate in candidates:
        print(candidate.row())


if __name__ == "__main__":
    main()
