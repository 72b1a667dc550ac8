"""What a learner remembers goes on in another process, out of a checkpoint's files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithms.normalization import RunningStatistics
from algorithms.restore import optimizer_structure, optimizer_tensors
from checkpoints import CheckpointContents, save

ROOT = Path(__file__).resolve().parents[2]

GO_ON = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from algorithms.normalization import RunningStatistics
from algorithms.restore import RestorePlan, plan_optimizer, set_optimizer_state
from checkpoints import load, newest

contents = load(newest(Path(sys.argv[1]))[0])
model, documents = contents.tensors["model"], contents.documents["state"]

statistics = RunningStatistics()
statistics.load_state({n: model[n].numpy() for n in ("mean", "var", "count")})
statistics.update(np.array([10.0, 20.0, 30.0]))

w = torch.nn.Parameter(model["w"].clone())
adam = torch.optim.Adam([w], lr=0.1)
plan = RestorePlan("all")
tensors, structure = contents.tensors["optimizer"], documents["optimizer"]
set_optimizer_state(adam, plan_optimizer(plan, adam, {w: "w"}, tensors, structure))
plan.raise_problems()
w.grad = torch.tensor([0.3, 0.3])
adam.step()

print(json.dumps({
    "mean": statistics.mean.item(),
    "var": statistics.var.item(),
    "count": statistics.count.item(),
    "five": statistics.normalize(np.array([5.0]), clip=1.0)[0].item(),
    "w": w.tolist(),
}))
"""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What another process makes of statistics and an optimizer that were saved here."""
    statistics = RunningStatistics()
    statistics.update(np.array([1.0, 2.0, 3.0, 4.0]))
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    adam = torch.optim.Adam([w], lr=0.1)
    for gradient in ([1.0, 0.5], [0.2, -1.0]):
        w.grad = torch.tensor(gradient)
        adam.step()
    folder = tmp_path_factory.mktemp("run")
    save(
        folder,
        CheckpointContents(
            step=2,
            tensors={
                "model": {"w": w.detach(), **statistics.state()},
                "optimizer": optimizer_tensors(adam, {w: "w"}),
            },
            documents={"state": {"optimizer": optimizer_structure(adam, {w: "w"})}},
        ),
    )
    command = [sys.executable, "-W", "error", "-c", GO_ON, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_statistics_go_on_with_their_count(resumed):
    # Case H10. Of 1, 2, 3, 4, 10, 20, 30: mean 70 / 7, variance 730 / 7. With the count lost, 5
    # would become -1.83694; with everything lost it would stay 5.
    assert resumed["mean"] == pytest.approx(10.0, abs=1e-12)
    assert resumed["var"] == pytest.approx(104.28571429, abs=1e-8)
    assert resumed["count"] == 7
    assert resumed["five"] == pytest.approx(-0.48961825, abs=1e-8)


def test_the_next_step_of_adam_is_that_of_an_uninterrupted_run(resumed):
    # Case H11. Weights alone: 0.71969599, -2.16338944; step count lost: 0.69823331, -2.04653478.
    assert resumed["w"] == pytest.approx([0.74210399, -2.05262232], abs=1e-7)
