"""One battle as a PettingZoo parallel environment: agents ``seat_0`` and ``seat_1``.

Legal actions come as ``infos[agent]["action_mask"]``; an action that is not legal is a no-op.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.gym_spaces import action_space, observation_space
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import NO_OP, SEATS

AGENTS = tuple(f"seat_{seat}" for seat in range(SEATS))
Observation: TypeAlias = dict[str, NDArray[Any]]


class ArenaParallelEnv(ParallelEnv[str, Observation, int]):  # type: ignore[misc]
    """A battle of two agents, who decide at the same time.

    Args:
        rewards: Weights of the reward; None for the usual ones.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "royale_arena_v0", "render_modes": []}

    def __init__(self, rewards: RewardConfig | None = None) -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.render_mode = None
        self.observation_spaces = {agent: observation_space() for agent in AGENTS}
        self.action_spaces = {agent: action_space() for agent in AGENTS}
        self._batch = ArenaBatch(1, rewards or RewardConfig())

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return what an agent sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        """Return what an agent does."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin a battle.

        Args:
            seed: What it is dealt from; None for what was never there before.
            options: None are known; ignored.
        """
        del options
        key = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        self._batch.reset(key.astype(np.uint64))
        self.agents = list(AGENTS)
        return self._seen(), self._infos()

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, Observation],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Carry out one decision of both agents; one that is left out does nothing."""
        chosen = [[int(actions.get(agent, NO_OP)) for agent in AGENTS]]
        over = bool(len(self._batch.step(chosen)))
        rewards = dict(zip(AGENTS, self._batch.rewards.rewards[0].tolist(), strict=True))
        if over:
            self.agents = []
        seen, infos = self._seen(), self._infos()
        return seen, rewards, dict.fromkeys(AGENTS, over), dict.fromkeys(AGENTS, False), infos

    def _seen(self) -> dict[str, Observation]:
        batch = self._batch
        return {
            agent: {"planes": batch.planes[0, s].copy(), "vector": batch.vector[0, s].copy()}
            for s, agent in enumerate(AGENTS)
        }

    def _infos(self) -> dict[str, dict[str, Any]]:
        mask = self._batch.mask[0]
        return {agent: {"action_mask": mask[s].astype(np.int8)} for s, agent in enumerate(AGENTS)}
