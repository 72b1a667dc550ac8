"""Records of finished episodes: the declared metrics, and their values from tallies and battles.

One record per seat and episode. A share is sent as numerator and denominator, so that an episode in
which something could not happen does not pull a mean towards zero; a share whose denominator is 0
is left out of the record. Plays by card *and* tile are too many numbers for a record (3,840): the
client adds them up in `tallies.before` and writes them as heat-maps; a record holds plays by tile.
Nothing here counts, and nothing here sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena.cards import CARDS
from royale_client.envs.arena.reward_config import TERMINAL_TERM, TERMS
from royale_client.envs.arena.rewards import Floats
from royale_client.envs.arena.rules import (
    CAP_TICKS,
    DRAWN,
    ELIXIR_UNIT,
    RUNNING,
    SEAT_0_WON,
    TOWER_HP,
)
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.tallies import (
    CHOICE_NO_OPS,
    CHOICE_STEPS,
    ELIXIR_LEVELS,
    ELIXIR_SUM,
    FORCED_STEPS,
    ILLEGAL,
    LEGAL_ACTIONS,
    NEARLY_FULL,
    NO_OPS,
    STEPS,
    Tallies,
)
from royale_client.wire.episodes import EpisodeMetric, MetricValue

_Array: TypeAlias = NDArray[Any]

CHEAPEST = min(card.cost for card in CARDS)
"""With less elixir nothing can be played, so no rate of play is declared there."""


class Ended(NamedTuple):
    """What is known of k finished battles; every array has axes battle and seat first."""

    ticks: _Array
    outcome: _Array
    """0 cut off, 1 won by seat 0, 2 by seat 1, 3 drawn; equal for both seats."""
    won: _Array
    crowns: _Array
    hp_share: _Array
    """Mean of the three towers' shares of hit points."""
    elixir: _Array
    counted_elixir: _Array
    plays: _Array
    refused: _Array
    dropped: _Array
    leaks: _Array
    deck: _Array
    """``(k, 2, C)``: whether the deck holds the card."""
    tallies: Tallies

    def number(self, which: int) -> _Array:
        """Return one of `Tallies.counts`, ``(k, 2)``."""
        counts: _Array = self.tallies.counts[..., which]
        return counts


@dataclass(frozen=True, slots=True)
class _Source:
    """A declared metric and where its value comes from."""

    metric: EpisodeMetric
    value: Callable[[Ended], tuple[_Array, ...]]
    """The numbers of a record, each ``(k, 2)``; of a count, one array ``(k, 2, entries)``."""


_ALL = "every episode of a seat"
_FINISHED = "episodes that were not cut off"
_DECISIONS = "all decisions of a seat"
_CHOICES = "decisions with a legal action besides the no-op"


def _mean(name: str, unit: str, population: str, value: Callable[[Ended], _Array]) -> _Source:
    return _Source(EpisodeMetric(name, unit, population, "mean"), lambda ended: (value(ended),))


def _ratio(
    name: str, unit: str, population: str, value: Callable[[Ended], tuple[_Array, _Array]]
) -> _Source:
    return _Source(EpisodeMetric(name, unit, population, "ratio"), value)


def _other(values: _Array) -> _Array:
    """Return the other seat's values."""
    return values[:, ::-1]


def _first_seat(values: _Array) -> _Array:
    """Return the values with those of seat 1 set to 0: numbers of a battle count once."""
    firsts: _Array = values * np.array([1, 0])
    return firsts


