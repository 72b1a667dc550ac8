"""The three autoreset rules of Gymnasium's vector environments, turned into one meaning.

Each rule steps the environments and reports a Transition: which rows ended, with which true last
observation, and which rows now have an observation to act on. The rule is read from the
environment's metadata and never guessed.

    NEXT_STEP   an ended row is reset by the *next* step, which ignores its action: in between the
                row does not ask
    SAME_STEP   an ended row is reset by the same step; its last observation comes in the infos
    DISABLED    an ended row is reset by us, by a mask, right after the step
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from royale_client.driver import (
    BoolArray,
    EnvContractError,
    EnvValue,
    FloatArray,
    Leaves,
    take_rows,
)
from royale_client.driver_infos import FINAL_INFO_KEY, MaskReader, final_rows
from royale_client.driver_leaves import BatchReader
from royale_client.wire.errors import ConfigError

AnyVectorEnv = VectorEnv[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one step of a vector environment came to, n rows, e of them ended."""

    observations: Leaves
    """Current observation of every row, shape ``[n, ...]``."""
    rewards: FloatArray
    """Shape ``[n]``; 0 in rows that did not act."""
    terminated: BoolArray
    """Shape ``[n]``."""
    truncated: BoolArray
    """Shape ``[n]``."""
    ended: npt.NDArray[np.int64]
    """Indices of the ended rows, shape ``[e]``."""
    final_observations: Leaves
    """True last observations of the ended rows, shape ``[e, ...]``; empty tuple if none ended."""
    final_infos: Mapping[Any, Any]
    """Infos of the steps in which the ended rows ended."""
    asking: BoolArray | None
    """Rows with an observation to act on, shape ``[n]``; None for all."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The raw outcome of a step with checked shapes; silent rows have no part in it."""

    observations: Leaves
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    infos: Mapping[Any, Any]
    raw_ended: BoolArray

    @property
    def ended(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.terminated | self.truncated)


class Autoreset(Protocol):
    """One rule: steps the environments and reports the transition."""

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        """Step every environment.

        Args:
            actions: Batched action as the environment wants it.
            acted: Rows whose action is a real one, shape ``[n]``; None for all.
        """


def autoreset_mode(env: AnyVectorEnv, declared: str | None) -> AutoresetMode:
    """Return the rule of a vector environment from what it or its user declares.

    Args:
        env: The environment; its metadata is asked.
        declared: The user's word, which wins: ``next_step``, ``same_step`` or ``disabled``.

    Raises:
        ConfigError: If neither says a known rule.
    """
    said = declared or (env.metadata or {}).get("autoreset_mode")
    if isinstance(said, AutoresetMode):
        return said
    wanted = str(getattr(said, "value", said)).replace("_", "").lower()
    for mode in AutoresetMode:
        if mode.value.lower() == wanted:
            return mode
    raise ConfigError(
        f"vector environment {env}: metadata['autoreset_mode'] is {said!r}, expected NEXT_STEP, "
        "SAME_STEP or DISABLED; a wrong guess would train on frames that never happened, so say "
        "it: --autoreset-mode next_step|same_step|disabled (serve_env: autoreset_mode=...)"
    )


def make_autoreset(
    mode: AutoresetMode, env: AnyVectorEnv, reader: BatchReader, masks: MaskReader | None
) -> Autoreset:
    """Return the rule ``mode`` for an environment."""
    rules: dict[AutoresetMode, type[_Rule]] = {
        AutoresetMode.NEXT_STEP: _NextStep,
        AutoresetMode.SAME_STEP: _SameStep,
        AutoresetMode.DISABLED: _Disabled,
    }
    return rules[mode](env, reader, masks)


