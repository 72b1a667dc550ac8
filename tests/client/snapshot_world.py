"""Drivers played with actions that a seed decides, every byte of their turns on record.

As a program it goes on from a snapshot in a file and prints what came of it:

    python -m tests.client.snapshot_world ENV_ID STATE_FILE
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from royale_client.driver import EnvDriver, Turn
from royale_client.envs.gymnasium_envs import GymConfig, make_driver
from royale_client.wire.spaces import BoxSpec, leaves

SLOTS = 2
TIME_LIMIT = 30
BEFORE, AFTER = 43, 100
COLUMNS = (
    "asks",
    "observations",
    "masks",
    "rewards",
    "terminated",
    "truncated",
    "final_observations",
)


def gym_driver(env_id: str, **config: Any) -> EnvDriver:
    """A group of environments whose episodes end soon."""
    return make_driver(GymConfig(env_id=env_id, time_limit=TIME_LIMIT, **config), SLOTS)


def begin(driver: EnvDriver) -> Turn:
    return driver.reset(np.arange(driver.num_slots, dtype=np.uint64) + 7)


def play(driver: EnvDriver, turn: Turn, seed: int, num_steps: int) -> tuple[Turn, list[bytes]]:
    """Take steps with actions drawn from ``seed``; return the last turn and all bytes."""
    rng = np.random.default_rng(seed)
    record = []
    for _ in range(num_steps):
        turn = driver.step(some_actions(driver, rng, turn))
        record.append(turn_bytes(turn))
    return turn, record


def some_actions(driver: EnvDriver, rng: np.random.Generator, turn: Turn) -> tuple[Any, ...]:
    (leaf,) = leaves(driver.action_space)
    shape = (driver.num_slots, *leaf.shape)
    if isinstance(leaf.spec, BoxSpec):
        actions = rng.uniform(leaf.spec.low, leaf.spec.high, shape).astype(leaf.dtype)
    else:
        actions = rng.integers(leaf.spec.n, size=shape)
    return (actions if turn.asks is None else actions[turn.asks],)


def turn_bytes(turn: Turn) -> bytes:
    """Every bit of a turn but the times."""
    columns = [array_bytes(getattr(turn, name)) for name in COLUMNS]
    episodes = [
        {key: value for key, value in episode.items() if key != "time_s"}
        for episode in turn.episodes
    ]
    return b"\n".join([*columns, repr((episodes, turn.frames)).encode()])


def array_bytes(value: Any) -> bytes:
    if value is None:
        return b"none"
    if isinstance(value, tuple):
        return b"".join(map(array_bytes, value))
    return f"{value.dtype} {value.shape} ".encode() + value.tobytes()


def assert_goes_on_the_same(make: Callable[[], EnvDriver]) -> None:
    """Restore into a fresh driver and into one that moved on: all bytes are the same."""
    driver = make()
    assert driver.snapshot_obstacle is None
    turn, _ = play(driver, begin(driver), 1, BEFORE)
    last = turn_bytes(turn.already_reported())
    state = driver.snapshot()
    _, expected = play(driver, turn, 2, AFTER)
    assert any(b"'return'" in turn for turn in expected), "no episode ended"
    for other in (make(), driver):
        restored = other.restore(state)
        assert turn_bytes(restored) == last
        assert play(other, restored, 2, AFTER)[1] == expected
        other.close()


def digest_of(record: list[bytes]) -> str:
    return hashlib.sha256(b"".join(record)).hexdigest()


class Drunkard(gymnasium.Env):
    """Walks at random; offers snapshots by the two methods, and masks."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 9) -> None:
        self.length = length
        self.place = 0.0
        self.steps = 0
        self.coin = np.random.default_rng(0)
        self.notes: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.coin = np.random.default_rng(seed + 1)
        self.place, self.steps, self.notes = float(self.np_random.normal()), 0, []
        return self._observation(), self._info()

    def step(self, action: Any):
        self.place += float(action) * self.np_random.normal() + self.coin.normal()
        self.steps += 1
        self.notes = [*self.notes[-2:], {"step": self.steps, "place": self.place}]
        reward = self.place + sum(note["place"] for note in self.notes)
        return self._observation(), reward, self.steps >= self.length, False, self._info()

    def _observation(self) -> np.ndarray:
        return np.array([self.place], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.coin.random(3) < 0.7}

    def snapshot_state(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "steps": self.steps,
            "coin": self.coin,
            "notes": self.notes,
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        self.place, self.steps = state["place"], state["steps"]
        self.coin, self.notes = state["coin"], state["notes"]


if __name__ == "__main__":
    fresh = gym_driver(sys.argv[1])
    last_turn = fresh.restore(Path(sys.argv[2]).read_bytes())
    sys.stdout.write(digest_of(play(fresh, last_turn, 2, AFTER)[1]))
