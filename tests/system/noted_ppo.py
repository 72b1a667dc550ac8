"""PPO that writes down what it learns from: ``--plugin tests.system.noted_ppo``, as ``noted-ppo``.

The file ``N.npz`` in the folder that ``ROYALE_TEST_NOTES`` names holds the rollout buffer of learn
step N, as it lay in storage: every array, and which cells its rows are.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from algorithms.ppo.learner import PPO
from royale_server.registry import AlgorithmEntry, Registry

VARIABLE = "ROYALE_TEST_NOTES"
UID = "noted-ppo"


class NotedPPO(PPO):
    """Learns as PPO does."""

    def learn(self, storage, cells, *, should_abort, progress) -> dict[str, float]:
        path = Path(os.environ[VARIABLE]) / f"{self.policy_version}.npz"
        np.savez(path, cells=cells, **storage.copy_frames(cells))
        return super().learn(storage, cells, should_abort=should_abort, progress=progress)


def register(registry: Registry) -> None:
    registry.add_algorithm(
        AlgorithmEntry(
            uid=UID,
            summary="ppo that notes what it learns from",
            config="algorithms.ppo.config:PPOConfig",
            variants="algorithms.ppo.config:VARIANTS",
            implementation="tests.system.noted_ppo:NotedPPO",
            fits=("arena-policy", "mlp-policy"),
        )
    )


def read_notes(folder: Path) -> list[dict[str, np.ndarray]]:
    """Return the rollout buffers of a run in order."""
    files = sorted(folder.glob("*.npz"), key=lambda path: int(path.stem))
    return [dict(np.load(path)) for path in files]


def assert_same_notes(one: Path, other: Path) -> list[dict[str, np.ndarray]]:
    """Compare two runs byte for byte, and return the buffers of the first."""
    mine, theirs = read_notes(one), read_notes(other)
    assert len(mine) == len(theirs)
    for i, (here, there) in enumerate(zip(mine, theirs, strict=True)):
        assert here.keys() == there.keys()
        for name, rows in here.items():
            same = rows.dtype == there[name].dtype and rows.tobytes() == there[name].tobytes()
            assert same, f"{name} of iteration {i + 1} differs"
    return mine