_BATTLE: tuple[_Source, ...] = (
    _mean("episode_steps", "decision", _ALL, lambda e: e.number(STEPS)),
    _mean("ticks", "tick", _ALL, lambda e: e.ticks),
    _mean("episode_steps_at_cap_frac", "1", _ALL, lambda e: e.ticks >= CAP_TICKS),
    _mean("crowns_for", "crown", _ALL, lambda e: e.crowns),
    _mean("crowns_against", "crown", _ALL, lambda e: _other(e.crowns)),
    _mean("crown_diff", "crown", _ALL, lambda e: e.crowns - _other(e.crowns)),
    _mean("tower_hp_frac_end_own", "1", _ALL, lambda e: e.hp_share),
    _mean("tower_hp_frac_end_enemy", "1", _ALL, lambda e: _other(e.hp_share)),
    _ratio("draw_rate", "1", _FINISHED, lambda e: (e.outcome == DRAWN, e.outcome != RUNNING)),
    _ratio("win_rate", "1", "episodes with a winner", lambda e: (e.won, e.won | _other(e.won))),
    _ratio(
        "win_rate_by_seat",
        "1",
        "battles with a winner: share won by seat 0; seat 0 alone reports it, whoever plays it",
        lambda e: (
            _first_seat(e.outcome == SEAT_0_WON),
            _first_seat(e.won | _other(e.won)),
        ),
    ),
    _ratio("elixir_leak_frac", "1", _DECISIONS, lambda e: (e.leaks, e.number(STEPS))),
    _mean(
        "elixir_count_exact_frac",
        "1",
        "every episode of a seat: whether the enemy's elixir, counted by its plays, was exact",
        lambda e: _other(e.elixir == e.counted_elixir),
    ),
    _ratio(
        "mean_elixir_at_decision",
        "elixir",
        _DECISIONS,
        lambda e: (e.number(ELIXIR_SUM) / ELIXIR_UNIT, e.number(STEPS)),
    ),
    _Source(
        EpisodeMetric("elixir_at_decision", "decision", "decisions by whole elixir, 0–10", "count"),
        lambda e: (e.tallies.decisions_at,),
    ),
    _ratio(
        "frac_elixir_above_99", "1", _DECISIONS, lambda e: (e.number(NEARLY_FULL), e.number(STEPS))
    ),
    _ratio("illegal_action_rate", "1", _DECISIONS, lambda e: (e.refused, e.number(STEPS))),
    _mean(
        "mask_disagreements",
        "action",
        "every episode of a seat: actions that mask and game judged differently",
        lambda e: np.abs(e.refused - e.number(ILLEGAL)),
    ),
    _mean("dropped_spawns", "unit", _ALL, lambda e: e.dropped),
)


def _play_rates_by_elixir() -> tuple[_Source, ...]:
    def source(level: int) -> _Source:
        return _ratio(
            f"play_rate_by_elixir/{level}",
            "1",
            f"{_CHOICES}, at {level} whole elixir",
            lambda e: (e.tallies.plays_at[..., level], e.tallies.choices_at[..., level]),
        )

    return tuple(source(level) for level in range(CHEAPEST, ELIXIR_LEVELS))


def _reward_terms() -> tuple[_Source, ...]:
    def sources(index: int, term: str) -> tuple[_Source, ...]:
        def total(e: Ended) -> _Array:
            return e.tallies.term_sums[..., index]

        def magnitude(e: Ended) -> _Array:
            return e.tallies.term_magnitudes[..., index]

        return (
            _mean(f"reward_terms/{term}", "reward", _ALL, total),
            _mean(f"reward_terms_abs/{term}", "reward", _ALL, lambda e: np.abs(total(e))),
            _mean(f"reward_terms_step_abs/{term}", "reward", _ALL, magnitude),
        )

    goal = TERMS.index(TERMINAL_TERM)
    shaping = [index for index in range(len(TERMS)) if index != goal]
    singles = tuple(source for k, term in enumerate(TERMS) for source in sources(k, term))
    return (
        *singles,
        _mean(
            "reward_shaping_abs",
            "reward",
            f"{_ALL}: sum over the shaping terms of the episode's sum, without its sign",
            lambda e: np.abs(e.tallies.term_sums[..., shaping]).sum(axis=-1),
        ),
        _mean(
            "reward_shaping_step_abs",
            "reward",
            f"{_ALL}: sum over the shaping terms and steps, without signs",
            lambda e: e.tallies.term_magnitudes[..., shaping].sum(axis=-1),
        ),
        _mean(
            "reward_terminal_abs", "reward", _ALL, lambda e: np.abs(e.tallies.term_sums[..., goal])
        ),
    )


_POLICY: tuple[_Source, ...] = (
    _mean("cards_per_match", "card", _ALL, lambda e: e.plays),
    _ratio(
        "cards_per_100_decisions", "card", _DECISIONS, lambda e: (100 * e.plays, e.number(STEPS))
    ),
    _ratio(
        "noop_rate",
        "1",
        _DECISIONS,
        lambda e: (e.number(NO_OPS), e.number(STEPS)),
    ),
    _ratio(
        "noop_rate_choice",
        "1",
        _CHOICES,
        lambda e: (e.number(CHOICE_NO_OPS), e.number(CHOICE_STEPS)),
    ),
    _ratio(
        "forced_noop_frac", "1", _DECISIONS, lambda e: (e.number(FORCED_STEPS), e.number(STEPS))
    ),
    _ratio(
        "legal_actions_mean",
        "action",
        _DECISIONS,
        lambda e: (e.number(LEGAL_ACTIONS), e.number(STEPS)),
    ),
    _ratio(
        "legal_actions_mean_choice",
        "action",
        _CHOICES,
        lambda e: (e.number(LEGAL_ACTIONS) - e.number(FORCED_STEPS), e.number(CHOICE_STEPS)),
    ),
    _Source(
        EpisodeMetric("tile_plays", "play", "plays by tile, row * 12 + column, own frame", "count"),
        lambda e: (e.tallies.tiles,),
    ),
)


