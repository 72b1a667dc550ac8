"""Rounds of whole episodes in which the policy plays alone: which of them count, and for whom."""

from __future__ import annotations

import random

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.evaluation.config import EvaluateConfig
from royale_server.evaluation.episodes import EpisodeDesk, EpisodeRound


def desk(episodes: int = 4, *, once: bool = False) -> EpisodeDesk:
    return EpisodeDesk(EvaluateConfig(episodes=episodes), once=once)


class Client:
    """Plays episodes that a test ends, each slot at its own pace."""

    def __init__(
        self, desk: EpisodeDesk, name: str = "a", slots: int = 2, env_id: str = "Walk-v0"
    ) -> None:
        self.desk, self.name, self.env_id = desk, name, env_id
        self.slots = slots
        for slot in range(slots):
            desk.begin(name, slot, env_id)

    def ends(self, slot: int, returned: float | None = 1.0, length: int = 5) -> EpisodeRound | None:
        result = None if returned is None else (returned, length)
        done = self.desk.over(self.name, slot, result)
        self.desk.begin(self.name, slot, self.env_id)
        return done


def test_a_round_is_complete_with_its_last_episode_and_says_what_it_came_to() -> None:
    client = Client(desk())
    assert [
        client.ends(slot, r, n) for slot, r, n in ((0, 1.0, 10), (1, 5.0, 20), (0, 3.0, 30))
    ] == [None] * 3
    round_ = client.ends(1, 7.0, 40)
    assert round_ is not None
    verdict = round_.verdict()
    # Mean 4, squared distances 9, 1, 1, 9: deviation sqrt(20 / 3) = 2.58199, by sqrt 4 1.290994,
    # times 1.959964: 2.530303.
    assert (verdict.episodes, verdict.return_mean, verdict.length_mean) == (4, 4.0, 25.0)
    assert verdict.return_low == pytest.approx(4 - 2.530303, abs=1e-6)
    assert verdict.return_high == pytest.approx(4 + 2.530303, abs=1e-6)
    assert (verdict.return_min, verdict.return_max) == (1.0, 7.0)


def test_the_episodes_that_begin_first_count_however_late_they_end() -> None:
    client = Client(desk(episodes=3), slots=3)
    # Slot 2 has the long episode. What the others play meanwhile belongs to no round, since the
    # policy has not learnt.
    assert not any(client.ends(slot, 0.0) for _ in range(5) for slot in (0, 1))
    round_ = client.ends(2, 9.0)
    assert round_ is not None
    assert round_.returns == [0.0, 0.0, 9.0]


def test_the_next_round_begins_once_the_policy_has_learnt_and_not_before() -> None:
    at = desk(episodes=2)
    client = Client(at)
    first = at.round_of("a", 0)
    first.version = 7
    assert client.ends(0) is None
    assert client.ends(1) is first
    assert at.round_of("a", 0) is first  # plays on, and counts for nothing
    assert not any(client.ends(slot) for slot in (0, 1, 0, 1))
    at.learned(8)
    client.ends(0)
    second = at.round_of("a", 0)
    assert (second.number, second.code) == (2, first.code + 1)
    client.ends(1)
    assert client.ends(0) is None
    assert client.ends(1) is second


@pytest.mark.parametrize("pinned", [None, 8])
def test_a_round_that_gets_the_weights_of_a_learn_step_under_way_is_not_repeated(pinned) -> None:
    at = desk(episodes=2)
    client = Client(at)
    at.round_of("a", 0).version = pinned  # it waits for the model thread, or was pinned behind it
    at.learned(8)
    assert client.ends(0) is None
    assert client.ends(1) is not None
    assert at.round_of("a", 0).number == 1


def test_an_episode_that_was_not_played_whole_is_replaced_by_another() -> None:
    client = Client(desk(episodes=2))
    assert client.ends(0, None) is None
    assert client.ends(1, 2.0) is None
    round_ = client.ends(0, 3.0)
    assert round_ is not None
    assert round_.returns == [2.0, 3.0]


