"""What a client needs of its environments: the EnvDriver protocol and the Turn it returns.

A driver steps all environments of one group at once and says what happened in the one meaning the
wire knows, whatever autoreset rule the environments follow. It never talks to a server.

Shapes: n = slots of the group, m = rows that ask, e = rows whose episode ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import RoyaleError
from royale_client.wire.probes import ProbeAnswer
from royale_client.wire.seating import SeatAssignment
from royale_client.wire.spaces import SpaceSpec

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Leaves = tuple[npt.NDArray[Any], ...]
EnvValue: TypeAlias = Any
"""Whatever an environment hands over or takes; nothing is known of it before it is read."""


class EnvContractError(RoyaleError):
    """An environment broke its own description: shape, dtype, structure or a missing value."""


class EnvFailedError(RoyaleError):
    """An environment raised an exception of its own; the original is the cause."""


class SnapshotError(RoyaleError):
    """Environments cannot be snapshotted, or a snapshot is not one of theirs; a sentence."""


# One is made for every request, and a frozen dataclass takes four times as long to make.
class Turn(NamedTuple):
    """Everything one request says about a group; as good as its driver's next step or reset.

    A driver may hand out arrays that the environments write into when they are stepped again.
    """

    asks: BoolArray | None
    """Rows that want an action, shape ``[n]``; None when all do."""
    observations: Leaves
    """One array per leaf, rows of the asking rows only, shape ``[m, ...]``."""
    masks: BoolArray | None
    """Legal actions of the asking rows, shape ``[m, mask_size]``; None when none are declared."""
    rewards: FloatArray | None
    """Reward of each row's last action, shape ``[n]``; None when no row has a last action."""
    terminated: BoolArray | None
    """Rows whose episode reached its own end, shape ``[n]``."""
    truncated: BoolArray | None
    """Rows whose episode was cut off, shape ``[n]``."""
    final_observations: Leaves | None
    """True last observations of the ended rows, in row order, shape ``[e, ...]``; None if e = 0."""
    episodes: tuple[Mapping[str, Any], ...] = ()
    """One record per finished episode: row, return, length, time_s, metrics."""
    frames: int = 0
    """Actions carried out in this turn."""
    env_time_s: float = 0.0
    """Time the environments took, in seconds."""

    @classmethod
    def first(cls, observations: Leaves, masks: BoolArray | None, env_time_s: float = 0.0) -> Turn:
        """Return the turn of fresh episodes, in which every row asks and none has acted."""
        return cls(
            asks=None,
            observations=observations,
            masks=masks,
            rewards=None,
            terminated=None,
            truncated=None,
            final_observations=None,
            env_time_s=env_time_s,
        )

    def already_reported(self) -> Turn:
        """Return this turn as it may be sent again: its episodes were told once already.

        A server that lost the session has recorded them; one that never got them loses a record,
        which is better than counting an episode twice.
        """
        return self._replace(episodes=()) if self.episodes else self

    def without_outcome(self) -> Turn:
        """Return what this turn asks, as the first request of another run."""
        return self._replace(
            rewards=None,
            terminated=None,
            truncated=None,
            final_observations=None,
            episodes=(),
            frames=0,
        )


class EnvDriver(Protocol):
    """The environments of one group, stepped together."""

    @property
    def num_slots(self) -> int:
        """Number of agent seats."""

    @property
    def num_seats(self) -> int:
        """Seats of one environment, which are slots that follow each other, seat 0 first."""

    @property
    def observation_space(self) -> SpaceSpec:
        """Space of one slot's observation."""

    @property
    def action_space(self) -> SpaceSpec:
        """Space of one slot's action."""

    @property
    def has_masks(self) -> bool:
        """Whether every observation comes with a mask of legal actions."""

    @property
    def episode_metrics(self) -> Sequence[EpisodeMetric]:
        """Metrics that episode records of this environment carry."""

    @property
    def snapshot_obstacle(self) -> str | None:
        """Why these environments cannot be snapshotted, as a sentence; None when they can."""

    def reset(self, seeds: npt.NDArray[np.uint64]) -> Turn:
        """Begin a new episode in every slot.

        Args:
            seeds: One per slot, shape ``[n]``.
        """

    def step(self, actions: Leaves) -> Turn:
        """Carry out the actions of the rows that asked, and return what came of it.

        Args:
            actions: One array per leaf of the action space, shape ``[m, ...]``, m the number of
                rows that asked in the turn before.
        """

    def last_turn(self) -> Turn | None:
        """Return the newest turn once more as a farewell, or None if no slot has acted in it.

        Every episode still open is truncated with its current observation as the final one, and
        nobody asks.
        """

    def snapshot(self) -> bytes:
        """Return everything that decides the future of the environments and of this driver.

        The last turn is part of it, without its episode records: those were reported. Actions that
        follow lead to the same turns, byte for byte, after a `restore`, also in another process.

        Raises:
            SnapshotError: If there is an obstacle, or no episode has begun yet.
        """

    def restore(self, state: bytes) -> Turn:
        """Go back to where `snapshot` was called, on a driver built in the same way.

        Returns:
            The last turn, exactly as it was.

        Raises:
            SnapshotError: If the state is damaged or not of such environments, or an environment
                refused it. The driver can be reset then, and does nothing else before.
        """

    def close(self) -> None:
        """Free the environments."""


