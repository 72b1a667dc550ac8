"""Rounds of evaluation: which battles are dealt to whom, and what of them counts."""

from __future__ import annotations

import random

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.evaluation.config import EvaluateConfig
from royale_server.evaluation.desk import EvaluationDesk, result_of
from royale_server.evaluation.round import DRAW, LOSS, WIN
from royale_server.selfplay.assignment import Table


def table(client: str = "a", environments: int = 4) -> Table:
    return Table(client, (2,) * environments, ("push", "heuristic"))


def desk(*against: str, battles: int = 8, once: bool = False) -> EvaluationDesk:
    config = EvaluateConfig(against=against or ("heuristic",), battles=battles)
    return EvaluationDesk(config, seed=3, once=once)


def dealt(desk: EvaluationDesk, environment: int, episode: int, client: str = "a"):
    return desk.assign(table(client), environment, episode, ())


class Client:
    """Plays battles whose results a test chooses, each environment at its own pace."""

    def __init__(self, desk: EvaluationDesk, name: str = "a", environments: int = 4) -> None:
        self.desk, self.name = desk, name
        self.episodes = [0] * environments
        for episode in (0, 1):
            for environment in range(environments):
                dealt(desk, environment, episode, name)

    def ends(self, environment: int, result: int | None = WIN):
        """The running battle is over; the one after the next is dealt before it is counted."""
        episode = self.episodes[environment]
        self.episodes[environment] += 1
        dealt(self.desk, environment, episode + 2, self.name)
        return self.desk.over(self.name, environment, episode, result)


def test_two_environments_play_a_deal_from_both_sides_against_the_same_opponent() -> None:
    at = desk("push")
    first, second = dealt(at, 0, 0), dealt(at, 1, 0)
    assert (first.learner_seat, second.learner_seat) == (0, 1)
    assert first.bot == second.bot == "push"
    assert at.round_of("a", 0, 0) is at.round_of("a", 1, 0)
    assert dealt(at, 0, 0) == first  # asked twice, dealt once


def test_a_round_is_complete_with_its_last_battle_and_says_what_it_came_to() -> None:
    client = Client(desk(battles=4))
    assert client.ends(0, WIN) is None
    assert client.ends(1, LOSS) is None
    assert client.ends(2, DRAW) is None
    round_ = client.ends(3, WIN)
    assert round_ is not None
    verdict = round_.verdict()
    assert (verdict.battles, verdict.wins, verdict.draws, verdict.losses) == (4, 2, 1, 1)
    assert verdict.score == (1 + 0 + 0.5 + 1) / 4


def test_opponents_take_turns_and_each_round_has_a_code_of_its_own() -> None:
    at = desk("push", "runs/a/1", "heuristic", battles=2)
    client = Client(at, environments=2)
    rounds = [r for r in (client.ends(e) for _ in range(12) for e in (0, 1)) if r is not None]
    assert [r.opponent for r in rounds[:4]] == ["push", "runs/a/1", "heuristic", "push"]
    # Code 1 stands for the one checkpoint.
    assert [r.code for r in rounds[:4]] == [2, 3, 4, 5]
    assert at.opponent_code("runs/a/1") == 1


def test_a_checkpoint_plays_in_the_other_seat() -> None:
    assignment = dealt(desk("runs/a/1"), 1, 0)
    assert (assignment.learner_seat, assignment.snapshot, assignment.bot) == (1, 1, None)


def test_a_battle_without_a_result_is_dealt_again_and_its_pair_counts_once() -> None:
    client = Client(desk(battles=4))
    client.ends(0, WIN)
    client.ends(1, None)  # its deal is played anew, from both sides
    client.ends(2, WIN)
    assert client.ends(3, WIN) is None
    done = [client.ends(environment, LOSS) for environment in (0, 1, 2, 3, 0, 1, 2, 3)]
    (round_,) = [r for r in done if r is not None and r.number == 1]
    verdict = round_.verdict()
    assert (verdict.wins, verdict.losses) == (2, 2)


def test_deals_of_a_client_that_is_gone_are_played_by_others() -> None:
    at = desk(battles=8)
    gone = Client(at, "gone")
    gone.ends(0, WIN)
    at.left("gone")
    other = Client(at, "other")
    rounds = [r for r in (other.ends(e) for _ in range(2) for e in range(4)) if r is not None]
    assert rounds[0].number == 1
    assert rounds[0].verdict().wins == 8


def test_two_rounds_at_most_are_under_way_and_further_battles_do_not_count() -> None:
    at = desk(battles=2)
    client = Client(at, environments=4)
    # Pairs 0 and 1 of episode 0 are rounds 1 and 2; what follows waits for one of them.
    assert at.round_of("a", 2, 0).number == 2
    assert at.round_of("a", 0, 1) is at.round_of("a", 2, 0)
    client.ends(0)
    assert len(at.in_use()) == 2
    round_ = client.ends(1)
    assert round_ is not None
    assert round_.verdict().battles == 2


def test_a_server_that_only_evaluates_is_done_after_one_round_each() -> None:
    at = desk("push", "heuristic", battles=4, once=True)
    client = Client(at, environments=2)
    done = []
    while not at.is_done:
        done += [r for r in (client.ends(0), client.ends(1)) if r is not None]
    assert [r.opponent for r in done] == ["push", "heuristic"]
    for _ in range(3):  # clients play on until they are told to stop
        assert client.ends(0) is None
        assert client.ends(1) is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_and_goes_every_round_ends_with_each_pair_from_both_sides(
    seed: int,
) -> None:
    chance = random.Random(seed)
    at = desk("push", "heuristic", battles=2 * chance.randint(1, 6), once=True)
    clients = [Client(at, f"c{i}", 2 * chance.randint(1, 3)) for i in range(2)]
    done, steps = [], 0
    while not at.is_done:
        steps += 1
        assert steps < 2000, "a round does not end"
        if chance.random() < 0.05:
            at.left(clients.pop(0).name)
            clients.append(Client(at, f"new {steps}", 2 * chance.randint(1, 3)))
        client = chance.choice(clients)
        environment = chance.randrange(len(client.episodes))
        result = chance.choice([WIN, LOSS, DRAW, DRAW, None])
        round_ = client.ends(environment, result)
        done += [] if round_ is None else [round_]
    assert len(done) == 2
    assert all(r.verdict().battles == 2 * r.evaluation.num_pairs for r in done)
    assert not any(r.halves or r.left for r in done)


@pytest.mark.parametrize(
    ("metrics", "result"),
    [
        ({"win_rate": [1.0, 1.0], "draw_rate": [0.0, 1.0]}, WIN),
        ({"win_rate": [0.0, 1.0], "draw_rate": [0.0, 1.0]}, LOSS),
        ({"draw_rate": [1.0, 1.0]}, DRAW),
        ({"draw_rate": [0.0, 1.0]}, None),
        ({"win_rate": [0.0, 0.0]}, None),
        ({}, None),
    ],
)
def test_a_result_is_read_from_the_metrics_of_the_policys_seat(metrics, result) -> None:
    assert result_of(metrics) == result


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"battles": 3}, "battles"),
        ({"battles": 0}, "battles"),
        ({"against": ()}, "against"),
        ({"against": ("push", "push")}, "against"),
        ({"against": ("",)}, "against"),
    ],
)
def test_settings_that_make_no_round_are_refused(settings, named) -> None:
    with pytest.raises(ConfigError, match=named):
        EvaluateConfig(**settings)
