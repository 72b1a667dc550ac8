"""A plug-in: PPO whose learn steps, from the second on, wait until told; ``--plugin`` this file.

They end when the file that HELD_UNTIL names exists. With HELD_DEAF set they notice nothing else;
without it they give up when asked to, as PPO does between two gradient steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from algorithms.errors import LearnAborted
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from royale_server.registry import AlgorithmEntry, Registry

POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldConfig(PPOConfig):
    """Settings of PPO."""

    uid: ClassVar[str] = "held"


VARIANTS = {"default": HeldConfig()}


class Held(PPO):
    """PPO that learns when a test lets it."""

    uid = "held"

    def learn(
        self, *arguments: Any, should_abort: Callable[[], bool], **options: Any
    ) -> dict[str, float]:
        """Wait for the file if this is not the first learn step, then learn."""
        gate, is_deaf = Path(os.environ["HELD_UNTIL"]), "HELD_DEAF" in os.environ
        while self.policy_version and not gate.exists():
            if should_abort() and not is_deaf:
                raise LearnAborted("given up while held")
            threading.Event().wait(POLL_S)
        return super().learn(*arguments, should_abort=should_abort, **options)


def register(registry: Registry) -> None:
    """Say what this file offers."""
    registry.add_algorithm(
        AlgorithmEntry(
            uid="held",
            summary="PPO that learns when a test lets it",
            config="held:HeldConfig",
            variants="held:VARIANTS",
            implementation="held:Held",
            fits=("mlp-policy",),
        )
    )
