"""N battles and everything that follows them: rewards, counters, what both seats see.

The one place that knows in which order these are brought up to date; the driver and the
environments of other interfaces only rearrange what stands here. A battle that is over waits until
it is begun anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from royale_client.envs.arena import kernels, snapshots, tallies, tensors
from royale_client.envs.arena.columns import VECTOR_SIZE
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rewards import Rewards
from royale_client.envs.arena.rules import ACTIONS, RUNNING, SEATS
from royale_client.envs.arena.state import empty, views_of
from royale_client.snapshots.document import check_like

IntArray: TypeAlias = NDArray[np.int64]


class ArenaBatch:
    """Battles that are stepped together.

    Args:
        num_battles: N.
        rewards: Weights of the reward.
    """

    def __init__(self, num_battles: int, rewards: RewardConfig) -> None:
        self.num_battles = num_battles
        self.battles = empty(num_battles)
        self.rewards = Rewards(rewards, num_battles)
        self.tallies = tallies.empty_tallies(num_battles)
        self.planes, self.vector, self.mask = _tensors(num_battles)
        """What both seats see now; ``(N, 2, …)``, written anew by every step."""

    def reset(self, keys: NDArray[np.uint64]) -> None:
        """Begin the first episode of every battle.

        Args:
            keys: What tells the battles of a run apart; all that is dealt follows from it and from
                the ordinal of the episode. Shape ``(N,)``.
        """
        which = np.arange(self.num_battles)
        self._begin(which, keys.view(np.int64), np.zeros(self.num_battles, np.int64))

    def begin_next(self, which: IntArray) -> None:
        """Begin the next episode of some battles; the others stay as they are.

        Args:
            which: Indices, ``(k,)``.
        """
        battles = self.battles
        self._begin(which, battles.battle[which], battles.ordinal[which] + 1)

    def step(self, actions: ArrayLike) -> IntArray:
        """Carry out one decision of both seats of every battle.

        Args:
            actions: ``(N, 2)`` integers, each in its seat's own frame; one that is not legal is a
                no-op and counted.

        Returns:
            Indices of the battles that ended in it, ``(k,)``.
        """
        chosen = np.ascontiguousarray(actions, np.int32)
        was_running = self.battles.outcome == RUNNING
        tallies.before(self.tallies, self.battles, chosen)
        kernels.step(self.battles, chosen)
        self.rewards.step(self.battles)
        tallies.after(self.tallies, self.rewards.terms)
        self.observe()
        ended: IntArray = (was_running & (self.battles.outcome != RUNNING)).nonzero()[0]
        return ended

    def observe(self) -> None:
        """Write what both seats see of the battles as they are."""
        tensors.observe(self.battles, self.planes, self.vector, self.mask)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return everything that decides what comes next."""
        rows = b"".join(snapshots.snapshot(self.battles, i) for i in range(self.num_battles))
        battles = np.frombuffer(rows, np.uint8).reshape(self.num_battles, -1)
        return {"battles": battles, **{n: array.copy() for n, array in self._counted().items()}}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `snapshot` returned; if it raises, nothing has changed.

        Raises:
            KeyError: If something is missing.
            ValueError: If a battle is damaged, of other rules, or what no battle can be.
            SnapshotError: If it is of another number of battles.
        """
        mine = self._counted()
        saved = {name: state[name] for name in mine}
        check_like("battles", list(saved.values()), list(mine.values()))
        if len(state["battles"]) != self.num_battles:
            raise ValueError(f"{len(state['battles'])} battles, expected {self.num_battles}")
        restored = empty(self.num_battles)
        for i, row in enumerate(state["battles"]):
            snapshots.restore(restored, i, row.tobytes())
        self.battles.raw[...] = restored.raw
        for name, array in mine.items():
            array[...] = saved[name]
        self.rewards.begin(self.battles, np.arange(self.num_battles))  # follow from the battles
        self.observe()

    def _counted(self) -> dict[str, NDArray[Any]]:
        """Return what has been counted beside the battles, by name."""
        return {f"tallies.{name}": array for name, array in self.tallies._asdict().items()}

    def _begin(self, which: IntArray, keys: IntArray, ordinals: IntArray) -> None:
        start(self.battles, which, seed=0, battle_ids=keys, ordinals=ordinals)
        self.rewards.begin(self.battles, which)
        tallies.begin(self.tallies, which)
        fresh = views_of(self.battles.raw[which])
        planes, vector, mask = _tensors(len(which))
        tensors.observe(fresh, planes, vector, mask)
        self.planes[which], self.vector[which], self.mask[which] = planes, vector, mask


def _tensors(n: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    return (
        np.zeros((n, SEATS, *tensors.PLANES_SHAPE), np.uint8),
        np.zeros((n, SEATS, VECTOR_SIZE), np.float32),
        np.zeros((n, SEATS, ACTIONS), np.bool_),
    )