class _Rule:
    """What the three rules share: one step, with everything checked once."""

    def __init__(self, env: AnyVectorEnv, reader: BatchReader, masks: MaskReader | None) -> None:
        self._env = env
        self._reader = reader
        self._masks = masks

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        raise NotImplementedError

    def _step(self, actions: EnvValue, acted: BoolArray | None) -> _Outcome:
        observations, rewards, terminated, truncated, infos = self._env.step(actions)
        ended_flags = [self._flags("terminated", terminated), self._flags("truncated", truncated)]
        summed = self._rewards(rewards)
        raw_ended = ended_flags[0] | ended_flags[1]
        if acted is not None:
            summed = np.where(acted, summed, 0.0)
            ended_flags = [flags & acted for flags in ended_flags]
        return _Outcome(
            observations=self._reader.read(observations),
            rewards=summed,
            terminated=ended_flags[0],
            truncated=ended_flags[1],
            infos=infos if isinstance(infos, Mapping) else {},
            raw_ended=raw_ended,
        )

    def _flags(self, name: str, value: EnvValue) -> BoolArray:
        flags = np.asarray(value)
        if flags.shape != (self._env.num_envs,) or flags.dtype.kind not in "biu":
            raise EnvContractError(
                f"{name}: got shape {flags.shape} of dtype {flags.dtype}, expected "
                f"({self._env.num_envs},) bools"
            )
        return flags.astype(np.bool_)

    def _rewards(self, value: EnvValue) -> FloatArray:
        rewards = np.asarray(value)
        if rewards.shape != (self._env.num_envs,) or rewards.dtype.kind not in "biuf":
            raise EnvContractError(
                f"reward: got shape {rewards.shape} of dtype {rewards.dtype}, expected "
                f"({self._env.num_envs},) numbers, one per environment"
            )
        return rewards.astype(np.float64)

    def _update_masks(self, infos: Mapping[Any, Any], asking: BoolArray | None) -> None:
        if self._masks is not None:
            self._masks.update(infos, asking)


class _NextStep(_Rule):
    """The environment resets an ended row in the step after, where nobody acts in it."""

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        outcome = self._step(actions, acted)
        asking = ~outcome.raw_ended if outcome.raw_ended.any() else None
        self._update_masks(outcome.infos, asking)
        ended = outcome.ended
        return Transition(
            observations=outcome.observations,
            rewards=outcome.rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            ended=ended,
            final_observations=take_rows(outcome.observations, ended) if len(ended) else (),
            final_infos=outcome.infos,
            asking=asking,
        )


class _SameStep(_Rule):
    """The environment resets an ended row at once and leaves its last observation in the infos."""

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        outcome = self._step(actions, acted)
        self._update_masks(outcome.infos, None)
        ended = outcome.ended
        finals: Leaves = ()
        final_infos: Any = {}
        if len(ended):
            finals = final_rows(outcome.infos, self._reader, ended)
            final_infos = outcome.infos.get(FINAL_INFO_KEY)
        return Transition(
            observations=outcome.observations,
            rewards=outcome.rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            ended=ended,
            final_observations=finals,
            final_infos=final_infos if isinstance(final_infos, Mapping) else {},
            asking=None,
        )


class _Disabled(_Rule):
    """We reset ended rows ourselves, so that no step and no request is spent on it."""

    def step(self, actions: EnvValue, acted: BoolArray | None) -> Transition:
        outcome = self._step(actions, acted)
        ended = outcome.ended
        observations = outcome.observations
        finals: Leaves = ()
        if not len(ended):
            self._update_masks(outcome.infos, None)
        else:
            # Copied before the reset, which may write into the same buffers.
            finals = take_rows(observations, ended)
            running = ~outcome.raw_ended
            self._update_masks(outcome.infos, running)
            observations = self._reset(outcome.raw_ended)
        return Transition(
            observations=observations,
            rewards=outcome.rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            ended=ended,
            final_observations=finals,
            final_infos=outcome.infos,
            asking=None,
        )

    def _reset(self, ended: BoolArray) -> Leaves:
        value, infos = self._env.reset(options={"reset_mask": ended.copy()})
        self._update_masks(infos, ended)
        return self._reader.read(value)
