"""What the episodes of an iteration add up to, by scope and as clients declare it."""

import contextlib
import math
import sys
from itertools import product

import numpy as np
import pytest

from royale_client.wire.episodes import AGGREGATIONS, EpisodeMetric, check_records
from royale_client.wire.errors import ContractError
from royale_client.wire.limits import Limits
from royale_server.episode_metrics import (
    MOST_DECLARED,
    EndedEpisode,
    EpisodeDeclarations,
    declared_key,
    episode_numbers,
    joined,
    wilson_interval,
)
from royale_server.monitoring.declarations import declared


def episode(value, length=10, **fields):
    fields.setdefault("env_id", "Duel-v0")
    return EndedEpisode(request=0, slot=0, episode_return=value, length=length, **fields)


def test_returns_and_lengths_have_mean_extremes_and_tenths():
    numbers = episode_numbers([episode(float(n), n) for n in range(11)], ["Duel-v0"])
    assert [numbers[f"env/return_{s}"] for s in ("mean", "min", "max", "p10", "p90")] == [
        *(5.0, 0.0, 10.0, 1.0, 9.0)  # 0 to 10 in steps of one: a tenth is one step
    ]
    assert numbers["env/length_p90"] == 9.0
    assert numbers["env/episodes"] == 11


def test_an_iteration_in_which_nothing_ended_has_no_number_of_episodes():
    declarations = EpisodeDeclarations()
    declarations.declare("Duel-v0", [EpisodeMetric("wins", "1", "all", "ratio")])
    assert episode_numbers([], ["Duel-v0", "Other-v0"]) == {}
    assert declarations.numbers([]) == {}


def test_episodes_trained_on_whole_are_summed_apart():
    numbers = episode_numbers([episode(1.0, is_trained=True), episode(5.0)], ["Duel-v0"])
    assert numbers["env/return_mean"] == 3.0
    assert numbers["env/trained/return_mean"] == 1.0
    assert numbers["env/trained/episodes"] == 1
    untrained = episode_numbers([episode(5.0)], ["Duel-v0"])
    assert not [key for key in untrained if key.startswith("env/trained/")]


def test_environments_and_seats_are_never_averaged_together():
    episodes = [
        episode(1.0, env_id="ALE/Pong-v5", seat=0),
        episode(2.0, env_id="ALE/Pong-v5", seat=1),
        episode(6.0),
    ]
    numbers = episode_numbers(episodes, ["ALE/Pong-v5", "Duel-v0"])
    assert numbers["env/id/ALE/Pong-v5/return_mean"] == 1.5
    assert numbers["env/id/Duel-v0/return_mean"] == 6.0
    assert (numbers["env/seat/0/return_mean"], numbers["env/seat/1/return_mean"]) == (1.0, 2.0)
    alone = episode_numbers(episodes[2:], ["Duel-v0"])
    assert not [key for key in alone if key.startswith(("env/id/", "env/seat/"))]
    specs = declared(())
    assert all(specs.find(key) is not None for key in numbers)
    assert specs.find("env/id/ALE/Pong-v5/return_mean").scope == "one environment id"
    assert specs.find("env/seat/1/return_mean").scope == "one seat"


def test_others_episodes_count_towards_shares_alone():
    declarations = EpisodeDeclarations()
    declarations.declare(
        "Duel-v0",
        [EpisodeMetric("won", "1", "all", "ratio"), EpisodeMetric("first", "1", "all", "share")],
    )
    learner = episode(1.0, metrics={"won": [1, 1], "first": [1, 1]})
    other = episode(-1.0, player="scripted", metrics={"won": [0, 1], "first": [0, 1]})
    assert declarations.numbers([learner, other])["env/won"] == 1.0
    assert declarations.numbers([learner, other])["env/first"] == 0.5
    assert episode_numbers([learner, other], ["Duel-v0"])["env/return_mean"] == 1.0


@pytest.mark.parametrize(
    ("aggregation", "values", "expected"),
    [
        ("mean", [1.0, 4.0], {"k": 2.5}),
        ("ratio", [[1, 2], [3, 3]], {"k": 0.8}),  # 4 of 5, not the mean of 1/2 and 1
        ("ratio", [[0, 0]], {}),
        ("share", [[0, 0]], {}),
        ("count", [[1, 3], [0, 0, 4]], {"k_top1_share": 0.5, "k_top10_share": 1.0}),
        ("count", [[0, 0]], {}),
        ("categories", [[7, 7, 2], [7]], {"k_top1_share": 0.75, "k_top10_share": 1.0}),
        ("categories", [[], []], {}),
    ],
)
def test_numbers_are_joined_as_they_are_declared(aggregation, values, expected):
    assert aggregation in AGGREGATIONS
    assert joined("k", aggregation, values) == expected


