"""The environment family `dummy-v1`: no environment at all, for trying connections and speed.

Observations are computed from slot seed and step alone, so two runs see the same ones. It needs
numpy only, and never looks at a clock except to wait where it is told to be slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import (
    BoolArray,
    EnvDriver,
    FloatArray,
    Leaves,
    SnapshotError,
    Turn,
    farewell,
)
from royale_client.driver_episodes import EpisodeTracker
from royale_client.envs.provider import EnvProvider
from royale_client.snapshots.document import (
    check_like,
    read_document,
    turn_from_plain,
    turn_to_plain,
    write_document,
)
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, SpaceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyConfig:
    """Flags of `royale-env-client dummy-v1`."""

    episode_length: int = 400
    """Steps after which every episode terminates."""
    obs_dim: int = 8
    """Numbers in the state vector; the first is the share of the episode that is over."""
    num_actions: int = 4
    """Number of actions; the one equal to the step number modulo this earns a reward of 1."""
    image: tuple[int, int, int] | None = None
    """Height, width, channels of a uint8 image beside the state; the observation becomes a Dict."""
    step_ms: float = 0.0
    """Milliseconds that every step of the group takes."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: If a number is out of range.
        """
        sizes = {"episode-length": self.episode_length, "obs-dim": self.obs_dim}
        sizes |= {"num-actions": self.num_actions, "image": min(self.image or (1,))}
        for name, value in sizes.items():
            if value < 1:
                raise ConfigError(f"--{name} {value}: expected at least 1")
        if self.step_ms < 0:
            raise ConfigError(f"--step-ms {self.step_ms}: expected 0 or more")


class DummyDriver:
    """A group of slots whose episodes have a fixed length.

    Args:
        config: Sizes.
        num_slots: Number of slots.
        sleep: Waits the given number of seconds.
    """

    def __init__(
        self, config: DummyConfig, num_slots: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._config = config
        self._sleep = sleep
        self.num_slots = num_slots
        self.num_seats = 1
        self.episode_metrics: tuple[EpisodeMetric, ...] = ()
        self.has_masks = False
        self.snapshot_obstacle: str | None = None
        state = BoxSpec(0.0, 1.0, (config.obs_dim,), np.float32)
        self.action_space: SpaceSpec = DiscreteSpec(config.num_actions)
        self.observation_space: SpaceSpec = state
        if config.image is not None:
            image = BoxSpec(0, 255, config.image, np.uint8)
            self.observation_space = DictSpec((("image", image), ("state", state)))
        self._seeds: npt.NDArray[np.uint64] = np.zeros(num_slots, np.uint64)
        self._steps: npt.NDArray[np.int64] = np.zeros(num_slots, np.int64)
        self._episodes = EpisodeTracker(num_slots, time.perf_counter)
        self._observations: Leaves = ()
        self._turn: Turn | None = None

    def reset(self, seeds: npt.NDArray[np.uint64]) -> Turn:
        """Begin a new episode in every slot; see `EnvDriver.reset`."""
        self._seeds = seeds.copy()
        self._steps[:] = 0
        self._episodes.begin_all()
        self._observations = self._observe()
        self._turn = Turn.first(self._observations, None)
        return self._turn

    def step(self, actions: Leaves) -> Turn:
        """Carry out one action per slot; see `EnvDriver.step`."""
        started_s = time.perf_counter()
        if self._config.step_ms:
            self._sleep(self._config.step_ms / 1e3)
        (chosen,) = actions
        rewards = (chosen == self._steps % self._config.num_actions).astype(np.float64)
        self._steps += 1
        self._observations = self._observe()
        terminated = self._steps >= self._config.episode_length
        finals, episodes = self._finish(rewards, terminated)
        self._turn = Turn(
            asks=None,
            observations=self._observations,
            masks=None,
            rewards=rewards,
            terminated=terminated,
            truncated=np.zeros(self.num_slots, np.bool_),
            final_observations=finals,
            episodes=episodes,
            frames=self.num_slots,
            env_time_s=time.perf_counter() - started_s,
        )
        return self._turn

    def last_turn(self) -> Turn | None:
        """Return the newest turn as a farewell; see `EnvDriver.last_turn`."""
        turn = self._turn
        if turn is None or turn.terminated is None:
            return None
        return farewell(turn, ~turn.terminated, self._observations)

    def snapshot(self) -> bytes:
        """Return everything that decides what comes next; see `EnvDriver.snapshot`."""
        if self._turn is None:
            raise SnapshotError("dummy-v1 cannot be snapshotted before its first reset")
        body = {
            "turn": turn_to_plain(self._turn),
            "episodes": self._episodes.snapshot(),
            "seeds": self._seeds,
            "steps": self._steps,
        }
        return write_document(self._identity(), body)

    def restore(self, state: bytes) -> Turn:
        """Go back to where a snapshot was taken; see `EnvDriver.restore`."""
        body = read_document(state, self._identity())
        try:
            seeds, steps = body["seeds"], body["steps"]
            turn = turn_from_plain(body["turn"], self.num_slots, self.observation_space)
            check_like("seeds and steps", (seeds, steps), (self._seeds, self._steps))
            self._episodes.restore(body["episodes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(f"the snapshot is no state of dummy-v1: {error!r}") from error
        self._seeds, self._steps = seeds, steps
        self._observations = turn.observations
        self._turn = turn
        return turn

    def close(self) -> None:
        """Free nothing: there is no environment."""

    def _identity(self) -> dict[str, Any]:
        """Return what must be equal where a snapshot is restored."""
        config = self._config
        return {
            "environment": "dummy-v1",
            "slots": self.num_slots,
            "episode length": config.episode_length,
            "obs dim": config.obs_dim,
            "actions": config.num_actions,
            "image": config.image,
        }

    def _finish(
        self, rewards: FloatArray, terminated: BoolArray
    ) -> tuple[Leaves | None, tuple[dict[str, Any], ...]]:
        """Count the step and, where episodes ended, start the next ones."""
        self._episodes.add(rewards, None)
        if not terminated.any():
            return None, ()
        ended = np.flatnonzero(terminated)
        finals = tuple(leaf[ended] for leaf in self._observations)
        self._steps[ended] = 0
        self._seeds[ended] = _mix(self._seeds[ended] + np.uint64(1))
        self._observations = self._observe()
        return finals, self._episodes.finish(ended, [{}] * len(ended))

    def _observe(self) -> Leaves:
        """Compute the current observation of every slot."""
        lanes = np.arange(self._config.obs_dim, dtype=np.uint64)
        steps = self._steps.astype(np.uint64)
        mixed = _mix(self._seeds[:, None] + _mix(steps[:, None] * np.uint64(0x10001) + lanes))
        state = (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
        state[:, 0] = self._steps / self._config.episode_length
        if self._config.image is None:
            return (state,)
        shade = (mixed[:, 0] & np.uint64(0xFF)).astype(np.uint8)
        image = np.empty((self.num_slots, *self._config.image), np.uint8)
        image[:] = shade[:, None, None, None]
        return image, state


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64-bit numbers; source: the finaliser of SplitMix64 (Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def make_driver(config: DummyConfig, num_envs: int) -> EnvDriver:
    """Build one group of ``num_envs`` slots."""
    return DummyDriver(config, num_envs)


def _facts(config: DummyConfig) -> Mapping[str, Any]:
    return {"episode_length": config.episode_length}


PROVIDER = EnvProvider(
    name="dummy-v1",
    summary="fixed episode lengths, for trying connections and speed",
    config_type=DummyConfig,
    env_id=lambda _: "dummy-v1",
    make=make_driver,
    facts=_facts,
)
