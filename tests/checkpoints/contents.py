"""Small checkpoints for the tests, and ways to damage them."""

from __future__ import annotations

from pathlib import Path

import torch

from checkpoints import CheckpointContents, save


def make_contents(step: int = 7, *, fill: float = 1.5) -> CheckpointContents:
    """Contents with two tensor files and two documents; ``fill`` tells one step from another."""
    return CheckpointContents(
        step=step,
        tensors={
            "model": {"weight": torch.full((4, 3), fill), "bias": torch.zeros(3)},
            "optimizer": {"exp_avg/weight": torch.full((4, 3), fill / 2)},
        },
        documents={"state": {"global_step": step, "policy_version": 3}, "rng": {"words": [1, 2]}},
        facts={"metrics_seq": step},
    )


def saved(run_dir: Path, *steps: int) -> list[Path]:
    """Save a checkpoint for each of ``steps`` and return their paths."""
    return [save(run_dir, make_contents(step, fill=float(step))).path for step in steps]
