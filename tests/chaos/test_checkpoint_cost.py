"""A checkpoint of a large model costs the run one copy of it, and nobody's connection."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.benchmarks.checkpoint import (
    measure_copies,
    measure_pings,
    report_copies,
    report_pings,
)
from tests.system.processes import Processes

COPIES_LIMIT = 1.5
PING_LIMIT_S = 0.1

pytestmark = pytest.mark.chaos


def test_a_save_keeps_the_model_thread_for_one_copy_of_its_tensors(tmp_path: Path, capsys):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cost = measure_copies(tmp_path)
    torch.set_num_threads(threads)
    with capsys.disabled():
        print(f"\n{report_copies(cost)}")
    assert cost.num_weights >= 50e6
    assert cost.num_bytes >= 3 * 4 * 50e6  # weights and two moments of each, float32
    assert cost.ratio <= COPIES_LIMIT


def test_pings_are_answered_while_a_large_checkpoint_is_written(processes: Processes, capsys):
    cost = measure_pings(processes)
    with capsys.disabled():
        print(f"\n{report_pings(cost)}")
    assert len(cost.writing_s) > 100
    writing, resting = (np.percentile(taken, 99) for taken in (cost.writing_s, cost.resting_s))
    # What a busy machine makes of a ping to a server at rest is not the checkpoint's doing.
    assert writing < PING_LIMIT_S + resting
