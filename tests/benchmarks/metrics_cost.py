"""What rows, alarms and checks cost at a given rate; ``python -m tests.benchmarks.metrics_cost``.

Plays the part of a server that collects frames at that rate, batch by batch, without environments
and without a network: everything that counts, sums up, checks and writes is the product's own, on
the threads it has there. Processor time by thread clocks; the sum of all threads is compared with
the time that an iteration takes at that rate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from algorithms.spaces import ArraySpec
from algorithms.storage import RolloutStorage
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.messages import Hello
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves
from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.engine import AlarmSet
from royale_server.alarms.keeper import AlarmKeeper
from royale_server.alarms.live import DiskState, LiveMeter
from royale_server.iteration_clock import BOOTSTRAP, CHECKS, UPDATE
from royale_server.model.engine import Inferred, Learned
from royale_server.model.invariants import Expected, check_batch
from royale_server.monitoring import console_text
from royale_server.recorder import ActionRecorder
from royale_server.run.judge import AlarmJudge, DiskGauge
from royale_server.run.layout import RunLayout
from royale_server.run.output import RunOutput
from royale_server.run.writer import Writer
from royale_server.run_book import RunBook
from royale_server.scheduler import Discard

OBSERVATION = BoxSpec(-1.0, 1.0, (8,), "float32")
ACTION = DiscreteSpec(64)
LEARNER_KEYS = 30
"""Numbers of an algorithm in a row; PPO has about as many."""
QUIET = DiskState(busy_s=0.0, unwritten=0, dropped=0, tracker_lost=0, tracker_queued=0)


class Costs:
    """Processor time by what it was spent on, one list an iteration."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def of(self, what: str) -> Any:
        """Add what the block takes of its thread."""
        started = time.thread_time()
        yield
        self.seconds.setdefault(what, []).append(time.thread_time() - started)


