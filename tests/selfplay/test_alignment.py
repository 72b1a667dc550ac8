"""Every stored reward lies beside the action that earned it, in whatever way the two came there.

The environments tell in their observation which seat and which step it is, and each reward names
the seat, the step and the action that it is for. So one look at a stored row says whether its parts
belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from royale_client.driver import EnvDriver, Leaves, Turn
from royale_client.driver_gymnasium import GymnasiumDriver
from royale_server.scheduler import Discard
from royale_server.selfplay.config import SelfPlayConfig
from tests.selfplay.duel import Duel, MarkingLearner, SelfPlayWorld, play
from tests.server.resume_world import ResumableWorld

MIXED = SelfPlayConfig(mix="mirror=0.25,pool=0.5,scripted=0.25", snapshot_every=2, pool_size=3)
STEPS = 4096
"""More steps than any test takes: seats are told apart by multiples of it."""


def reward_for(seen: Any, action: Any) -> Any:
    """The reward of an action, chosen at what was seen: exact in float64."""
    return seen + np.asarray(action) / 1024


class Telling(gymnasium.Env[Any, Any]):
    """One seat; its episodes last 3 to 6 steps, and every other one is cut off."""

    observation_space = Box(-1e6, 1e6, (1,), np.float32)
    action_space = Discrete(400)

    def __init__(self, seat: int) -> None:
        self._seat = seat
        self._steps = 0
        self._left = 0
        self._episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._episodes += 1
        self._left = 3 + (self._seat + self._episodes) % 4
        self._steps += 1  # what an episode begins with is told apart from what one ended with
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        reward = float(reward_for(self._seen()[0], action))
        self._steps += 1
        self._left -= 1
        is_over, is_cut = self._left == 0, self._episodes % 2 == 0
        return self._seen(), reward, is_over and not is_cut, is_over and is_cut, {}

    def _seen(self) -> np.ndarray:
        return np.array([STEPS * self._seat + self._steps], np.float32)


class TellingDuel(Duel):
    """Battles of two seats; ``first`` is the number of its first seat."""

    def __init__(self, num_battles: int, first: int) -> None:
        super().__init__(num_battles)
        self._base = STEPS * (first + np.arange(self.num_slots))
        self._steps = 0

    def step(self, actions: Leaves) -> Turn:
        chosen = np.zeros(self.num_slots, np.int64)
        chosen[self._asks()] = actions[0]
        rewards = reward_for(self._base + self._steps, chosen)
        self._steps += 1
        return super().step(actions)._replace(rewards=rewards)

    def _shown(self, rows: np.ndarray) -> Leaves:
        seen = (self._base + self._steps)[rows]
        return (seen.astype(np.float32).reshape(-1, 1),)


def vector_of(seats: Sequence[int], mode: AutoresetMode) -> EnvDriver:
    makers: list[Callable[[], Any]] = [lambda seat=seat: Telling(seat) for seat in seats]
    return GymnasiumDriver(SyncVectorEnv(makers, autoreset_mode=mode), action_mask="off")


def assert_aligned(world: SelfPlayWorld, seats: int) -> None:
    """All stored rows of a world belong together, and are of as many seats."""
    seen, told = [], set()
    for lesson in world.lessons:
        expected = reward_for(np.array(lesson.observations), lesson.actions)
        np.testing.assert_array_equal(lesson.rewards, expected)
        seen += lesson.observations
        told |= {int(observation) // STEPS for observation in lesson.observations}
    assert len(seen) == len(set(seen)), "a frame was stored twice"
    assert len(told) == seats


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_gymnasium_rewards_lie_beside_their_actions_under_every_autoreset_rule(mode) -> None:
    world = SelfPlayWorld(selfplay=MIXED)
    drivers = [vector_of(range(3), mode), vector_of(range(3, 7), mode)]
    play(world, drivers, lambda: len(world.lessons) >= 8)
    assert_aligned(world, seats=7)
    ends = [(t, c) for x in world.lessons for t, c in zip(x.terminated, x.truncated, strict=True)]
    assert {(True, False), (False, True), (False, False)} == set(ends)


def test_rewards_of_two_seats_lie_beside_their_actions_whoever_plays_the_other() -> None:
    world = SelfPlayWorld(selfplay=MIXED)
    duels = TellingDuel(3, first=0), TellingDuel(4, first=6)
    play(world, duels, lambda: len(world.lessons) >= 12)
    assert_aligned(world, seats=14)
    kinds = {seat.player for duel in duels for pair in duel.played for seat in pair}
    assert len(kinds) == 3


def test_rewards_of_a_late_client_lie_beside_their_actions_and_what_is_given_up_nowhere() -> None:
    """One client is quick for a while, then forty times as slow: frames of it are revoked."""
    world = ResumableWorld(target=40, close_wait=0.05)
    quick, slow = world.join("quick", (2, 3)), world.join("slow", (2,))
    for turn in range(1200):
        quick.pump()
        if turn % (40 if turn // 200 % 2 else 2) == 0:
            slow.pump()
        world.now += 0.01
        world.hub.tick()
        world.run()
    late = [lesson for lesson in world.lessons if set(lesson.slots) & {5, 6}]
    ledger = world.hub.scheduler.ledger
    assert ledger.given_up[Discard.LATE] > 0
    assert 0 < len(late) < len(world.lessons)
    assert ledger.conservation_error == 0
    for lesson in world.lessons:
        # Their own law: x becomes 3 x + action + 1 modulo 89, and an eighth of it is the reward.
        following = (3 * np.array(lesson.observations) + lesson.actions + 1) % 89
        np.testing.assert_array_equal(lesson.rewards, following / 8)


def test_every_reward_is_shaped_by_the_discount_that_its_frame_is_learnt_with(monkeypatch) -> None:
    """The learner's discount moves with each version; a driver's rewards are what it was told."""

    class Discounted(TellingDuel):
        gamma = 0.0

        def discount(self, gamma: float) -> None:
            self.gamma = gamma
            told.append(gamma)

        def step(self, actions: Leaves) -> Turn:
            turn = super().step(actions)
            return turn._replace(rewards=np.full(self.num_slots, self.gamma))

    told: list[float] = []
    monkeypatch.setattr(MarkingLearner, "discount", lambda self: 0.5 + self.policy_version / 64)
    world = SelfPlayWorld(selfplay=MIXED)
    play(world, (Discounted(3, 0), Discounted(4, 6)), lambda: len(world.lessons) >= 6)
    for lesson in world.lessons:
        assert set(lesson.rewards) == {0.5 + lesson.version / 64}
    # Each of the two groups is told once a version, and not with every answer.
    assert told[: 2 * 6] == [0.5 + version / 64 for version in range(6) for _ in range(2)]
