"""Counts the episodes of evaluation rounds in which the policy plays alone, and what they returned.

Pure: knows clients by key, slots by number and environments by id. A round consists of the episodes
that begin first, not of those that end first: among these there would be too many short ones.
Environments of different ids have rounds of their own, since their returns have no common mean. No
policy version has two rounds: what is played between them counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from royale_server.evaluation.config import EvaluateConfig
from royale_server.evaluation.desk import MAX_OPEN
from royale_server.evaluation.round import Z_95

FIRST_CODE = 2**40
"""From here on numbers stand for policies pinned for these rounds; those of battles are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeVerdict:
    """What a round came to."""

    episodes: int
    return_mean: float
    return_low: float
    """Lower end of the 95 % interval of the mean, from the spread of the episodes."""
    return_high: float
    """Upper end."""
    return_min: float
    return_max: float
    length_mean: float


@dataclass(slots=True, kw_only=True)
class EpisodeRound:
    """A round under way, or done."""

    number: int
    """Which of the attempt, from 1, of these rounds."""
    env_id: str
    """What is played."""
    code: int
    """Stands for the pinned policy among who plays a slot."""
    size: int
    """Episodes that it consists of."""
    left: int
    """How many of them nobody plays yet."""
    version: int | None = None
    """The policy version that plays; known once its weights are pinned."""
    returns: list[float] = field(default_factory=list)
    """Of the episodes that are over."""
    lengths: list[int] = field(default_factory=list)
    """Likewise."""

    @property
    def is_complete(self) -> bool:
        """Whether every episode is over."""
        return len(self.returns) == self.size

    def verdict(self) -> EpisodeVerdict:
        """Say what it came to; at least two of its episodes are over."""
        returns = np.array(self.returns, np.float64)
        mean = float(returns.mean())
        margin = Z_95 * float(returns.std(ddof=1)) / math.sqrt(len(returns))
        return EpisodeVerdict(
            episodes=len(returns),
            return_mean=mean,
            return_low=mean - margin,
            return_high=mean + margin,
            return_min=float(returns.min()),
            return_max=float(returns.max()),
            length_mean=float(np.mean(self.lengths)),
        )


@dataclass(frozen=True, slots=True)
class _Running:
    """An episode under way."""

    round: EpisodeRound
    counts: bool
    """Whether it is one of the round's."""


class EpisodeDesk:
    """Decides which episode counts for which round.

    Args:
        config: Settings.
        once: End after one round in each kind of environment.
    """

    def __init__(self, config: EvaluateConfig, *, once: bool) -> None:
        self._size = config.episodes
        self._once = once
        self._num_opened = 0
        self._open: dict[str, list[EpisodeRound]] = {}
        """By environment id, those under way, oldest first."""
        self._newest: dict[str, EpisodeRound] = {}
        self._up_to_date: set[str] = set()
        """Environment ids whose newest round is that of the newest policy version."""
        self._running: dict[tuple[Hashable, int], _Running] = {}

    @property
    def has_begun(self) -> bool:
        """Whether there has been a round."""
        return self._num_opened > 0

    @property
    def is_done(self) -> bool:
        """Whether all rounds there are to be are complete."""
        return self._once and self.has_begun and not any(self._open.values())

    def in_use(self) -> set[int]:
        """Codes of the pinned policies that play, or will."""
        playing = {running.round.code for running in self._running.values()}
        newest = {round_.code for round_ in self._newest.values()}
        return playing | newest | {r.code for rounds in self._open.values() for r in rounds}

    def learned(self, version: int) -> None:
        """The policy has learnt: the next round may begin.

        Args:
            version: Its version now. A round whose weights are not pinned yet gets those.
        """
        self._up_to_date = {
            env_id for env_id, newest in self._newest.items() if newest.version in (None, version)
        }

    def begin(self, client: Hashable, slot: int, env_id: str) -> EpisodeRound:
        """An episode begins; return the round whose pinned policy plays it."""
        running = self._running[client, slot] = self._next(env_id)
        return running.round

    def round_of(self, client: Hashable, slot: int) -> EpisodeRound:
        """Return the round whose pinned policy plays the running episode of a slot."""
        return self._running[client, slot].round

    def over(
        self, client: Hashable, slot: int, result: tuple[float, int] | None
    ) -> EpisodeRound | None:
        """The running episode of a slot is over.

        Args:
            client: Key of the client.
            slot: Number of the slot.
            result: Return and length; None if the episode was not played whole by its policy, so
                that another one takes its place.

        Returns:
            The round that is complete by it, if one is.
        """
        running = self._running.pop((client, slot))
        if not running.counts:
            return None
        round_ = running.round
        if result is None:
            round_.left += 1
            return None
        round_.returns.append(result[0])
        round_.lengths.append(result[1])
        if not round_.is_complete:
            return None
        self._open[round_.env_id].remove(round_)
        return round_

    def left(self, client: Hashable) -> None:
        """A client is gone: others play episodes in place of those that it did not finish."""
        for key in [key for key in self._running if key[0] == client]:
            self.over(*key, None)

    def _next(self, env_id: str) -> _Running:
        opened = self._open.setdefault(env_id, [])
        for round_ in opened:
            if round_.left:
                round_.left -= 1
                return _Running(round_, counts=True)
        if len(opened) < MAX_OPEN and self._may_open(env_id):
            self._num_opened += 1
            self._up_to_date.add(env_id)
            round_ = self._newest[env_id] = EpisodeRound(
                number=self._num_opened,
                env_id=env_id,
                code=FIRST_CODE + self._num_opened,
                size=self._size,
                left=self._size - 1,
            )
            opened.append(round_)
            return _Running(round_, counts=True)
        return _Running(self._newest[env_id], counts=False)

    def _may_open(self, env_id: str) -> bool:
        has_one = self._once and env_id in self._newest
        return not has_one and env_id not in self._up_to_date
