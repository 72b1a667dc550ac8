"""Runs on disk for the tests, and a way to see whether anything changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch

from checkpoints import CheckpointContents, save
from royale_server.run.directory import RunDirectory, create
from royale_server.run.layout import RunLayout
from royale_server.run.prepare import RunPlan, plan

CONFIG = {"seed": 3, "nested": {"lr": 0.001}}


def plan_run(base: Path, name: str | None = "exp", **flags: bool) -> RunPlan:
    """Plan a start of the run that most tests use."""
    return plan(base, algorithm="ppo", policy="mlp-policy", name=name, seed=3, **flags)


def open_run(base: Path, name: str | None = "exp", **flags: bool) -> RunDirectory:
    """Plan and create it."""
    return create(plan_run(base, name, **flags), config=CONFIG, seed=3, argv=["royale-server"])


def finished_run(base: Path, name: str = "exp", *, steps: tuple[int, ...] = (10,)) -> RunLayout:
    """Leave a run on disk that ended cleanly, with these checkpoints and a metrics row."""
    run = open_run(base, name)
    for step in steps:
        save(run.layout.directory, make_contents(step))
    run.layout.metrics.write_bytes(b'{"seq": 1, "step": 10}\n')
    run.close()
    return run.layout


def make_contents(step: int, fill: float = 1.0) -> CheckpointContents:
    """A small checkpoint."""
    tensors = {"model": {"weight": torch.full((3,), fill)}}
    return CheckpointContents(step=step, tensors=tensors, documents={"state": {"step": step}})


def fingerprint(folder: Path) -> str:
    """Hash names, kinds and contents of everything below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        kind = "link" if path.is_symlink() else "dir" if path.is_dir() else "file"
        digest.update(f"{path.relative_to(folder)} {kind}\n".encode())
        if kind == "link":
            digest.update(os.readlink(path).encode())
        elif kind == "file":
            digest.update(path.read_bytes())
    return digest.hexdigest()
