"""What rows, memory and clocks are turned into."""

import os

import numpy as np
import pytest

from royale_server.bench import memory
from royale_server.bench.long_run import SPAN, WARM_UP, durations, growth
from royale_server.bench.plan import BenchError
from royale_server.bench.product import rows_of, window
from royale_server.bench.work import arena, codec, scheduler_core
from royale_server.bench.work.timing import microseconds
from royale_server.bench.work.windows import Window


def row(wall, frames=100, collect_s=0.5):
    return {
        "wall": wall,
        "run/frames": frames,
        "time/collection": collect_s,
        "time/inference": 0.1,
        "time/update": 0.25,
        "throughput/rows_per_batch": 4.0,
    }


def test_a_window_counts_what_came_after_its_first_row():
    # Two rows of 100 frames in 2 s on the wall, 1 s of it collecting, half a second learning.
    figures = window([row(10.0, frames=9999), row(11.0), row(12.0)])
    assert figures["frames_per_s"] == 100.0
    assert figures["collect_per_s"] == 200.0
    assert figures["learn_share"] == 0.25
    assert figures["infer_share_of_collecting"] == pytest.approx(0.2)
    assert figures["iterations"] == 2


def test_rows_are_read_as_they_come(tmp_path):
    rows = rows_of(tmp_path)
    assert rows.read() == []
    file = tmp_path / "runs" / "ppo" / "mlp-policy" / "name" / "metrics.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"wall": 1.0, "run/frames": 5}\n{"wall": 2.0, "run/frames": 6}\n{"wall')
    assert [r["run/frames"] for r in rows.read()] == [5, 6]
    assert [r["run/frames"] for r in rows.since(1.0)] == [6]


def test_a_long_run_compares_its_ends():
    # 10 ms an iteration at first, 20 ms in the second half.
    steps = np.where(np.arange(1000) < 500, 0.010, 0.020)
    figures = durations([{"wall": wall} for wall in np.cumsum(steps)])
    assert figures["first_ms"] == pytest.approx(10.0)
    assert figures["last_ms"] == pytest.approx(20.0)
    assert figures["last_to_first"] == pytest.approx(2.0)


def test_growth_is_the_slope_after_warm_up():
    settled = WARM_UP + SPAN
    looks = [(n, 900.0 - n) for n in range(0, settled, 50)]  # not looked at
    looks += [(settled + n, 300.0 + 0.02 * n) for n in range(50, 500, 50)]
    assert growth(looks)["mib_per_100"] == pytest.approx(2.0)


def test_growth_needs_three_looks():
    with pytest.raises(BenchError, match="three times"):
        growth([(WARM_UP + SPAN + 1, 1.0), (WARM_UP + SPAN + 2, 1.0)])


def test_a_training_window_opens_after_warm_up_and_closes_after_its_time(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    window, closed = Window(seconds=10.0), []
    for at, total in ((1.0, 50), (3.0, 100), (8.0, 600), (13.0, 1100)):
        now = at
        closed.append(window.is_closed(total))
    assert closed == [False, False, False, True]
    assert window.rate == 100.0  # 1,000 in the 10 s from 3 to 13


def test_a_unit_of_work_is_timed_by_the_time_of_this_process(monkeypatch):
    now = 0.0

    def three_units():
        nonlocal now
        now += 0.006
        return 3

    monkeypatch.setattr("time.process_time", lambda: now)
    assert microseconds(three_units, seconds=1.0) == pytest.approx(2000.0)


@pytest.mark.skipif(not memory.is_known(), reason="the system does not tell")
def test_memory_and_processor_time_of_a_process_are_read():
    assert 1.0 < memory.pss_mib(os.getpid()) <= memory.rss_mib(os.getpid())
    assert memory.cpu_s(os.getpid()) > 0.0


def test_arena_sized_requests_travel_as_little_more_than_their_tensors():
    leaves = [("|u1", (18, 20, 12)), ("<f4", (96,))]
    figures = arena.measure(rows=128, leaves=leaves, mask_size=961, seconds=0)
    # 4,320 planes, 96 x 4 of the vector, 961 bits in 121 bytes.
    assert figures["tensor_bytes"] == 4320 + 384 + 121
    assert 1.0 < figures["wire_bytes"] / figures["tensor_bytes"] <= 1.05


def test_yardsticks_without_a_network_measure_something():
    figures = codec.measure(rows=2, leaves=[("<f4", (4,))], seconds=0.01)
    assert min(figures.values()) > 0.0
    assert scheduler_core.measure(clients=2, slots=3, seconds=0.01)["us_per_request"] > 0.0
