"""Settings of the dummy algorithm. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from algorithms.config import MAY_CHANGE, LearnerConfig, not_negative


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyConfig(LearnerConfig):
    """Settings of the dummy algorithm: collects, waits, stops; learns and saves nothing."""

    uid: ClassVar[str] = "dummy"

    total_timesteps: int = field(default=300, metadata=MAY_CHANGE)
    """Stored frames after which the run is finished."""

    frames_per_iteration: int = 100
    """Stored frames that one pretended learn step waits for."""

    infer_s: float = 0.0
    """Seconds that every inference batch pretends to take."""

    learn_s: float = 0.0
    """Seconds that every learn step pretends to take."""

    def problems(self) -> list[str]:
        """List everything that is wrong with these settings, one sentence each."""
        found = LearnerConfig.problems(self)
        found += not_negative("--algo.infer-s", self.infer_s)
        found += not_negative("--algo.learn-s", self.learn_s)
        return found


VARIANTS: Mapping[str, DummyConfig] = {"default": DummyConfig()}
"""Settings by variant name."""
