"""Evaluation: deals from both sides, intervals by hand, settings read back as they were."""

import json

import numpy as np
import pytest

from royale_client.wire.errors import ConfigError
from royale_server.builtin_components import builtin_registry
from royale_server.config_document import _plain
from royale_server.evaluation.battles import play
from royale_server.evaluation.players import bot_names, bot_player
from royale_server.evaluation.round import DRAW, LOSS, WIN, EvaluationRound, wilson
from royale_server.evaluation.saved_settings import from_document, read_settings


def test_wilsons_interval_by_hand() -> None:
    # 50 of 100: 0.5 +- 1.96 sqrt(0.25/100 + 1.96^2/40000) / (1 + 1.96^2/100) = 0.4038 … 0.5962
    assert wilson(50, 100) == pytest.approx((0.40383, 0.59617), abs=1e-5)
    # none of 10: 0 … 1.96^2 / (10 + 1.96^2) = 3.8415 / 13.8415
    assert wilson(0, 10) == pytest.approx((0.0, 0.27754), abs=1e-5)
    low, high = wilson(10, 10)
    assert (1 - high, 1 - low) == pytest.approx((0.0, 0.27754), abs=1e-5)


def test_a_verdict_counts_draws_as_not_won_and_as_half_a_score() -> None:
    evaluation = EvaluationRound(2, seed=0)
    evaluation.enter(np.array([0, 1]), 0, np.array([WIN, DRAW], np.int8))
    evaluation.enter(np.array([0, 1]), 1, np.array([WIN, LOSS], np.int8))
    verdict = evaluation.verdict()
    assert (verdict.wins, verdict.draws, verdict.losses, verdict.battles) == (2, 1, 1, 4)
    assert verdict.win_rate == 0.5
    # Pair scores 1 and 1/4: mean 0.625, standard deviation 0.53033, 1.96 * 0.53033 / sqrt 2
    assert verdict.score == 0.625
    assert verdict.score_low == 0.0
    assert verdict.score_high == 1.0


def test_only_pairs_that_are_complete_count_and_nothing_is_entered_twice() -> None:
    evaluation = EvaluationRound(3, seed=0)
    evaluation.enter(np.array([0, 1]), 0, np.array([WIN, WIN], np.int8))
    with pytest.raises(ValueError, match="no pair"):
        evaluation.verdict()
    evaluation.enter(np.array([1]), 1, np.array([LOSS], np.int8))
    assert evaluation.num_known == 3
    assert evaluation.verdict().battles == 2
    with pytest.raises(ValueError, match="twice"):
        evaluation.enter(np.array([1]), 1, np.array([WIN], np.int8))


@pytest.mark.parametrize(("pairs", "seed"), [(0, 0), (1, -1), (1, 2**63)])
def test_rounds_of_nothing_are_refused(pairs: int, seed: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        EvaluationRound(pairs, seed)


def test_a_player_against_itself_scores_exactly_half_in_every_pair() -> None:
    evaluation = EvaluationRound(20, seed=3)
    known: list[int] = []
    heuristic = bot_player("heuristic")
    assert heuristic is not None
    play(evaluation, heuristic, heuristic, progress=known.append)
    verdict = evaluation.verdict()
    assert known == [40]
    assert verdict.score == 0.5
    assert verdict.score_low == verdict.score_high == 0.5
    assert verdict.wins == verdict.losses


def test_the_same_seed_gives_the_same_verdict_and_a_better_bot_wins() -> None:
    def verdict(seed: int):
        evaluation = EvaluationRound(20, seed)
        play(evaluation, bot_player("heuristic"), bot_player("random"), progress=lambda _: None)
        return evaluation.verdict()

    assert verdict(1) == verdict(1)
    # 40 battles at 96 %: fewer than 33 won has a probability below 1e-4.
    assert verdict(1).wins >= 33


def test_bots_are_known_by_name_and_others_are_not() -> None:
    assert "search" in bot_names()
    assert bot_player("nobody") is None


def test_settings_are_read_back_as_they_were_for_every_variant() -> None:
    registry = builtin_registry()
    for catalog in (registry.policies, registry.algorithms):
        for entry in catalog.described():
            for settings in entry.load_variants().values():
                document = json.loads(json.dumps(_plain(settings, "settings")))
                assert from_document(entry.load_config_class(), document) == settings


def test_a_folder_that_is_no_run_is_refused_with_the_file(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_settings(tmp_path)
    (tmp_path / "config.json").write_text('{"pair": {"policy": "none-such"}}')
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_settings(tmp_path)
