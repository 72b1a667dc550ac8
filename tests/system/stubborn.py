"""A plug-in: PPO whose second learn step looks at nothing for a minute; ``--plugin`` this file."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, ClassVar

from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from royale_server.registry import AlgorithmEntry, Registry

DEAF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StubbornConfig(PPOConfig):
    """Settings of PPO."""

    uid: ClassVar[str] = "stubborn"


VARIANTS = {"default": StubbornConfig()}


class Stubborn(PPO):
    """PPO that cannot be interrupted once it has learnt something."""

    uid = "stubborn"

    def learn(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Learn, after a minute of silence if this is not the first time."""
        if self.policy_version:
            threading.Event().wait(DEAF_S)
        return super().learn(*arguments, **options)


def register(registry: Registry) -> None:
    """Say what this file offers."""
    registry.add_algorithm(
        AlgorithmEntry(
            uid="stubborn",
            summary="PPO that cannot be interrupted",
            config="stubborn:StubbornConfig",
            variants="stubborn:VARIANTS",
            implementation="stubborn:Stubborn",
            fits=("mlp-policy",),
        )
    )