def test_a_share_comes_with_its_interval():
    numbers = joined("k", "share", [[5, 10], [3, 6]])
    assert numbers["k"] == 0.5
    assert 0.5 - numbers["k_ci95_lo"] == pytest.approx(numbers["k_ci95_hi"] - 0.5)
    # By hand, n = 16, share 1/2: half = z / (1 + z^2/n) * sqrt(1/64 + z^2 / (4 n^2)), z = 1.96:
    # 1.96 / 1.2401 * sqrt(0.015625 + 0.0037516) = 0.2200
    assert numbers["k_ci95_hi"] - 0.5 == pytest.approx(0.22, abs=1e-4)
    low, high = wilson_interval(0, 5)
    assert low == pytest.approx(0.0, abs=1e-12)
    assert 0.4 < high < 0.5


MOST = sys.float_info.max
EXTREMES = (-MOST, -5e-324, 0, 5e-324, 1e-200, 1, 1e200, 2**64 - 1, MOST)


def sayable(aggregation):
    """Values at the edges of what a record may hold, as the contract judges them."""
    lists = [*map(list, product(EXTREMES, repeat=2)), [], [65535, 65535]]
    metrics = {"m": EpisodeMetric("m", "1", "all", aggregation)}
    for value in [*EXTREMES, *lists]:
        record = {"row": 0, "return": 0, "length": 1, "time_s": 0, "metrics": {"m": value}}
        with contextlib.suppress(ContractError):
            check_records((record,), np.ones(1, np.bool_), metrics, Limits())
            yield value


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_that_a_client_may_say_of_its_episodes_ends_the_iteration(aggregation):
    values = list(sayable(aggregation))
    assert len(values) >= 3
    for pair in product(values, repeat=2):
        numbers = joined("k", aggregation, pair)
        assert all(key.startswith("k") for key in numbers)


def test_what_no_float_holds_is_infinite():
    assert joined("k", "mean", [MOST, MOST]) == {"k": math.inf}
    assert joined("k", "ratio", [[MOST, 1], [MOST, 1]]) == {"k": math.inf}
    numbers = episode_numbers([episode(MOST, 2**64 - 1), episode(MOST, 2**64 - 1)], ["Duel-v0"])
    assert numbers["env/return_mean"] == math.inf
    assert numbers["env/length_mean"] == 2.0**64


def test_names_of_the_policy_keep_their_group_and_odd_letters_do_not_reach_a_key():
    assert declared_key("policy/cards_per_match") == "policy/cards_per_match"
    assert declared_key("draw_rate") == "env/draw_rate"
    assert declared_key("füße {x}") == "env/f__e__x_"


def test_a_name_declared_otherwise_by_a_second_client_is_told():
    declarations = EpisodeDeclarations()
    assert declarations.declare("A-v0", [EpisodeMetric("x", "1", "all", "mean")]) == []
    (problem,) = declarations.declare("B-v0", [EpisodeMetric("x", "1", "all", "ratio")])
    assert "'x' of B-v0 is declared as a ratio, and as a mean by an earlier client" in problem
    assert declarations.kept("A-v0", {"x": 3.0}) == {"x": 3.0}
    assert declarations.kept("B-v0", {"x": [1, 2]}) == {}
    again = EpisodeDeclarations(declarations.to_data())
    assert again.numbers([episode(1.0, metrics={"x": 3.0})]) == {"env/x": 3.0}


def test_names_and_environments_without_end_are_left_out_and_told_in_one_sentence():
    declarations = EpisodeDeclarations()

    def declare(env_id, names):
        return declarations.declare(env_id, [EpisodeMetric(n, "1", "all", "mean") for n in names])

    for attempt in range(MOST_DECLARED):
        # One of its names is that of all clients; the others are new with every start.
        names = ["m", *(f"{attempt} {n}" for n in range(9))]
        problems = declare(f"Env-{attempt}", names)
        assert len(problems) <= 1
    assert problems == [
        f"9 episode metrics of Env-{attempt}, such as '{attempt} 0', are left out of the metrics "
        f"rows: the clients of this run have brought {MOST_DECLARED:,} others"
    ]
    assert len(declarations.to_data()) == len(declarations.env_ids) == MOST_DECLARED
    known = declarations.kept("Env-1", {"m": 1.0, "0 0": 2.0, f"{attempt} 0": 3.0})
    told = declarations.numbers([episode(0.0, metrics=known)])
    assert told == {"env/m": 1.0, "env/0_0": 2.0}
    (problem,) = declare("one more", ["m"])
    assert problem.startswith("environment one more is left out of the metrics rows")
    assert declarations.kept("one more", {"m": 1.0}) == {}
    assert declare("Env-1", ["m"]) == []