def timed(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Put a watch on a method that another thread calls."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        started = time.thread_time()
        try:
            return method(*args, **kwargs)
        finally:
            spent.append(time.thread_time() - started)

    return watched


def make_storage(frames: int, slots: int) -> tuple[RolloutStorage, Any]:
    """Fill a storage with frames of ``slots`` slots, masks and all."""
    scalar = ArraySpec((), np.dtype(np.float32))
    state = {"action": ArraySpec((), np.dtype(np.int64)), "log_prob": scalar, "value": scalar}
    storage = RolloutStorage(frames, leaves(OBSERVATION), state, ACTION.n)
    cells = np.arange(frames)
    storage.assign(cells, cells % slots, cells // slots)
    storage.write_masks(cells, np.ones((frames, ACTION.n), np.bool_))
    return storage, cells


def make_hub(slots: int, group_size: int) -> Any:
    """What a row reads of the clients."""
    groups = [SimpleNamespace(waiting=None) for _ in range(slots // group_size)]
    ledger = SimpleNamespace(
        given_up=dict.fromkeys(Discard, 0),
        discarded_total=0,
        no_state_total=0,
        others_total=0,
        conservation_error=0,
        env_steps_total=0,
    )
    scheduler = SimpleNamespace(
        ledger=ledger,
        dispatcher=SimpleNamespace(is_ordered=False),
        train_groups=lambda: iter(groups),
        num_stragglers=0,
    )
    return SimpleNamespace(
        scheduler=scheduler,
        num_members=len(groups),
        clients_missing=0,
        clients_lost=0,
        step_bytes=0,
        nonfinite_frames=SimpleNamespace(total=lambda: 0),
    )


def declared_numbers(count: int) -> tuple[EpisodeMetric, ...]:
    """What an environment declares: means and ratios in turn."""
    kinds = ("mean", "ratio")
    return tuple(
        EpisodeMetric(f"number_{i}", "1", "every episode", kinds[i % 2]) for i in range(count)
    )


def episode_rows(
    count: int, length: int, declared: tuple[EpisodeMetric, ...]
) -> list[dict[str, Any]]:
    """Records as the endpoint makes them."""
    numbers = {
        f"metrics/{m.name}": 0.5 if m.aggregation == "mean" else [1.0, 2.0] for m in declared
    }
    return [
        {
            "client": "one",
            "return": float(i),
            "length": length,
            "time_s": 1.0,
            "slot": 0,
            "terminated": True,
            "first_policy_version": 1,
            "last_policy_version": 1,
            "trained_frames": length,
            **numbers,
        }
        for i in range(count)
    ]


def measure(folder: Path, arguments: argparse.Namespace) -> tuple[dict[str, float], float]:
    """Return the median processor time of each part, and the time an iteration takes, in s."""
    frames, rows = arguments.frames, arguments.rows
    iteration_s = frames / arguments.rate
    costs, on_writer = Costs(), list[float]()
    for name in ("write_metrics", "write_lines"):
        setattr(RunOutput, name, timed(getattr(RunOutput, name), on_writer))
    layout = RunLayout(base=folder, algorithm="ppo", policy="mlp-policy", name="load")
    layout.directory.mkdir(parents=True)
    gauge = DiskGauge(layout.directory)
    alarms = AlarmSet(BUILT_IN_ALARMS, {**AlarmConfig().limits(), "save_every": 10})
    keeper = AlarmKeeper(alarms, attempt=1, machine=gauge.numbers)
    on_alarms = list[float]()
    keeper.written = timed(keeper.written, on_alarms)  # type: ignore[method-assign]
    writer = Writer(
        layout,
        attempt=1,
        on_failure=lambda failure: sys.exit(str(failure.error)),
        judge=AlarmJudge(keeper, gauge),
    )
    writer.start()
    recorder, meter = ActionRecorder(), LiveMeter(60.0, time.monotonic())
    asked = {key: 1.0 for alarm in BUILT_IN_ALARMS for key in alarm.keys}
    storage, cells = make_storage(frames, rows)
    hub = make_hub(rows, arguments.group)
    book = RunBook(attempt=1, clock=time.monotonic, thread_clock=time.thread_time)
    declared = declared_numbers(arguments.numbers)
    hello = Hello(
        client_name="one",
        process_id="p",
        env_id="Load-v0",
        observation_space=OBSERVATION,
        action_space=ACTION,
        groups=(rows,),
        episode_metrics=declared,
    )
    book.joined("one", hello)
    items = [
        SimpleNamespace(request=SimpleNamespace(received_at=time.monotonic()))
        for _ in range(rows // arguments.group)
    ]
    batch: Any = SimpleNamespace(
        items=items,
        slots=np.arange(rows),
        episodes=np.zeros(rows, np.int64),
        steps=np.zeros(rows, np.int64),
        evaluation=False,
    )
    actions = ((np.zeros(arguments.group, np.int64),),) * len(items)
    ended = frames // arguments.length
    expected = Expected(version=0, at_least=frames, num_slots=rows, may_have_gaps=False)
    for iteration in range(arguments.iterations + 1):
        records = episode_rows(ended, arguments.length, declared)
        with costs.of("counting batches"):
            for _ in range(frames // rows):
                book.inferred(Inferred(batch, (), 0, 0.0, None))
        with costs.of("recording actions"):
            for _ in range(frames // rows):
                meter.moved(time.monotonic())
                recorder.inferred(Inferred(batch, actions, 0, 0.0, None))
            recorder.ended(records, 0)
        with costs.of("asking alarms of samples"):  # every 5 s, so more often than it happens
            keeper.sampled(meter.sample(time.monotonic(), QUIET))
        with costs.of("counting episodes"):
            # One message a batch: as many calls as batches in which something ended.
            for record in records:
                writer.episodes([record])
                book.episodes_ended([record], request=iteration, first_slot=0)
        with costs.of("checking the batch"):
            check_batch(storage, cells, ACTION, 0, expected)
        learned = Learned(
            metrics=asked | {f"ppo/number_{i}": 0.123456789 for i in range(LEARNER_KEYS)},
            policy_version=iteration,
            global_step=frames * (iteration + 1),
            frames_wanted=frames,
            finished=None,
            duration_s=0.1,
            parts_s={BOOTSTRAP: 0.0, CHECKS: 0.0, UPDATE: 0.1},
            storage_s=0.0,
            memory_mb={},
        )
        with costs.of("making the row"):
            closed = book.close(frames, hub)
            row = book.row(
                closed, learned, hub=hub, writer=writer.health(), capacity=frames, saves=True
            )
            writer.metrics(row, learned.global_step)
        with costs.of("showing it"):
            console_text.iteration_lines(row)
        writer.flush()
        costs.seconds.setdefault("asking alarms of the row", []).append(sum(on_alarms))
        costs.seconds.setdefault("writing", []).append(sum(on_writer) - sum(on_alarms))
        on_writer.clear()
        on_alarms.clear()
    writer.close()
    medians = {what: statistics.median(spent[1:]) for what, spent in costs.seconds.items()}
    return medians, iteration_s


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50_000, help="frames a second")
    parser.add_argument("--frames", type=int, default=32_768, help="of an iteration")
    parser.add_argument("--rows", type=int, default=256, help="of a batch, and slots")
    parser.add_argument("--group", type=int, default=64, help="slots of a group")
    parser.add_argument("--length", type=int, default=280, help="frames of an episode")
    parser.add_argument("--numbers", type=int, default=0, help="that each episode tells of")
    parser.add_argument("--iterations", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="royale-metrics-cost-") as folder:
        medians, iteration_s = measure(Path(folder), arguments)
    total_s = sum(medians.values())
    print(
        f"{arguments.frames:,} frames at {arguments.rate:,.0f}/s take {1e3 * iteration_s:.0f} ms, "
        f"{arguments.frames // arguments.length} episodes of {arguments.numbers} numbers each"
    )
    print(f"{'processor time of':24} {'ms':>8} {'of the iteration':>18}")
    for what, spent_s in [*medians.items(), ("all of it", total_s)]:
        print(f"{what:24} {1e3 * spent_s:8.2f} {spent_s / iteration_s:18.2%}")


if __name__ == "__main__":
    main()