def test_others_play_what_a_client_that_is_gone_did_not_finish() -> None:
    at = desk(episodes=4)
    gone = Client(at, "gone", slots=3)
    gone.ends(0, 1.0)
    at.left("gone")
    other = Client(at, "other", slots=1)
    assert [other.ends(0, 2.0) is not None for _ in range(3)] == [False, False, True]


def test_two_rounds_at_most_are_under_way_and_further_episodes_do_not_count() -> None:
    at = desk(episodes=2)
    client = Client(at, slots=4)  # slots 0 and 1 are the first round
    assert at.round_of("a", 2).number == 1
    at.round_of("a", 0).version = 0
    at.learned(1)
    client.ends(2)
    client.ends(3)
    assert at.round_of("a", 2).number == 2
    at.round_of("a", 2).version = 1
    at.learned(2)
    client.ends(2)
    assert at.round_of("a", 2).number == 2
    assert len(at.in_use()) == 2
    client.ends(0)
    assert client.ends(1) is not None
    assert at.round_of("a", 1).number == 3


def test_environments_of_each_id_have_rounds_of_their_own() -> None:
    at = desk(episodes=2)
    walk, run = Client(at, "w"), Client(at, "r", env_id="Run-v0")
    walk.ends(0, 1.0)
    run.ends(0, 100.0)
    first, second = walk.ends(1, 1.0), run.ends(1, 100.0)
    assert first is not None
    assert second is not None
    assert (first.env_id, first.verdict().return_mean) == ("Walk-v0", 1.0)
    assert (second.env_id, second.verdict().return_mean) == ("Run-v0", 100.0)
    assert first.code != second.code


def test_a_server_that_only_evaluates_is_done_after_one_round_of_each_kind() -> None:
    at = desk(episodes=2, once=True)
    assert not at.is_done
    client = Client(at)
    client.ends(0)
    assert not at.is_done
    assert client.ends(1) is not None
    assert at.is_done
    assert not any(client.ends(slot) for slot in (0, 1, 0, 1))  # until it is told to stop
    other = Client(at, "r", env_id="Run-v0")
    assert not at.is_done
    other.ends(0)
    other.ends(1)
    assert at.is_done


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_and_goes_every_round_ends_with_its_number_of_episodes(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.randint(2, 9)
    at = desk(episodes=size)
    clients = [Client(at, f"c{i}", chance.randint(1, 4)) for i in range(2)]
    done: list[EpisodeRound] = []
    version, steps = 0, 0
    while len(done) < 5:
        steps += 1
        assert steps < 5000, "a round does not end"
        if chance.random() < 0.05:
            at.left(clients.pop(0).name)
            clients.append(Client(at, f"new {steps}", chance.randint(1, 4)))
        if chance.random() < 0.2:
            version += 1
            at.learned(version)
        client = chance.choice(clients)
        slot = chance.randrange(client.slots)
        playing = at.round_of(client.name, slot)
        if playing.version is None:
            playing.version = version
        complete = client.ends(slot, chance.choice([1.0, 2.0, None]))
        done += [] if complete is None else [complete]
        assert len(at.in_use()) <= 4
    assert all(len(r.returns) == len(r.lengths) == size for r in done)
    versions = [r.version for r in sorted(done, key=lambda r: r.number)]
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize("episodes", [1, 0, -5])
def test_a_round_of_less_than_two_episodes_is_refused(episodes: int) -> None:
    with pytest.raises(ConfigError, match="episodes"):
        EvaluateConfig(episodes=episodes)


@pytest.mark.parametrize(
    ("actions", "alone", "battles"),
    [("auto", True, False), ("likeliest", True, True), ("drawn", False, False)],
)
def test_what_policies_do_is_chosen_for_both_kinds_of_rounds(actions, alone, battles) -> None:
    config = EvaluateConfig(actions=actions)
    assert (config.is_greedy_alone, config.is_greedy_in_battles) == (alone, battles)
