"""What complete rounds of evaluation say of checkpoints: which rounds count, and for which weights.

Pure. A score is that of the very weights that were played: a checkpoint has one if a round was
played with its policy version. Scores against different opponents, or in different environments,
have no order; so only rounds of one kind count.
"""

from __future__ import annotations

import math
from typing import Any

from checkpoints.scoring import evaluation_facts
from royale_server.evaluation.config import EvaluateConfig
from royale_server.evaluation.desk import Round
from royale_server.evaluation.episodes import EpisodeRound


class Scores:
    """How good the policy versions of an attempt are.

    Args:
        config: Settings; of several opponents the first is the one that counts.
    """

    def __init__(self, config: EvaluateConfig) -> None:
        self._first_opponent = config.against[0]
        self._subject: str | None = None
        self._newest: tuple[int, dict[str, Any]] | None = None

    def enter(self, round_: Round | EpisodeRound) -> dict[str, Any]:
        """Take a complete round.

        Returns:
            Facts for the checkpoints of its version; none if it does not count.
        """
        score, subject = self._result(round_)
        if subject is None or round_.version is None or not math.isfinite(score):
            return {}
        self._subject = self._subject or subject
        if subject != self._subject:
            return {}
        facts = evaluation_facts(score, subject)
        if self._newest is None or self._newest[0] <= round_.version:
            self._newest = round_.version, facts
        return facts

    def facts_of(self, version: int) -> dict[str, Any]:
        """Return the facts of the version that plays now; none if it was not evaluated."""
        if self._newest is None or self._newest[0] != version:
            return {}
        return self._newest[1]

    def _result(self, round_: Round | EpisodeRound) -> tuple[float, str | None]:
        """Score and what was played; None for that if it does not count."""
        if isinstance(round_, EpisodeRound):
            return round_.verdict().return_mean, f"episodes of {round_.env_id}"
        counts = round_.opponent == self._first_opponent
        return round_.verdict().score, f"battles against {round_.opponent}" if counts else None
