"""Snapshots of the policy, and the few of them that play as opponents.

A table of frozen policies by number: the policy version each was taken at. Lives on the model
thread, beside the learner, and never touches its weights, its noise or a generator that it draws
from. Never decides which snapshots play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from algorithms.base import Policy
from algorithms.config import RESTORE_ALL
from algorithms.restore import RestorePlan, plan_policy
from royale_server.model import random_state

_SEPARATOR = "/"


class Opponents:
    """The pool of snapshots, and the policies that play some of them.

    Args:
        make: Makes a policy of the run's class, settings and spaces; its weights do not matter.
    """

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make = make
        self._pool: dict[int, dict[str, Tensor]] = {}
        self._seated: dict[int, Policy] = {}
        self._idle: list[Policy] = []

    def another(self) -> Opponents:
        """Return an empty table of policies of the same kind."""
        return Opponents(self._make)

    def put(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        """Put saved weights into the pool; they must not change.

        Args:
            number: Number of the snapshot.
            tensors: Weights and normaliser statistics by name.
        """
        self._pool[number] = dict(tensors)

    @property
    def versions(self) -> tuple[int, ...]:
        """Snapshots there are, oldest first."""
        return tuple(sorted(self._pool))

    def take(self, version: int, policy: Policy) -> None:
        """Copy a policy, normaliser statistics included, into the pool.

        Args:
            version: Number of the snapshot.
            policy: The policy as it is now.
        """
        self._pool[version] = {
            name: tensor.detach().to("cpu", copy=True) for name, tensor in policy.tensors().items()
        }

    def forget(self, versions: Iterable[int]) -> None:
        """Keep these snapshots no longer."""
        for version in versions:
            del self._pool[version]

    def seat(self, version: int) -> None:
        """Let a snapshot play.

        Raises:
            RestoreError: If it does not fit the policy's settings, naming every tensor.
        """
        policy = self._idle.pop() if self._idle else self._made()
        plan = RestorePlan(RESTORE_ALL)
        restore = plan_policy(plan, policy, self._pool[version])
        plan.raise_problems()
        restore.apply()
        self._seated[version] = policy

    def unseat(self, version: int) -> None:
        """Let a snapshot play no longer; its place is kept for the next one."""
        self._idle.append(self._seated.pop(version))

    def policy(self, version: int) -> Policy:
        """Return the policy that plays a snapshot."""
        return self._seated[version]

    def _made(self) -> Policy:
        """Make a policy; random numbers that go into its weights are nobody else's."""
        before = random_state.capture()
        try:
            return self._make().requires_grad_(requires_grad=False)
        finally:
            random_state.restore(before)

    # --- checkpoints ------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return all snapshots by number and name. Nothing is copied: they never change."""
        return {
            f"{version}{_SEPARATOR}{name}": tensor
            for version in self.versions
            for name, tensor in self._pool[version].items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the snapshots of a checkpoint into an empty pool.

        Args:
            tensors: What `tensors` returned.
        """
        for key, tensor in tensors.items():
            version, _, name = key.partition(_SEPARATOR)
            self._pool.setdefault(int(version), {})[name] = torch.as_tensor(tensor)
