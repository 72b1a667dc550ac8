"""EnvDriver over a Gymnasium vector environment of any autoreset rule.

Everything is done for all rows at once: the number of Python calls per request does not depend on
the number of environments (what the environment itself does, and work per ended episode, aside).
It never wraps or changes the environment it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from royale_client.driver import (
    BoolArray,
    EnvContractError,
    EnvValue,
    FloatArray,
    Leaves,
    SnapshotError,
    Turn,
    farewell,
    take_rows,
)
from royale_client.driver_autoreset import (
    AnyVectorEnv,
    Transition,
    autoreset_mode,
    make_autoreset,
)
from royale_client.driver_episodes import EpisodeTracker
from royale_client.driver_infos import (
    MASK_KEY,
    MASK_METHOD,
    MaskReader,
    MetricReader,
    mask_row,
)
from royale_client.driver_leaves import ActionBuffer, BatchReader, NonFiniteWatch
from royale_client.driver_serial import hands_out_rows
from royale_client.envs.digest import package_version
from royale_client.snapshots.document import (
    check_leaves,
    check_like,
    describe_space,
    read_document,
    turn_from_plain,
    turn_to_plain,
    write_document,
)
from royale_client.snapshots.stack import Stack
from royale_client.space_conversion import leaf_dtypes, to_spec
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import SpaceSpec, mask_size

MaskChoice = Literal["auto", "on", "off"]

# Many simulators take a signed 32-bit seed.
_SEED_BITS = np.uint64(0x7FFF_FFFF)


class GymnasiumDriver:
    """Steps one Gymnasium vector environment as a group of slots.

    Args:
        env: The environment. Its observations may be reused buffers.
        autoreset: ``next_step``, ``same_step`` or ``disabled`` if its metadata do not say so.
        action_mask: ``auto`` declares masks if the first reset gives them, ``on`` insists,
            ``off`` ignores them.
        episode_metrics: Infos to put into the record of an episode when it ends.
        clock: Monotonic time in seconds.

    Raises:
        ConfigError: If a space cannot travel, or the autoreset rule or the masks are unclear.
        EnvContractError: If the first reset does not fit the spaces.
    """

    def __init__(
        self,
        env: AnyVectorEnv,
        *,
        autoreset: str | None = None,
        action_mask: MaskChoice = "auto",
        episode_metrics: Sequence[EpisodeMetric] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._env = env
        self._clock = clock
        self.num_slots: int = env.num_envs
        self.num_seats = 1
        self.observation_space: SpaceSpec = to_spec(env.single_observation_space)
        self.action_space: SpaceSpec = to_spec(env.single_action_space)
        self.episode_metrics = tuple(episode_metrics)
        mode = autoreset_mode(env, autoreset)
        self._reader = BatchReader(self.observation_space, self.num_slots)
        dtypes = leaf_dtypes(env.single_action_space)
        self._actions = ActionBuffer(
            self.action_space, self.num_slots, dtypes, hands_out_rows=hands_out_rows(env)
        )
        self._masks, self._mask_method = self._find_masks(action_mask)
        info_masks = None if self._mask_method is not None else self._masks
        self._rule = make_autoreset(mode, env, self._reader, info_masks)
        self._episodes = EpisodeTracker(self.num_slots, clock)
        self._metrics = MetricReader(self.episode_metrics)
        self._watch = NonFiniteWatch(self.observation_space, self.num_slots)
        self._observations: Leaves = ()
        self._asking: BoolArray | None = None
        self._acted: BoolArray | None = None
        self._turn: Turn | None = None
        self._stack = Stack(env)
        self.snapshot_obstacle: str | None = self._stack.obstacle()
        self._identity = {
            "environment": _name(env),
            "slots": self.num_slots,
            "observation space": describe_space(self.observation_space),
            "action space": describe_space(self.action_space),
            "autoreset": mode.value,
            "masks": self.has_masks,
            "versions": {name: package_version(name) for name in ("gymnasium", "mujoco", "numpy")},
        }

    @property
    def has_masks(self) -> bool:
        """Whether every observation comes with a mask of legal actions."""
        return self._masks is not None

    def reset(self, seeds: npt.NDArray[np.uint64]) -> Turn:
        """Begin a new episode in every slot; see `EnvDriver.reset`."""
        started_s = self._clock()
        value, infos = self._env.reset(seed=self._seed(seeds))
        self._observations = self._reader.read(value)
        self._update_masks(infos)
        self._asking = None
        self._episodes.begin_all()
        self._look(self._observations, np.zeros(self.num_slots))
        masks = None if self._masks is None else self._masks.masks
        self._turn = Turn.first(self._observations, masks, self._clock() - started_s)
        return self._turn

    def step(self, actions: Leaves) -> Turn:
        """Carry out the actions of the rows that asked; see `EnvDriver.step`."""
        acted = self._asking
        self._actions.put(acted, actions)
        value = self._actions.value()
        started_s = self._clock()
        transition = self._rule.step(value, acted)
        env_time_s = self._clock() - started_s
        if self._mask_method is not None and self._masks is not None:
            self._masks.masks = self._mask_method()
        self._turn = self._record(transition, acted, len(actions[0]), env_time_s)
        return self._turn

    def last_turn(self) -> Turn | None:
        """Return the newest turn as a farewell; see `EnvDriver.last_turn`."""
        turn = self._turn
        if turn is None or turn.terminated is None or turn.truncated is None:
            return None
        # A row that did not act in this turn has nothing open: it was only just reset.
        ended = turn.terminated | turn.truncated
        is_open = ~ended if self._acted is None else self._acted & ~ended
        return farewell(turn, is_open, self._observations)

    def snapshot(self) -> bytes:
        """Return everything that decides what comes next; see `EnvDriver.snapshot`."""
        if self._turn is None:
            raise SnapshotError("an environment cannot be snapshotted before its first reset")
        state = {
            "turn": turn_to_plain(self._turn),
            "acted": self._acted,
            "observations": self._observations,
            "masks": None if self._masks is None else self._masks.masks,
            "actions": self._actions.leaves,
            "episodes": self._episodes.snapshot(),
            "environments": self._stack.read(),
        }
        try:
            return write_document(self._identity, state)
        except SnapshotError as error:
            # The obstacle names the environment's class; the error only a place in the snapshot.
            raise SnapshotError(self._stack.obstacle() or str(error)) from error

    def restore(self, state: bytes) -> Turn:
        """Go back to where a snapshot was taken; see `EnvDriver.restore`."""
        saved = read_document(state, self._identity)
        self._turn = None
        try:
            turn = turn_from_plain(saved["turn"], self.num_slots, self.observation_space)
            check_leaves(saved["observations"], self.num_slots, self.observation_space)
            check_like("actions", saved["actions"], self._actions.leaves)
            acted = saved["acted"]
            if self._masks is not None:
                check_like("masks", [saved["masks"]], [self._masks.masks])
            self._stack.check(saved["environments"])
            self._episodes.restore(saved["episodes"])
            self._stack.write(saved["environments"])
        except SnapshotError:
            raise
        # An environment's own method may raise anything; the next reset sets everything anew.
        except Exception as error:
            raise SnapshotError(f"the environments refused the snapshot: {error!r}") from error
        if self._masks is not None:
            self._masks.masks = saved["masks"]
        self._actions.leaves = saved["actions"]
        self._observations, self._acted = saved["observations"], acted
        self._asking = turn.asks
        self._turn = turn
        return turn

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _record(
        self, transition: Transition, acted: BoolArray | None, frames: int, env_time_s: float
    ) -> Turn:
        """Count a transition and put it into the form of a turn."""
        self._acted = acted
        self._episodes.add(transition.rewards, acted)
        self._look(transition.observations, transition.rewards)
        episodes: tuple[dict[str, Any], ...] = ()
        if len(transition.ended):
            metrics = self._metrics.read(transition.final_infos, transition.ended)
            episodes = self._episodes.finish(transition.ended, metrics)
        asking = transition.asking
        self._observations, self._asking = transition.observations, asking
        masks = None if self._masks is None else self._masks.masks
        return Turn(
            asks=asking,
            observations=(
                transition.observations
                if asking is None
                else take_rows(transition.observations, asking)
            ),
            masks=masks if masks is None or asking is None else masks[asking],
            rewards=transition.rewards,
            terminated=transition.terminated,
            truncated=transition.truncated,
            final_observations=transition.final_observations or None,
            episodes=episodes,
            frames=frames,
            env_time_s=env_time_s,
        )

    def _look(self, observations: Leaves, rewards: FloatArray) -> None:
        if not self._watch.is_finite(observations, rewards):
            self._watch.report(observations, rewards, self._episodes.lengths)

    def _seed(self, seeds: npt.NDArray[np.uint64]) -> EnvValue:
        """Return the seeds as the environment takes them: a list, or one for the batch."""
        numbers = (seeds & _SEED_BITS).tolist()
        takes_list = isinstance(self._env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        return numbers if takes_list else numbers[0]

    def _find_masks(
        self, choice: MaskChoice
    ) -> tuple[MaskReader | None, Callable[[], BoolArray] | None]:
        """Find out by a first reset where masks come from, if from anywhere."""
        size = mask_size(self.action_space)
        if choice == "off" or (size is None and choice == "auto"):
            return None, None
        if size is None:
            raise ConfigError(
                "--action-mask on: the action space is neither Discrete nor MultiDiscrete, so "
                "there is nothing to mask"
            )
        _, infos = self._env.reset(seed=self._seed(np.arange(self.num_slots, dtype=np.uint64)))
        reader = MaskReader(self.num_slots, size)
        if MASK_KEY in infos:
            return reader, None
        method = self._find_mask_method(size, insist=choice == "on")
        if method is not None:
            return reader, method
        if choice == "auto":
            return None, None
        raise ConfigError(
            f"--action-mask on: the environment gives neither info[{MASK_KEY!r}] on reset nor a "
            f"method {MASK_METHOD}()"
        )

    def _find_mask_method(self, size: int, *, insist: bool) -> Callable[[], BoolArray] | None:
        """Return a function that asks for all masks, if the environments have such a method.

        The parts of an AsyncVectorEnv live in other processes and break when asked for what they do
        not have, so they are only asked if the user insists.
        """
        env: Any = self._env.unwrapped
        if callable(getattr(env, MASK_METHOD, None)):
            return lambda: self._whole_batch(getattr(env, MASK_METHOD)(), size)
        if isinstance(env, SyncVectorEnv):
            has_method = env.envs[0].has_wrapper_attr(MASK_METHOD)
        else:
            has_method = insist and isinstance(env, AsyncVectorEnv)
        return (lambda: self._whole_batch(env.call(MASK_METHOD), size)) if has_method else None

    def _whole_batch(self, masks: EnvValue, size: int) -> BoolArray:
        if isinstance(masks, np.ndarray) and masks.shape == (self.num_slots, size):
            return np.asarray(masks != 0)
        if len(masks) != self.num_slots:
            raise EnvContractError(
                f"{MASK_METHOD}() gave {len(masks)} masks, expected {self.num_slots}"
            )
        return np.stack([mask_row(mask, size) for mask in masks])

    def _update_masks(self, infos: EnvValue) -> None:
        if self._masks is None:
            return
        if self._mask_method is not None:
            self._masks.masks = self._mask_method()
        else:
            self._masks.update(infos)


def _name(env: AnyVectorEnv) -> str:
    """Return the id an environment was made with, or the name of its class."""
    base: Any = env.unwrapped
    if isinstance(base, SyncVectorEnv):
        base = base.envs[0].unwrapped
    return base.spec.id if base.spec is not None else type(base).__name__
