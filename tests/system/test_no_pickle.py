"""No file of a run holds a pickle: reading a run must never run what somebody put there."""

from __future__ import annotations

import importlib.util
import io
import pickle

import numpy as np
import pytest
import torch

from tests.system import records
from tests.system.pickles import pickle_in, pickles_below
from tests.system.processes import CARTPOLE, Processes

EVERYTHING = (
    *("--policy.normalize-observations", "--algo.scale-rewards", "--algo.num-epochs", 1),
    *("--algo.frames-per-iteration", 64, "--save-every", 1, "--keep-last", 100),
    *("--deterministic", "--min-clients", 2, "--seed", 3, "--exp-name", "run"),
)
TRACKED = ("--track.enabled", "--track.mode", "offline")


class Marker:
    """Something whose pickle names a class."""


def written_by(save, *arguments):
    file = io.BytesIO()
    save(*arguments, file) if save is not np.save else save(file, *arguments)
    return file.getvalue()


PICKLED = {
    **{f"protocol {n}": pickle.dumps({"a": [Marker()]}, n) for n in range(6)},
    "a list": pickle.dumps([1, 2]),
    "an old list": pickle.dumps([1, 2], 0),
    "torch": written_by(torch.save, {"w": torch.zeros(3)}),
    "numpy": written_by(np.save, np.array([Marker()], object)),
    "in the midst": b'{"state": 1}\n' + pickle.dumps({"a": Marker()}) + b"\x00" * 9,
}


@pytest.mark.parametrize("data", PICKLED.values(), ids=PICKLED)
def test_a_pickle_is_recognised(data):
    assert pickle_in(data)


def test_what_is_no_pickle_is_not_called_one():
    generator = np.random.default_rng(0)
    assert pickle_in(generator.bytes(1 << 20)) is None
    assert pickle_in(b'{"seq": 1, "step": 2}\n' * 1000) is None
    assert pickle_in(b"") is None


def test_no_file_of_a_run_with_everything_on_holds_a_pickle(processes: Processes):
    has_tracker = importlib.util.find_spec("swanlab") is not None
    server = processes.server(*EVERYTHING, *(TRACKED if has_tracker else ()))
    clients = [
        processes.client(server, *CARTPOLE, "--num-envs", 4, "--groups", 2, name=name)
        for name in ("a", "b")
    ]
    server.wait_for("saved the checkpoint", times=2)
    server.interrupt()
    assert [server.wait(), *(client.wait() for client in clients)] == [0, 0, 0]
    newest = server.run / str(records.steps(server.run)[-1])
    # Snapshots of every client's environments, and frames of the open iteration or none.
    assert (newest / "envs.safetensors").stat().st_size > 1000
    assert (newest / "rollout.safetensors").stat().st_size > 1000
    assert (server.run / "trackers").is_dir() == has_tracker
    assert pickles_below(processes.directory) == []
