"""`PolicyClient`, the door for a program that owns its loop: a robot, a game, a browser bridge.

The program asks with `act` and reports with `observe`; one message per action travels. With a safe
action the program is never kept waiting: after a time limit it gets that action instead, and what
comes of it is not trained on. This module steps no environment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from royale_client.driver import EnvValue, Leaves, Turn, farewell, take_rows
from royale_client.driver_episodes import EpisodeTracker
from royale_client.driver_infos import mask_row
from royale_client.driver_leaves import ActionBuffer, BatchReader
from royale_client.hello import describe_client
from royale_client.policy_link import Dial, PolicyLink
from royale_client.reconnect import Patience
from royale_client.transport import ServerAddress
from royale_client.websocket_transport import connect
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import ConfigError
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.limits import Limits
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    leaves,
    mask_size,
    unflatten_one,
)

Metrics: TypeAlias = Mapping[str, Any]

_SPEC_CLASSES = (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    TupleSpec,
)


class PolicyClient:
    """Asks a server for actions and reports what came of them.

    Without ``num_slots`` there is one slot and every value is a single one; with it, every value
    has a leading dimension of that many slots (a dict or tuple of such arrays for nested spaces).

    When the server is away: without a safe action `act` waits for it as long as ``patience`` says;
    if only the connection broke, the session goes on over the next one, and no frame is lost.
    With one, `act` returns it after ``act_timeout_s``; the session is then given up and a new one
    is prepared in the background, without an end. The frame of the action under way is lost, and no
    frame is made of a safe action: the next request says nothing of what it led to. A learn step
    that takes longer than ``act_timeout_s`` has the same effect, so choose it longer than learning
    takes if you can.

    Args:
        url: ``ws://HOST:PORT`` or ``wss://HOST:PORT`` of the server, or ``unix:///PATH``.
        observation_space: A Gymnasium space or a SpaceSpec, of one slot.
        action_space: A Gymnasium space or a SpaceSpec, of one slot.
        num_slots: Number of slots; None for one, without a leading dimension.
        masks: Whether `act` is always given a mask of legal actions.
        env_id: Name of the environment, the same for all clients of a run.
        env_digest: What tells versions and settings of the environment apart, such as a version
            number: the server refuses a client whose digest is another. Empty: it cannot, and
            warns.
        client_name: Stable name; None builds one from host and environment.
        role: ``train`` or ``eval``.
        safe_action: What `act` returns when the server is away; in the form `act` returns.
        act_timeout_s: Seconds after which `act` returns the safe action.
        patience: How long to go on trying to reach the server.
        episode_metrics: Numbers that `observe` may be given when an episode ends.
        float16_observations: Send float32 and float64 observations as float16: half or a quarter of
            the bytes, 3 digits; a number beyond 65504 is refused.
        token: Token of the server, if it wants one.
        proxy: Proxy to go through; None connects directly.
        tls_ca: PEM file of who may vouch for a ``wss://`` server; None takes the system's.
        dial: Opens a connection; None connects to ``url``.

    Raises:
        ConfigError: If a space cannot travel or options contradict each other.

    Example:
        >>> with PolicyClient(url, env.observation_space, env.action_space) as policy:
        ...     observation, info = env.reset()
        ...     while running:
        ...         action = policy.act(observation)
        ...         observation, reward, terminated, truncated, info = env.step(action)
        ...         policy.observe(reward, terminated, truncated, observation)
        ...         if terminated or truncated:
        ...             observation, info = env.reset()
    """

    def __init__(
        self,
        url: str,
        observation_space: EnvValue,
        action_space: EnvValue,
        *,
        num_slots: int | None = None,
        masks: bool = False,
        env_id: str = "custom",
        env_digest: str = "",
        client_name: str | None = None,
        role: str = "train",
        safe_action: EnvValue = None,
        act_timeout_s: float = 1.0,
        patience: Patience | None = None,
        episode_metrics: Sequence[EpisodeMetric] = (),
        float16_observations: bool = False,
        token: str | None = None,
        proxy: str | None = None,
        tls_ca: str | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.observation_space, _ = _spec_of(observation_space)
        self.action_space, dtypes = _spec_of(action_space)
        self._is_single = num_slots is None
        self._num_slots = 1 if num_slots is None else num_slots
        self._mask_size = mask_size(self.action_space) if masks else None
        if self._num_slots < 1 or (masks and self._mask_size is None):
            raise ConfigError(
                f"num_slots={num_slots}, masks={masks}: expected at least one slot, and masks only "
                "with a Discrete or MultiDiscrete action space"
            )
        self._safe_action = safe_action
        self._act_timeout_s = act_timeout_s
        self._reader = BatchReader(self.observation_space, self._num_slots)
        self._actions = ActionBuffer(self.action_space, self._num_slots, dtypes)
        self._episodes = EpisodeTracker(self._num_slots, time.monotonic)
        self._outcome: _Outcome | None = None
        self._has_acted = False
        self._is_safe = False
        hello = describe_client(
            self.observation_space,
            self.action_space,
            groups=(self._num_slots,),
            masks=masks,
            episode_metrics=episode_metrics,
            client_name=client_name,
            env_id=env_id,
            env_digest=env_digest,
            role=role,
            features=(RECONNECT,),
            float16_observations=float16_observations,
        )
        address, limits = ServerAddress(url=url, token=token, proxy=proxy, tls_ca=tls_ca), Limits()
        patience = patience or Patience()
        if safe_action is not None:
            patience = replace(patience, budget_s=math.inf)
        self._link = PolicyLink(hello, dial or (lambda: connect(address, limits)), limits, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(None if error is None else f"{type(error).__name__}: {error}")

    @property
    def policy_version(self) -> int | None:
        """Completed learn steps of the policy that chose the last action; None before the first."""
        return self._link.policy_version

    def act(self, observation: EnvValue, mask: EnvValue = None) -> EnvValue:
        """Return the action for an observation.

        Args:
            observation: Current observation; after the end of an episode, the first of the next.
            mask: Legal actions, if ``masks`` was declared: one number or bool per action.

        Returns:
            An action in the exact dtype and shape of the action space, or the safe action.

        Raises:
            ServerStoppedError: If the server ended the run (unless patience is for ever).
            RoyaleError: If the server refused something or cannot be reached.
        """
        if self._has_acted:
            raise RuntimeError("act() was called twice: report the action with observe() between")
        turn = self._turn(self._read(observation), self._read_mask(mask))
        timeout_s = None if self._safe_action is None else self._act_timeout_s
        answer = self._link.exchange(turn, timeout_s)
        self._has_acted, self._is_safe = True, answer is None
        return self._safe_action if answer is None else self._unpack(answer.actions)

    def observe(
        self,
        reward: EnvValue,
        terminated: EnvValue,
        truncated: EnvValue,
        observation: EnvValue,
        metrics: Metrics | Sequence[Metrics] | None = None,
    ) -> None:
        """Report what the last action led to.

        Args:
            reward: Reward of the action.
            terminated: Whether the episode reached its own end.
            truncated: Whether the episode was cut off.
            observation: Observation after the action; if the episode ended, its last one.
            metrics: Declared episode metrics if the episode ended (a list, one per slot).
        """
        if not self._has_acted:
            raise RuntimeError("observe() was called without an action: call act() first")
        rewards = np.asarray(reward, np.float64).reshape(self._num_slots)
        ends = [np.asarray(f, np.bool_).reshape(self._num_slots) for f in (terminated, truncated)]
        self._episodes.add(rewards, None)
        ended = np.flatnonzero(ends[0] | ends[1])
        given = self._rows_of(metrics)
        episodes = self._episodes.finish(ended, [given[row] for row in ended.tolist()])
        self._has_acted = False
        # A safe action belongs to no frame: the next request starts without a last action.
        self._outcome = (
            None
            if self._is_safe
            else _Outcome(rewards, ends[0], ends[1], self._read(observation), episodes)
        )

    def close(self, exception: str | None = None) -> None:
        """Report the last step, say goodbye and disconnect.

        Args:
            exception: Text of the exception that ends the program, if one does.
        """
        turn = None
        if self._outcome is not None and not self._has_acted:
            observations = self._outcome.observations
            is_open = ~(self._outcome.terminated | self._outcome.truncated)
            masks = None if self._mask_size is None else np.ones((0, self._mask_size), np.bool_)
            turn = farewell(self._turn(observations, masks), is_open, observations)
        self._link.close(turn, exception)

    def _turn(self, observations: Leaves, masks: npt.NDArray[np.bool_] | None) -> Turn:
        outcome = self._outcome
        if outcome is None:
            return Turn.first(observations, masks)
        ended = outcome.terminated | outcome.truncated
        return Turn(
            asks=None,
            observations=observations,
            masks=masks,
            rewards=outcome.rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            final_observations=take_rows(outcome.observations, ended) if ended.any() else None,
            episodes=outcome.episodes,
        )

    def _read(self, observation: EnvValue) -> Leaves:
        if self._is_single:
            return self._reader.read_rows([observation])
        return self._reader.read(observation)

    def _read_mask(self, mask: EnvValue) -> npt.NDArray[np.bool_] | None:
        if self._mask_size is None:
            if mask is not None:
                raise ConfigError("act() got a mask, but the client was made without masks=True")
            return None
        if mask is None:
            raise ConfigError("act() got no mask, but the client was made with masks=True")
        rows = [mask] if self._is_single else mask
        return np.stack([mask_row(row, self._mask_size) for row in rows])

    def _rows_of(self, metrics: Metrics | Sequence[Metrics] | None) -> list[Metrics]:
        if metrics is None:
            return [{}] * self._num_slots
        rows = [metrics] if isinstance(metrics, Mapping) else list(metrics)
        if len(rows) != self._num_slots:
            raise ConfigError(f"observe() got {len(rows)} metrics, expected {self._num_slots}")
        return rows

    def _unpack(self, actions: Leaves) -> EnvValue:
        self._actions.put(None, actions)
        if not self._is_single:
            return self._actions.value()
        return unflatten_one(self.action_space, [leaf[0] for leaf in self._actions.leaves])


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the program reported about the last action of every slot."""

    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    observations: Leaves
    episodes: tuple[dict[str, Any], ...]


def _spec_of(space: EnvValue) -> tuple[SpaceSpec, list[np.dtype[Any]]]:
    """Return a space's description and the dtype the program expects per leaf."""
    if isinstance(space, _SPEC_CLASSES):
        return space, [leaf.dtype for leaf in leaves(space)]
    from royale_client.space_conversion import leaf_dtypes, to_spec

    return to_spec(space), leaf_dtypes(space)
