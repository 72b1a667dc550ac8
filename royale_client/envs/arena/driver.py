"""EnvDriver over battles: slot 2 b + s is seat s of battle b, and both seats end together.

A battle that ended is begun anew at once, so every slot asks in every turn but those that a bot
plays. This module knows the client's side of the arena; the battles themselves are `batch`'s, and
who plays which seat is `seats`'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.driver import BoolArray, Leaves, SnapshotError, Turn, farewell, take_rows
from royale_client.driver_episodes import EpisodeTracker
from royale_client.envs.arena import probing
from royale_client.envs.arena.batch import ArenaBatch, IntArray
from royale_client.envs.arena.bots import make_bot
from royale_client.envs.arena.columns import VECTOR_SIZE
from royale_client.envs.arena.records import EPISODE_METRICS, episode_metrics
from royale_client.envs.arena.reward_config import RewardConfig
from royale_client.envs.arena.rules import ACTIONS, SEATS
from royale_client.envs.arena.seats import Seats
from royale_client.envs.arena.tensors import PLANES_SHAPE
from royale_client.envs.arena.watching import Watching
from royale_client.snapshots.document import (
    read_document,
    turn_from_plain,
    turn_to_plain,
    write_document,
)
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import RoyaleError
from royale_client.wire.probes import ProbeAnswer
from royale_client.wire.seating import SeatAssignment
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, SpaceSpec

OBSERVATION_SPACE = DictSpec(
    (
        ("planes", BoxSpec(0, 255, PLANES_SHAPE, np.uint8)),
        ("vector", BoxSpec(0.0, 1.0, (VECTOR_SIZE,), np.float32)),
    )
)
"""What a seat sees."""
ACTION_SPACE = DiscreteSpec(ACTIONS)
"""What a seat does; masks say what of it is legal."""

SHOWN = 0
"""The battle that spectators see."""


class ArenaDriver:
    """A group of battles, both seats of which are slots.

    Args:
        rewards: Weights of the reward.
        num_battles: Battles of the group.
        bots: Names of the bots that may be seated.
        identity: What must be equal where a snapshot is restored.
        clock: Monotonic seconds.

    Raises:
        ValueError: A bot that there is not.
    """

    def __init__(
        self,
        rewards: RewardConfig,
        num_battles: int,
        *,
        bots: Sequence[str],
        identity: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._new_batch = partial(ArenaBatch, rewards=rewards)
        self.batch = self._new_batch(num_battles)
        """The battles."""
        self.bots = tuple(bots)
        for name in bots:
            make_bot(name)  # refuses what there is not
        self.num_seats = SEATS
        self.num_slots = SEATS * num_battles
        self.has_masks = True
        self.snapshot_obstacle: str | None = None
        self.episode_metrics: tuple[EpisodeMetric, ...] = EPISODE_METRICS
        self.observation_space: SpaceSpec = OBSERVATION_SPACE
        self.action_space: SpaceSpec = ACTION_SPACE
        self._identity = {**identity, "slots": self.num_slots}
        self._episodes = EpisodeTracker(self.num_slots, clock)
        self._seats = Seats(self.num_slots)
        self.watching: Watching | None = None
        """Spectators of the first battle, from its next begin on."""
        self._asks: BoolArray | None = None
        self._turn: Turn | None = None

    def reset(self, seeds: npt.NDArray[np.uint64]) -> Turn:
        """Begin a new episode in every slot; see `EnvDriver.reset`."""
        started_s = self._clock()
        # A battle has one key; its other seat's seed is of no use.
        self.batch.reset(seeds[::SEATS].copy())
        self._episodes.begin_all()
        self._asks = self._seats.begin(np.arange(self.num_slots))
        self._show_begin()
        self._turn = Turn.first(*self._asked(), self._clock() - started_s)._replace(asks=self._asks)
        return self._turn

    def assign(self, assignments: Sequence[SeatAssignment], *, afresh: bool) -> None:
        """See `SeatedDriver.assign`."""
        self._seats.assign(assignments, afresh=afresh)

    def discount(self, gamma: float) -> None:
        """See `DiscountedDriver.discount`; a snapshot does not hold it, answers bring it again."""
        self.batch.rewards.gamma = gamma

    def step(self, actions: Leaves) -> Turn:
        """Carry out one decision of both seats of every battle; see `EnvDriver.step`."""
        started_s = self._clock()
        batch, acted = self.batch, self._asks
        chosen = self._seats.actions(batch.battles, acted, actions[0])
        over = batch.step(chosen)
        if self.watching is not None:
            self.watching.stage.add(batch.battles, SHOWN, chosen[SHOWN])
        rewards = batch.rewards.rewards.reshape(-1).copy()
        self._episodes.add(rewards, None)  # a bot acts, too, in a battle that it plays in
        terminated = np.zeros(self.num_slots, np.bool_)
        finals: Leaves | None = None
        episodes: tuple[Mapping[str, Any], ...] = ()
        if len(over):
            ended = _slots_of(over)
            terminated[ended] = True
            finals = tuple(leaf[ended] for leaf in self._seen())
            metrics = [
                seat for i in over for seat in episode_metrics(batch.battles, batch.tallies, i)
            ]
            episodes = self._episodes.finish(ended, metrics)
            batch.begin_next(over)
            self._asks = self._seats.begin(ended)
            if over[0] == SHOWN:
                self._show_begin()
        observations, masks = self._asked()
        self._turn = Turn(
            asks=self._asks,
            observations=observations,
            masks=masks,
            rewards=rewards,
            terminated=terminated,
            truncated=np.zeros(self.num_slots, np.bool_),
            final_observations=finals,
            episodes=episodes,
            frames=len(actions[0]),
            env_time_s=self._clock() - started_s,
        )
        return self._turn

    def last_turn(self) -> Turn | None:
        """Return the newest turn as a farewell; see `EnvDriver.last_turn`."""
        turn = self._turn
        if turn is None or turn.terminated is None:
            return None
        return farewell(turn, ~turn.terminated, self._seen())  # bots' seats end with the others'

    def snapshot(self) -> bytes:
        """Return everything that decides what comes next; see `EnvDriver.snapshot`."""
        if self._turn is None:
            raise SnapshotError("the arena cannot be snapshotted before its first reset")
        body = {
            "turn": turn_to_plain(self._turn),
            "episodes": self._episodes.snapshot(),
            "batch": self.batch.snapshot(),
            "seats": self._seats.snapshot(),
        }
        return write_document(self._identity, body)

    def restore(self, state: bytes) -> Turn:
        """Go back to where a snapshot was taken; see `EnvDriver.restore`."""
        body = read_document(state, self._identity)
        self._turn = None
        try:
            turn = turn_from_plain(body["turn"], self.num_slots, self.observation_space)
            self.batch.restore(body["batch"])
            self._episodes.restore(body["episodes"])
            self._seats.restore(body["seats"])
        except SnapshotError:
            raise
        except (RoyaleError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(f"the snapshot is no state of the arena: {error!r}") from error
        self._turn, self._asks = turn, turn.asks
        self._show_begin()
        return turn

    def probe(self, question: str) -> ProbeAnswer:
        """Answer by trying in battles of its own; see `ProbedDriver.probe`."""
        return probing.answer(question, self._new_batch)

    def close(self) -> None:
        """Send the spectators away; battles are arrays, and need nothing."""
        if self.watching is not None:
            self.watching.close()
            self.watching = None

    def _show_begin(self) -> None:
        if self.watching is not None:
            players = self._seats.players(SHOWN)
            self.watching.stage.begin(self.batch.battles, SHOWN, players)

    def _seen(self) -> Leaves:
        """Return what every slot sees, as views."""
        batch = self.batch
        planes = batch.planes.reshape(self.num_slots, *PLANES_SHAPE)
        return planes, batch.vector.reshape(self.num_slots, VECTOR_SIZE)

    def _asked(self) -> tuple[Leaves, BoolArray]:
        """Return what the slots that ask see and may do."""
        masks = self.batch.mask.reshape(self.num_slots, ACTIONS)
        if self._asks is None:
            return self._seen(), masks
        return take_rows(self._seen(), self._asks), masks[self._asks]


def _slots_of(battles: IntArray) -> IntArray:
    """Return the slots of both seats of each battle, in slot order."""
    slots: IntArray = (battles[:, None] * SEATS + np.arange(SEATS)).reshape(-1)
    return slots