@runtime_checkable
class SeatedDriver(EnvDriver, Protocol):
    """A driver of environments with several seats that lets the server say who plays them.

    A driver that has these two members follows assignments. Without them the policy that learns
    plays every seat. Each slot has a queue of assignments, one an episode; an episode that begins,
    by `reset` or by itself, takes the next. The server sends them one episode ahead, so that the
    queue is never empty then.

    A seat of `Player.SCRIPTED` is played by the driver itself with the bot of that name: its row
    does not ask as long as the episode runs. The rows of all other seats ask and get actions; who
    plays them is for display only. When an episode ends, it ends for every seat of the environment
    in the same turn, bots included, and each row of the turn then asks, or does not, by the
    assignment of its next episode. A snapshot of the driver holds its queues.
    """

    @property
    def bots(self) -> Sequence[str]:
        """Names of the scripted bots that it can play."""

    def assign(self, assignments: Sequence[SeatAssignment], *, afresh: bool) -> None:
        """Take further assignments.

        Args:
            assignments: In the order of their episodes; ``slot`` is a row of this group.
            afresh: Forget all earlier ones: a `reset` follows.
        """


@runtime_checkable
class ProbedDriver(EnvDriver, Protocol):
    """A driver that answers what the server asks about its environments before anybody acts.

    Probes come before the first `reset` or between two sessions, never during a turn.
    """

    def probe(self, question: str) -> ProbeAnswer:
        """Answer one question by trying, without touching the environments that are stepped.

        Args:
            question: One of ``royale_client.wire.probes.QUESTIONS``.

        Raises:
            ValueError: If the question is unknown.
        """


@runtime_checkable
class DiscountedDriver(EnvDriver, Protocol):
    """A driver whose rewards depend on the discount of the learner, as shaping by a potential does.

    A driver that has this member is told the discount before the first step whose rewards will be
    learnt from with it, and again whenever it changes.
    """

    def discount(self, gamma: float) -> None:
        """Take the discount of a frame of everything that is stepped from here on.

        Args:
            gamma: In [0, 1]; what the learner will discount these very frames with.
        """


def take_rows(leaves: Leaves, rows: npt.NDArray[Any]) -> Leaves:
    """Copy the given rows (indices or a bool mask) of every leaf."""
    indices = rows.nonzero()[0] if rows.dtype == np.bool_ else rows
    return tuple([leaf.take(indices, axis=0) for leaf in leaves])


def farewell(turn: Turn, is_open: BoolArray, observations: Leaves) -> Turn:
    """Return ``turn`` with every open episode truncated at its current observation, nobody asking.

    Args:
        turn: The newest turn of the group, with rewards.
        is_open: Rows that acted in it and did not end, shape ``[n]``.
        observations: Current observation of every row, shape ``[n, ...]``.
    """
    assert turn.terminated is not None
    assert turn.truncated is not None
    ended = turn.terminated | turn.truncated
    finals = observations
    if turn.final_observations is not None:
        finals = tuple(leaf.copy() for leaf in observations)
        for leaf, known in zip(finals, turn.final_observations, strict=True):
            leaf[ended] = known
    now_ended = ended | is_open
    return Turn(
        asks=np.zeros(len(ended), np.bool_),
        observations=tuple(leaf[:0] for leaf in observations),
        masks=None if turn.masks is None else turn.masks[:0],
        rewards=turn.rewards,
        terminated=turn.terminated,
        truncated=turn.truncated | is_open,
        final_observations=take_rows(finals, now_ended) if now_ended.any() else None,
        episodes=turn.episodes,
        frames=turn.frames,
        env_time_s=turn.env_time_s,
    )
