"""Settings of the algorithm `eval`. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from algorithms.config import OF_THE_START, RESTORE_MODEL, LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig(LearnerConfig):
    """Settings of the algorithm that only plays; ``--evaluate.*`` says against whom."""

    uid: ClassVar[str] = "eval"
    restore: ClassVar[str] = RESTORE_MODEL
    """Weights are all that it takes."""
    needs_weights: ClassVar[bool] = True
    """There is nothing to evaluate without a checkpoint."""

    policy_checkpoint_path: Path | None = field(default=None, metadata=OF_THE_START)
    """Checkpoint to evaluate: the directory that holds model.safetensors. It is needed."""

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        return [
            f"--algo.{f.name.replace('_', '-')}: got {getattr(self, f.name)}, and nothing is "
            "collected or learnt here; leave it out"
            for f in fields(LearnerConfig)
            if getattr(self, f.name) != f.default
        ]


VARIANTS: Mapping[str, EvalConfig] = {"default": EvalConfig()}
"""Settings by variant name."""
