"""Records against a recount in plain Python, and against what the wire accepts."""

from collections import Counter

import numpy as np
import pytest

from royale_client.envs.arena import rules
from royale_client.envs.arena import tallies as tallies_module
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.cards import CARDS, COST
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.records import EPISODE_METRICS, episode_metrics, top_share
from royale_client.envs.arena.reward_config import TERMS, RewardConfig
from royale_client.envs.arena.rewards import Rewards
from royale_client.envs.arena.tallies import after, before, begin, empty_tallies
from royale_client.envs.arena.tensors import legal
from royale_client.wire.episodes import check_records, clean_record
from royale_client.wire.limits import Limits


class Recount:
    """Counts of one seat, from mask and state, one decision at a time."""

    def __init__(self):
        self.count, self.sums, self.magnitudes = Counter(), np.zeros(4), np.zeros(4)
        self.placed = []

    def before(self, battles, i, seat, action, mask):
        hand, elixir = battles.hand[i, seat], int(battles.elixir[i, seat])
        others = int(mask[1:].sum())
        self.count["steps"] += 1
        self.count["legal"] += 1 + others
        self.count["forced"] += others == 0
        self.count["elixir"] += elixir
        self.count["at", elixir // 28] += 1
        self.count["choice at", elixir // 28] += others > 0
        self.count["noop"] += action == 0
        self.count["choice noop"] += action == 0 and others > 0
        self.count["full"] += elixir >= 277.2  # 99 % of 280
        for slot, card in enumerate(hand):
            self.count["hand", card] += 1
            self.count["playable", card] += COST[card] <= elixir
            assert (COST[card] <= elixir) == mask[1 + slot * 240 : 241 + slot * 240].any()
        if action > 0 and mask[action]:
            self.count["plays"] += 1
            self.count["played", hand[(action - 1) // 240]] += 1
            self.count["tile", (action - 1) % 240] += 1
            self.placed.append((hand[(action - 1) // 240], (action - 1) % 240))
            self.count["play at", elixir // 28] += 1
        self.count["illegal"] += not mask[action]

    def after(self, terms):
        self.sums += terms
        self.magnitudes += np.abs(terms)


@pytest.fixture
def played(deal, random_actions):
    """Eight battles played to their end, three of them with illegal plays now and then."""
    battles, n = deal(8), 8
    tallies, rewards = empty_tallies(n), Rewards(RewardConfig(), n)
    rewards.begin(battles, np.arange(n))
    recounts = [[Recount(), Recount()] for _ in range(n)]
    draws, mask = np.random.default_rng(8), np.zeros((n, 2, rules.ACTIONS), np.bool_)
    everyone, keys, bot = np.ones((n, 2), np.bool_), bot_keys(battles), make_bot("random_wait")
    while (battles.outcome == rules.RUNNING).any():
        actions = bot.act(battles, everyone, keys)
        actions[:3] = random_actions(battles, draws, nonsense=0)[:3]
        noise = draws.random((3, 2)) < 0.05
        actions[:3][noise] = draws.integers(0, rules.ACTIONS, noise.sum())
        legal(battles, mask)
        running = np.flatnonzero(battles.outcome == rules.RUNNING)
        for i, seat in ((i, seat) for i in running for seat in range(2)):
            recounts[i][seat].before(battles, i, seat, actions[i, seat], mask[i, seat])
        before(tallies, battles, actions)
        step(battles, actions)
        rewards.step(battles)
        after(tallies, rewards.terms)
        for i, seat in ((i, seat) for i in running for seat in range(2)):
            recounts[i][seat].after(rewards.terms[i, seat])
    return battles, tallies, recounts


def records_of(battles, tallies):
    return [episode_metrics(battles, tallies, i) for i in range(len(battles.tick))]


def test_a_record_says_what_a_recount_says(played):
    battles, tallies, recounts = played
    records = records_of(battles, tallies)
    for i, seat in np.ndindex(8, 2):
        record, again = records[i][seat], recounts[i][seat]
        count, enemy = again.count, 1 - seat
        steps, outcome = count["steps"], battles.outcome[i]
        assert record["episode_steps"] == steps == -(-battles.tick[i] // 5)
        assert record["ticks"] == battles.tick[i]
        assert record["policy/cards_per_match"] == count["plays"] == battles.plays[i, seat]
        assert record["policy/cards_per_100_decisions"] == [100 * count["plays"], steps]
        assert record["illegal_action_rate"] == [count["illegal"], steps]
        assert record["mask_disagreements"] == 0
        assert record["policy/forced_noop_frac"] == [count["forced"], steps]
        assert record["policy/noop_rate"] == [count["noop"], steps]
        assert record["policy/noop_rate_choice"] == [count["choice noop"], steps - count["forced"]]
        assert record["policy/legal_actions_mean"] == [count["legal"], steps]
        choice_legal = count["legal"] - count["forced"]
        assert record["policy/legal_actions_mean_choice"] == [choice_legal, steps - count["forced"]]
        np.testing.assert_allclose(record["mean_elixir_at_decision"], [count["elixir"] / 28, steps])
        assert record["frac_elixir_above_99"] == [count["full"], steps]
        assert record["elixir_leak_frac"] == [battles.leak_decisions[i, seat], steps]
        assert record["policy/tile"] == [count["tile", tile] for tile in range(240)]
        elixir = record["elixir_at_decision"]
        assert elixir == [count["at", level] for level in range(11)]
        assert "play_rate_by_elixir/0" not in record
        for level in range(1, 11):
            expected = [count["play at", level], count["choice at", level]]
            assert record.get(f"play_rate_by_elixir/{level}", [0, 0]) == expected
        for card, row in enumerate(CARDS):
            key = row.name.lower().replace(" ", "_")
            hand, playable = count["hand", card], count["playable", card]
            plays = count["played", card]
            if card not in battles.deck[i, seat]:
                assert not [name for name in record if name.endswith("/" + key)]
                continue
            assert record[f"policy/card_play_frac/{key}"] == [plays, count["plays"]]
            assert record[f"policy/card_in_hand_frac/{key}"] == [hand, steps]
            assert record.get(f"policy/card_legal_frac/{key}", [0, 0]) == [playable, hand]
            assert record.get(f"policy/card_play_rate/{key}", [0, 0]) == [plays, playable]
        assert record["win_rate"] == [outcome == seat + 1, 1]
        assert record["draw_rate"] == [0, 1]
        assert record["crown_diff"] == battles.crowns[i, seat] - battles.crowns[i, enemy]
        assert record["elixir_count_exact_frac"] == 1
        assert record["episode_steps_at_cap_frac"] == (battles.tick[i] == 1800)
        share = (battles.tower_hp[i, enemy] / (4000, 2500, 2500)).mean()
        np.testing.assert_allclose(record["tower_hp_frac_end_enemy"], share)
        for k, term in enumerate(TERMS):
            assert record[f"reward_terms/{term}"] == again.sums[k]
            assert record[f"reward_terms_abs/{term}"] == abs(again.sums[k])
            assert record[f"reward_terms_step_abs/{term}"] == again.magnitudes[k]
        assert record["reward_terminal_abs"] == 1
        np.testing.assert_allclose(record["reward_shaping_abs"], np.abs(again.sums[1:]).sum())
        np.testing.assert_allclose(record["reward_shaping_step_abs"], again.magnitudes[1:].sum())
    assert sum(r.count["illegal"] for pair in recounts for r in pair) > 5


def test_a_battle_counts_once_towards_the_share_of_seat_0(played):
    battles, tallies, _ = played
    records = records_of(battles, tallies)
    assert not any("win_rate_by_seat" in second for _, second in records)
    shares = [first["win_rate_by_seat"] for first, _ in records]
    assert shares == [[outcome == 1, 1] for outcome in battles.outcome]


def test_an_episode_that_was_cut_off_is_neither_won_nor_drawn(deal):
    battles, tallies = deal(1), empty_tallies(1)
    step(battles, np.zeros((1, 2), np.int32))
    record = episode_metrics(battles, tallies, 0)[0]
    for name in ("win_rate", "draw_rate", "win_rate_by_seat", "policy/noop_rate"):
        assert name not in record
    assert record["tower_hp_frac_end_own"] == 1


def test_the_wire_takes_every_record_as_it_is(played):
    battles, tallies, _ = played
    metrics = {metric.name: metric for metric in EPISODE_METRICS}
    assert len(metrics) == len(EPISODE_METRICS) <= Limits().max_episode_metrics
    assert all(metric.population for metric in EPISODE_METRICS)
    for row, pair in enumerate(records_of(battles, tallies)):
        for values in pair:
            record = {"row": row, "return": 0.0, "length": 1, "time_s": 0.0, "metrics": values}
            cleaned, problems = clean_record(record, EPISODE_METRICS)
            assert not problems
            assert cleaned["metrics"] == values
            check_records((cleaned,), np.ones(8, np.bool_), metrics, Limits())


def test_every_declared_metric_is_reported_by_some_episode(played):
    battles, tallies, _ = played
    pairs = records_of(battles, tallies)
    assert set().union(*(record for pair in pairs for record in pair)) == {
        metric.name for metric in EPISODE_METRICS
    }


def test_a_record_names_card_and_tile_of_every_play_in_order(played):
    battles, tallies, recounts = played
    for i, pair in enumerate(records_of(battles, tallies)):
        for seat, record in enumerate(pair):
            expected = [240 * card + tile for card, tile in recounts[i][seat].placed]
            assert record["policy/card_tile"] == expected
            assert expected


def test_no_seat_can_play_more_cards_than_elixir_allows():
    # 5 + 60 s / 2.8 s + 120 s / 1.4 s = 112 elixir, and the cheapest card costs 1.
    assert tallies_module.MAX_PLAYS >= 112
    assert Limits().max_count_length >= tallies_module.MAX_PLAYS


def test_counters_of_a_battle_started_anew_are_zero_and_others_stay(played):
    _, tallies, _ = played
    kept = [array[1:].copy() for array in tallies]
    begin(tallies, np.array([0]))
    assert not any(array[0].any() for array in tallies)
    for array, old in zip(tallies, kept, strict=True):
        np.testing.assert_array_equal(array[1:], old)


def test_the_top_share_is_that_of_the_most_played_entries():
    counts = np.array([[5, 0, 1], [2, 2, 0]])
    assert top_share(counts, 1) == 0.5
    assert top_share(counts, 2) == 0.7
    assert top_share(counts * 0, 1) is None
