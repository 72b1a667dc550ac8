"""Deals the battles of evaluation rounds to clients, and takes their results.

Pure: knows clients by name, environments by number and results by their sign. Environments 2 j and
2 j + 1 of a client begin with one seed, so that their k-th episodes have one deal; the policy sits
in seat 0 of the one and in seat 1 of the other. A deal that is not played to its end from both
sides is dealt again elsewhere, so that a round always ends and no side counts alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from royale_server.evaluation.config import EvaluateConfig, is_checkpoint
from royale_server.evaluation.round import DRAW, LOSS, WIN, EvaluationRound, Verdict
from royale_server.selfplay.assignment import Assignment, Table

MAX_OPEN = 2
"""Rounds under way: the next begins while the last battles of one are played, by weights of its
own. Further battles do not count until the older one is complete."""


@dataclass(slots=True, kw_only=True)
class Round:
    """A round under way, or done."""

    number: int
    """Which of the attempt, from 1."""
    opponent: str
    """Whom the policy plays, as in the settings."""
    code: int
    """Stands for the pinned policy among who plays a slot."""
    evaluation: EvaluationRound
    version: int | None = None
    """The policy version that plays; known once its weights are pinned."""
    left: deque[int]
    """Pairs that nobody plays yet."""
    halves: dict[int, dict[int, int]] = field(default_factory=dict)
    """Result by side of the pairs of which one side is over."""

    @property
    def is_complete(self) -> bool:
        """Whether every battle is over."""
        return self.evaluation.num_known == 2 * self.evaluation.num_pairs

    def verdict(self) -> Verdict:
        """Say what it came to."""
        return self.evaluation.verdict()


@dataclass(slots=True)
class _Deal:
    """The battles that two environments play from one deal."""

    round: Round
    pair: int | None
    """Which of the round's pairs; None if the battles count for nothing."""
    sides: set[int]
    """Sides that are not over."""


class EvaluationDesk:
    """Decides who plays which battle of which round.

    Args:
        config: Settings.
        seed: Seed of the run.
        once: End after one round against each opponent.
    """

    def __init__(self, config: EvaluateConfig, *, seed: int, once: bool) -> None:
        self._config = config
        self._seed = seed
        self._once = once
        self._rounds: list[Round] = []
        """Those under way, oldest first."""
        self._newest: Round | None = None
        self._deals: dict[tuple[str, int, int], _Deal] = {}

    @property
    def has_begun(self) -> bool:
        """Whether there has been a round."""
        return self._newest is not None

    @property
    def is_done(self) -> bool:
        """Whether all rounds there are to be are complete."""
        return not self._rounds and not self._may_open()

    def opponent_code(self, opponent: str) -> int:
        """Return what stands for a checkpoint among who plays a slot, from 1."""
        return 1 + self._config.checkpoints.index(opponent)

    # --- dealing ----------------------------------------------------------------------------

    def assign(
        self, table: Table, environment: int, episode: int, snapshots: Sequence[int]
    ) -> Assignment:
        """Say who plays one battle; see `AssignmentSource.assign`.

        The learner's seat is that of the pinned policy.
        """
        del snapshots  # opponents of rounds are named, not chosen
        deal = self._deal(table.client, environment, episode)
        opponent, seat = deal.round.opponent, environment % 2
        if is_checkpoint(opponent):
            return Assignment(learner_seat=seat, snapshot=self.opponent_code(opponent))
        return Assignment(learner_seat=seat, bot=opponent)

    def code(self, client: str, environment: int, episode: int) -> int:
        """Return what stands for the pinned policy that plays a battle."""
        return self._deal(client, environment, episode).round.code

    def in_use(self) -> set[int]:
        """Codes of the pinned policies that play, or will."""
        rounds = {round_.code for round_ in self._rounds}
        newest = set() if self._newest is None else {self._newest.code}
        return rounds | newest | {deal.round.code for deal in self._deals.values()}

    def round_of(self, client: str, environment: int, episode: int) -> Round:
        """Return the round that a battle is played for."""
        return self._deal(client, environment, episode).round

    def _deal(self, client: str, environment: int, episode: int) -> _Deal:
        key = (client, environment // 2, episode)
        deal = self._deals.get(key)
        if deal is None:
            round_, pair = self._next_pair()
            deal = self._deals[key] = _Deal(round_, pair, {0, 1})
        return deal

    def _next_pair(self) -> tuple[Round, int | None]:
        for round_ in self._rounds:
            if round_.left:
                return round_, round_.left.popleft()
        if len(self._rounds) < MAX_OPEN and self._may_open():
            opened = self._open()
            return opened, opened.left.popleft()
        assert self._newest is not None, "the first battle opens a round"
        return self._newest, None

    def _may_open(self) -> bool:
        opened = 0 if self._newest is None else self._newest.number
        return not self._once or opened < len(self._config.against)

    def _open(self) -> Round:
        number = 1 if self._newest is None else self._newest.number + 1
        pairs = self._config.battles // 2
        opened = Round(
            number=number,
            opponent=self._config.against[(number - 1) % len(self._config.against)],
            code=len(self._config.checkpoints) + number,
            evaluation=EvaluationRound(pairs, self._seed),
            left=deque(range(pairs)),
        )
        self._rounds.append(opened)
        self._newest = opened
        return opened

    # --- results ----------------------------------------------------------------------------

    def over(self, client: str, environment: int, episode: int, result: int | None) -> Round | None:
        """A battle is over.

        Args:
            client: Name of the client.
            environment: Which of its environments.
            episode: Ordinal of the episode in it.
            result: `WIN`, `DRAW` or `LOSS` of the pinned policy; None if there is none to count.

        Returns:
            The round that is complete by it, if one is.
        """
        key, side = (client, environment // 2, episode), environment % 2
        deal = self._deals[key]
        deal.sides.discard(side)
        if not deal.sides:
            del self._deals[key]
        if deal.pair is None:
            return None
        if result is None:
            self._give_back(deal)
            return None
        return self._enter(deal.round, deal.pair, side, result)

    def _enter(self, round_: Round, pair: int, side: int, result: int) -> Round | None:
        halves = round_.halves.setdefault(pair, {})
        halves[side] = result
        if len(halves) < 2:
            return None
        del round_.halves[pair]
        for each, known in halves.items():
            round_.evaluation.enter(np.array([pair]), each, np.array([known], np.int8))
        if not round_.is_complete:
            return None
        self._rounds.remove(round_)
        return round_

    def left(self, client: str) -> None:
        """A client is gone: others play the deals that it did not finish."""
        for key in [key for key in self._deals if key[0] == client]:
            deal = self._deals.pop(key)
            if deal.pair is not None:
                self._give_back(deal)

    def _give_back(self, deal: _Deal) -> None:
        """Deal a pair again; what was played of it counts for nothing."""
        assert deal.pair is not None
        deal.round.halves.pop(deal.pair, None)
        deal.round.left.append(deal.pair)
        deal.pair = None


def result_of(metrics: Mapping[str, object]) -> int | None:
    """Read the result of an episode's seat from its metrics; None if they tell of none.

    ``win_rate`` is (won, decided), ``draw_rate`` (drawn, played to the end).
    """
    match metrics.get("win_rate"), metrics.get("draw_rate"):
        case [won, decided], _ if decided:
            return WIN if won else LOSS
        case _, [drawn, _] if drawn:
            return DRAW
    return None


RESULT_METRICS = ("win_rate", "draw_rate")
"""Episode metrics that `result_of` reads."""