def _cards() -> tuple[_Source, ...]:
    def sources(card: int, name: str) -> tuple[_Source, ...]:
        key = name.lower().replace(" ", "_")
        holders = f"episodes of a seat whose deck holds {name}"

        def of(e: Ended, values: _Array) -> _Array:
            return values * e.deck[..., card]

        def in_hand(e: Ended) -> _Array:
            return e.tallies.in_hand[..., card]

        def playable(e: Ended) -> _Array:
            return e.tallies.playable[..., card]

        def played(e: Ended) -> _Array:
            return e.tallies.played[..., card]

        return (
            _ratio(
                f"card_play_frac/{key}",
                "1",
                f"{holders}: share of all plays",
                lambda e: (played(e), of(e, e.plays)),
            ),
            _ratio(
                f"card_in_hand_frac/{key}",
                "1",
                f"{holders}: share of decisions with it in hand",
                lambda e: (in_hand(e), of(e, e.number(STEPS))),
            ),
            _ratio(
                f"card_legal_frac/{key}",
                "1",
                f"decisions with {name} in hand: share in which it could be played",
                lambda e: (playable(e), in_hand(e)),
            ),
            _ratio(
                f"card_play_rate/{key}",
                "1",
                f"decisions in which {name} could be played: share in which it was",
                lambda e: (played(e), playable(e)),
            ),
        )

    return tuple(source for card, row in enumerate(CARDS) for source in sources(card, row.name))


_SOURCES = (*_BATTLE, *_play_rates_by_elixir(), *_reward_terms(), *_POLICY, *_cards())

EPISODE_METRICS: tuple[EpisodeMetric, ...] = tuple(source.metric for source in _SOURCES)
"""All metrics a record may hold, as the client declares them."""


def episode_metrics(
    battles: Battles, tallies: Tallies, which: NDArray[np.int64]
) -> list[tuple[dict[str, MetricValue], dict[str, MetricValue]]]:
    """Return the metrics of finished battles, before they are started anew.

    Args:
        battles: N battles.
        tallies: Their counters.
        which: Indices of the finished ones, ``(k,)``.

    Returns:
        Per battle, in the order of ``which``, the values of seat 0 and of seat 1 by metric name.
    """
    ended = _ended(battles, tallies, which)
    records: list[tuple[dict[str, MetricValue], dict[str, MetricValue]]]
    records = [({}, {}) for _ in which]
    for source in _SOURCES:
        for pair, values in zip(records, _values(source, ended), strict=True):
            for record, value in zip(pair, values, strict=True):
                if value is not None:
                    record[source.metric.name] = value
    return records


def top_share(counts: NDArray[np.integer[Any]], k: int) -> float | None:
    """Return which share of all plays the ``k`` most played entries hold; None without a play.

    ``top_share(tiles, 1)`` is `tile_top1_share`, ``top_share(placed, 10)`` `card_tile_top10_share`.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    return float(np.sort(counts, axis=None)[-k:].sum() / total)


def _values(source: _Source, ended: Ended) -> list[list[MetricValue | None]]:
    """Return a metric's value per battle and seat; None where there is nothing to report."""
    arrays = [np.asarray(array, np.float64) for array in source.value(ended)]
    if source.metric.aggregation == "ratio":
        pairs: list[list[list[float]]] = np.stack(arrays, axis=-1).tolist()
        return [[pair if pair[1] else None for pair in row] for row in pairs]
    values: list[list[MetricValue | None]] = arrays[0].tolist()
    return values


def _ended(battles: Battles, tallies: Tallies, which: NDArray[np.int64]) -> Ended:
    outcome = np.repeat(battles.outcome[which][:, None], 2, axis=1)
    deck = np.zeros((len(which), 2, len(CARDS)), np.bool_)
    np.put_along_axis(deck, battles.deck[which], values=True, axis=-1)
    hp_share: Floats = (battles.tower_hp[which] / np.array(TOWER_HP)).mean(axis=-1)
    return Ended(
        ticks=np.repeat(battles.tick[which][:, None], 2, axis=1),
        outcome=outcome,
        won=outcome == np.array([1, 2]),
        crowns=battles.crowns[which],
        hp_share=hp_share,
        elixir=battles.elixir[which],
        counted_elixir=battles.counted_elixir[which],
        plays=battles.plays[which],
        refused=battles.refused[which],
        dropped=battles.dropped[which],
        leaks=battles.leak_decisions[which],
        deck=deck,
        tallies=Tallies._make(array[which] for array in tallies),
    )
