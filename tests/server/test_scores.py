"""Which rounds of evaluation say how good a checkpoint is, and of which weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from royale_server.evaluation.config import EvaluateConfig
from royale_server.evaluation.desk import EvaluationDesk, Round
from royale_server.evaluation.episodes import EpisodeRound
from royale_server.evaluation.scores import Scores
from tests.selfplay.duel import play
from tests.server.loop_world import ACTION, OBSERVATION
from tests.server.test_evaluation_alone import Walk
from tests.server.trainer_world import Attempt


def episodes(version: int, mean: float, env_id: str = "Walk-v0") -> EpisodeRound:
    return EpisodeRound(
        number=1,
        env_id=env_id,
        code=1,
        size=2,
        left=0,
        version=version,
        returns=[mean - 1, mean + 1],
        lengths=[1, 1],
    )


def battles(version: int, opponent: str) -> Round:
    """A round of two battles, both won."""
    desk = EvaluationDesk(EvaluateConfig(battles=2, against=(opponent,)), seed=0, once=False)
    round_ = desk.round_of("a", 0, 0)
    for side in (0, 1):
        round_.evaluation.enter(np.array([0]), side, np.array([1], np.int8))
    round_.version = version
    return round_


def test_the_score_of_a_round_is_that_of_its_version_alone() -> None:
    scores = Scores(EvaluateConfig())
    facts = scores.enter(episodes(5, 7.5))
    assert (facts["score"], facts["score_of"]) == (7.5, "evaluation")
    assert scores.facts_of(5) == facts
    assert scores.facts_of(4) == scores.facts_of(6) == {}


def test_a_round_that_ends_late_does_not_hide_that_of_a_newer_version() -> None:
    scores = Scores(EvaluateConfig())
    newer = scores.enter(episodes(6, 1.0))
    assert scores.enter(episodes(5, 9.0))["score"] == 9.0
    assert scores.facts_of(6) == newer


def test_only_rounds_against_the_first_opponent_count() -> None:
    scores = Scores(EvaluateConfig(against=("heuristic", "random")))
    assert scores.enter(battles(3, "random")) == {}
    assert scores.enter(battles(3, "heuristic"))["score"] == 1.0


def test_only_rounds_of_the_first_kind_of_environment_count() -> None:
    scores = Scores(EvaluateConfig())
    assert scores.enter(episodes(1, 2.0))
    assert scores.enter(episodes(1, 900.0, "Other-v0")) == {}
    assert scores.enter(battles(1, "heuristic")) == {}
    assert scores.enter(episodes(2, 3.0))


@pytest.mark.parametrize("mean", [math.inf, math.nan])
def test_a_mean_that_is_no_number_is_no_score(mean: float) -> None:
    scores = Scores(EvaluateConfig())
    with np.errstate(all="ignore"):
        assert scores.enter(episodes(1, mean)) == {}
    assert scores.enter(episodes(2, 3.0))


# --- from the trainer down ----------------------------------------------------------------------


class Judged(Walk):
    """Has the spaces of the environments that are trained in."""

    observation_space = OBSERVATION
    action_space = ACTION


class Trained(Attempt):
    """A run that is evaluated beside."""

    def evaluate(self, walk: Walk, rounds: int) -> None:
        def told() -> int:
            return sum(event["kind"] == "evaluated" for event in self.writer.events)

        play(self, [walk], lambda: told() >= rounds, name="judge", role="eval")
        assert told() == rounds

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick()
        self.trainer.tick()
        self.run()

    def manifests(self, directory: Path) -> list[dict[str, object]]:
        return [dict(e.manifest.facts) for e in checkpoints.list_checkpoints(directory)[0]]


@pytest.mark.parametrize("is_saved_first", [True, False])
def test_a_checkpoint_gets_the_evaluation_of_its_weights_before_or_after_its_save(
    tmp_path: Path, is_saved_first: bool
) -> None:
    attempt = Trained(
        tmp_path, evaluate=EvaluateConfig(episodes=6), save_every=2 if is_saved_first else 100
    )
    attempt.join()
    attempt.play_rows(2)
    if is_saved_first:
        attempt.play(lambda: bool(attempt.writer.steps))
        (before,) = attempt.manifests(tmp_path)
        assert before.get("score_of") != "evaluation"
    attempt.evaluate(Judged(4), rounds=1)
    if not is_saved_first:
        attempt.interrupt()
        attempt.end()
    (facts,) = attempt.manifests(tmp_path)
    assert facts["policy_version"] == 2
    # The six episodes are those of `test_evaluation_alone`.
    returns = [2 * 1.0, 3 * 1.125, 4 * 1.25, 2 * 1.375, 3 * 1.0, 3 * 1.375]
    assert facts["score"] == pytest.approx(sum(returns) / 6)
    assert (facts["score_of"], facts["score_in"]) == ("evaluation", "episodes of Duel-v0")
