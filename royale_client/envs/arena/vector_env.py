"""The arena as a Gymnasium vector environment: both seats of every battle are environments of it.

Environment 2 b + s is seat s of battle b. A battle that ended is begun anew in the same step
(autoreset SAME_STEP); what was seen last stands in ``infos["final_obs"]``. Legal actions come as
``infos["action_mask"]``; an action that is not legal is a no-op.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.columns import VECTOR_SIZE
from royale_client.envs.arena.gym_spaces import action_space, observation_space
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import ACTIONS, DRAWN, SEATS
from royale_client.envs.arena.tensors import PLANES_SHAPE

Observations: TypeAlias = dict[str, NDArray[Any]]


class ArenaVectorEnv(gymnasium.vector.VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """Battles of two seats, ``2 * num_battles`` environments.

    Args:
        num_battles: Battles.
        rewards: Weights of the reward; None for the usual ones.
    """

    def __init__(self, num_battles: int, rewards: RewardConfig | None = None) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = SEATS * num_battles
        self.single_observation_space = observation_space()
        self.single_action_space = action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._batch = ArenaBatch(num_battles, rewards or RewardConfig())

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin a new episode of every battle.

        Args:
            seed: One number, which battle b takes + b; a list of one for each environment, of which
                a battle takes that of its seat 0; or None for what was never there before.
            options: None are known; ignored, as Gymnasium's own environments do.
        """
        del options
        self._batch.reset(self._keys(seed))
        return self._seen(), {"action_mask": self._legal()}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observations, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one decision of both seats of every battle.

        Args:
            actions: ``(num_envs,)``, each in its seat's own frame.
        """
        batch = self._batch
        over = batch.step(np.asarray(actions).reshape(-1, SEATS))
        rewards = batch.rewards.rewards.reshape(-1).copy()
        terminated = np.zeros((batch.num_battles, SEATS), np.bool_)
        terminated[over] = True
        infos: dict[str, Any] = {}
        if len(over):
            ended = terminated.reshape(-1)
            infos = self._final(ended)
            batch.begin_next(over)
        infos["action_mask"] = self._legal()
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._seen(), rewards, terminated.reshape(-1), truncated, infos

    def _final(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Return what Gymnasium's SAME_STEP rule says of the environments that ended."""
        seen = self._seen()
        finals = np.full(self.num_envs, None, dtype=object)
        for environment in np.flatnonzero(ended).tolist():
            finals[environment] = {name: leaf[environment] for name, leaf in seen.items()}
        outcome = np.repeat(self._batch.battles.outcome, SEATS)
        won = outcome == np.tile([1, 2], self._batch.num_battles)
        result = np.where(outcome == DRAWN, 0, np.where(won, 1, -1))
        infos = {"result": np.where(ended, result, 0), "_result": ended}
        return {"final_obs": finals, "_final_obs": ended, "final_info": infos, "_final_info": ended}

    def _keys(self, seed: int | list[int | None] | None) -> NDArray[np.uint64]:
        count = self._batch.num_battles
        if isinstance(seed, int):
            return np.uint64(seed) + np.arange(count, dtype=np.uint64)
        drawn = np.random.SeedSequence().generate_state(count, np.uint64).astype(np.uint64)
        if seed is None:
            return drawn
        pairs = zip(seed[::SEATS], drawn.tolist(), strict=True)
        return np.array([key if given is None else given for given, key in pairs], np.uint64)

    def _seen(self) -> Observations:
        batch = self._batch
        return {
            "planes": batch.planes.reshape(self.num_envs, *PLANES_SHAPE).copy(),
            "vector": batch.vector.reshape(self.num_envs, VECTOR_SIZE).copy(),
        }

    def _legal(self) -> NDArray[np.bool_]:
        return self._batch.mask.reshape(self.num_envs, ACTIONS).copy()
