"""What is stored of the arena is, byte for byte, what its battles showed, allowed, did and paid."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from algorithms.base import Inference
from algorithms.noise import Noise, Purpose
from algorithms.storage import RolloutStorage
from royale_client.driver import Leaves, Turn
from royale_client.envs.arena.driver import ArenaDriver
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import ACTIONS
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import SelfPlayWorld, play
from tests.server.loop_world import TablePolicy
from tests.server.resume_world import SavingLearner

GAMMAS = [0.9, 0.99, 0.999, 0.95]
"""Of the four iterations of a test."""


class RandomPolicy(TablePolicy):
    """Plays what it may, or waits."""

    def act(self, observations, masks, noise: Noise, deterministic=False) -> Inference:
        scores = np.where(masks, noise.uniform(Purpose.ACTION, ACTIONS), -1.0)
        scores[:, 0] += noise.uniform(Purpose.EXPLORE, 1)[:, 0]
        actions = scores.argmax(axis=1)
        return Inference((actions,), {"action": actions, "value": self.values(observations)})

    def values(self, observations):
        return observations[1][:, 0].copy()


class KeepingLearner(SavingLearner):
    """Keeps all that it is given."""

    def __init__(self, policy, target: int) -> None:
        super().__init__(policy, target)
        self.kept: list[dict[str, Any]] = []

    def discount(self) -> float:
        return GAMMAS[min(self.policy_version, len(GAMMAS) - 1)]

    def learn(self, storage: RolloutStorage, cells, *, should_abort, progress) -> dict[str, float]:
        self.kept.append(storage.copy_frames(cells))
        self.policy_version += 1
        return {}


class ArenaWorld(SelfPlayWorld):
    policy_class = RandomPolicy
    learner_class = KeepingLearner


class Witness(ArenaDriver):
    """Notes for each slot what it was shown and allowed, what it did and what that paid."""

    probe = None  # nobody judges the answers here, and they take seconds

    def __init__(self, num_battles: int, bots: tuple[str, ...]) -> None:
        super().__init__(RewardConfig(), num_battles, bots=bots, identity={})
        self.saw: list[deque[tuple[Any, ...]]] = [deque() for _ in range(self.num_slots)]
        self._last: Turn | None = None

    def reset(self, seeds) -> Turn:
        self._last = super().reset(seeds)
        return self._last

    def step(self, actions: Leaves) -> Turn:
        turn = self._last
        assert turn is not None
        asks = np.ones(self.num_slots, np.bool_) if turn.asks is None else turn.asks
        slots = np.flatnonzero(asks)
        # The batch writes its tensors in place.
        shown = [[leaf[row].tobytes() for leaf in turn.observations] for row in range(len(slots))]
        legal = [np.packbits(mask).tobytes() for mask in turn.masks]
        self._last = after = super().step(actions)
        for row, slot in enumerate(slots):
            paid = (float(after.rewards[slot]), bool(after.terminated[slot]))
            self.saw[slot].append((*shown[row], legal[row], int(actions[0][row]), *paid))
        return after


def stored(learner: KeepingLearner, slot: int) -> list[tuple[Any, ...]]:
    """The stored frames of a slot as a `Witness` notes them, in order."""
    frames = []
    for kept in learner.kept:
        for i in np.flatnonzero(kept["slots"] == slot):
            seen = (kept["observations.0"][i].tobytes(), kept["observations.1"][i].tobytes())
            paid = (float(kept["rewards"][i]), bool(kept["terminated"][i]))
            action = int(kept["step_state.action"][i])
            frame = (*seen, kept["masks"][i].tobytes(), action, *paid)
            frames.append((int(kept["ordinals"][i]), frame))
    return [frame for _, frame in sorted(frames, key=lambda entry: entry[0])]


@pytest.mark.parametrize(
    ("mix", "all_are_stored"),
    [("mirror=1", True), ("mirror=0.5,scripted=0.5", False)],
    ids=["mirror", "mixed"],
)
def test_stored_frames_are_those_of_the_battles_under_a_moving_discount(mix, all_are_stored):
    # Of four iterations of 400 frames each of four seats has 400 decisions: a battle has up to 360.
    world = ArenaWorld(target=400, selfplay=SelfPlayConfig(mix=mix), masks=True)
    drivers = Witness(1, ("push",)), Witness(1, ("push",))
    play(world, drivers, lambda: len(world.learner.kept) >= len(GAMMAS))
    assert world.hub.scheduler.ledger.conservation_error == 0
    battles = 0
    for slot in range(4):
        saw = drivers[slot // 2].saw[slot % 2]
        count = len(saw)
        found = stored(world.learner, slot)
        battles += sum(frame[-1] for frame in found)
        for frame in found:
            while saw and saw[0] != frame:
                saw.popleft()
            assert saw, f"slot {slot} never saw a frame that is stored of it"
            saw.popleft()
        if all_are_stored:
            # All but what was done since the last learn step: the next request or two.
            assert count - len(found) <= 2
    assert battles >= 3
