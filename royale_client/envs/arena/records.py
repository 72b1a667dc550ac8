"""Records of finished episodes: the declared metrics, and their values from tallies and battles.

One record per seat and episode. A share is sent as numerator and denominator, so that an episode in
which something could not happen does not pull a mean towards zero; a share whose denominator is 0
is left out of the record. Plays by card *and* tile would be 3,840 counts, nearly all of them 0: a
record names card and tile of each play instead, and the server counts them. Nothing here counts,
and nothing here sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import layout
from royale_client.envs.arena.cards import CARDS
from royale_client.envs.arena.reward_config import TERMINAL_TERM, TERMS
from royale_client.envs.arena.rules import (
    CAP_TICKS,
    DECK_SIZE,
    DRAWN,
    ELIXIR_UNIT,
    RUNNING,
    SEAT_0_WON,
    TILES,
    TOWER_HP,
    TOWERS,
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
    PARTS,
    STEPS,
    Tallies,
)
from royale_client.wire.episodes import EpisodeMetric, MetricValue

Record: TypeAlias = dict[str, MetricValue]

CHEAPEST = min(card.cost for card in CARDS)
"""With less elixir nothing can be played, so no rate of play is declared there."""


class Ended(NamedTuple):
    """One finished episode of one seat, as plain numbers; a record costs more in small arrays."""

    seat: int
    ticks: int
    outcome: int
    crowns: int
    enemy_crowns: int
    hp_share: float
    """Mean of the own three towers' shares of hit points."""
    enemy_hp_share: float
    is_count_exact: bool
    """Whether the enemy's elixir, counted by its plays, is what it has."""
    plays: int
    refused: int
    dropped: int
    leaks: int
    deck: list[int]
    placed: list[int]
    """Card * TILES + tile of each play, in their order."""
    counts: list[int]
    """As `tallies.PARTS` say, like the lists below."""
    decisions_at: list[int]
    choices_at: list[int]
    plays_at: list[int]
    in_hand: list[int]
    playable: list[int]
    played: list[int]
    tiles: list[int]
    term_sums: list[float]
    term_magnitudes: list[float]

    @property
    def steps(self) -> int:
        """Decisions."""
        return self.counts[STEPS]

    @property
    def is_won(self) -> bool:
        """Whether this seat won."""
        return self.outcome == SEAT_0_WON + self.seat

    @property
    def is_decided(self) -> bool:
        """Whether a seat won."""
        return self.outcome not in (RUNNING, DRAWN)


@dataclass(frozen=True, slots=True)
class _Source:
    """A declared metric and where its value comes from."""

    metric: EpisodeMetric
    value: Callable[[Ended], Any]
    """A number for a mean, numerator and denominator for a ratio or share, a list else."""


_ALL = "every episode of a seat"
_FINISHED = "episodes that were not cut off"
_DECISIONS = "all decisions of a seat"
_CHOICES = "decisions with a legal action besides the no-op"


def _mean(name: str, unit: str, population: str, value: Callable[[Ended], float]) -> _Source:
    return _Source(EpisodeMetric(name, unit, population, "mean"), value)


def _ratio(
    name: str, unit: str, population: str, value: Callable[[Ended], tuple[float, float]]
) -> _Source:
    return _Source(EpisodeMetric(name, unit, population, "ratio"), value)


def _count(name: str, unit: str, population: str, value: Callable[[Ended], list[int]]) -> _Source:
    return _Source(EpisodeMetric(name, unit, population, "count"), value)


def _share(name: str, population: str, value: Callable[[Ended], tuple[float, float]]) -> _Source:
    return _Source(EpisodeMetric(name, "1", population, "share"), value)


_BATTLE: tuple[_Source, ...] = (
    _mean("episode_steps", "decision", _ALL, lambda e: e.steps),
    _mean("ticks", "tick", _ALL, lambda e: e.ticks),
    _mean("episode_steps_at_cap_frac", "1", _ALL, lambda e: e.ticks >= CAP_TICKS),
    _mean("crowns_for", "crown", _ALL, lambda e: e.crowns),
    _mean("crowns_against", "crown", _ALL, lambda e: e.enemy_crowns),
    _mean("crown_diff", "crown", _ALL, lambda e: e.crowns - e.enemy_crowns),
    _mean("tower_hp_frac_end_own", "1", _ALL, lambda e: e.hp_share),
    _mean("tower_hp_frac_end_enemy", "1", _ALL, lambda e: e.enemy_hp_share),
    _ratio("draw_rate", "1", _FINISHED, lambda e: (e.outcome == DRAWN, e.outcome != RUNNING)),
    _ratio("win_rate", "1", "episodes with a winner", lambda e: (e.is_won, e.is_decided)),
    _share(
        "win_rate_by_seat",
        "battles with a winner: share won by seat 0; seat 0 alone reports it, whoever plays it",
        lambda e: (e.is_won, e.is_decided and e.seat == 0),
    ),
    _ratio("elixir_leak_frac", "1", _DECISIONS, lambda e: (e.leaks, e.steps)),
    _mean(
        "elixir_count_exact_frac",
        "1",
        "every episode of a seat: whether the enemy's elixir, counted by its plays, was exact",
        lambda e: e.is_count_exact,
    ),
    _ratio(
        "mean_elixir_at_decision",
        "elixir",
        _DECISIONS,
        lambda e: (e.counts[ELIXIR_SUM] / ELIXIR_UNIT, e.steps),
    ),
    _count(
        "elixir_at_decision",
        "decision",
        f"{_DECISIONS}, by whole elixir from 0 to {ELIXIR_LEVELS - 1}",
        lambda e: e.decisions_at,
    ),
    _ratio("frac_elixir_above_99", "1", _DECISIONS, lambda e: (e.counts[NEARLY_FULL], e.steps)),
    _ratio("illegal_action_rate", "1", _DECISIONS, lambda e: (e.refused, e.steps)),
    _mean(
        "mask_disagreements",
        "action",
        "every episode of a seat: actions that mask and game judged differently",
        lambda e: abs(e.refused - e.counts[ILLEGAL]),
    ),
    _mean("dropped_spawns", "unit", _ALL, lambda e: e.dropped),
)

_POLICY: tuple[_Source, ...] = (
    _mean("policy/cards_per_match", "card", _ALL, lambda e: e.plays),
    _ratio(
        "policy/cards_per_100_decisions", "card", _DECISIONS, lambda e: (100 * e.plays, e.steps)
    ),
    _ratio("policy/noop_rate", "1", _DECISIONS, lambda e: (e.counts[NO_OPS], e.steps)),
    _ratio(
        "policy/noop_rate_choice",
        "1",
        _CHOICES,
        lambda e: (e.counts[CHOICE_NO_OPS], e.counts[CHOICE_STEPS]),
    ),
    _ratio("policy/forced_noop_frac", "1", _DECISIONS, lambda e: (e.counts[FORCED_STEPS], e.steps)),
    _ratio(
        "policy/legal_actions_mean",
        "action",
        _DECISIONS,
        lambda e: (e.counts[LEGAL_ACTIONS], e.steps),
    ),
    _ratio(
        "policy/legal_actions_mean_choice",
        "action",
        _CHOICES,
        lambda e: (e.counts[LEGAL_ACTIONS] - e.counts[FORCED_STEPS], e.counts[CHOICE_STEPS]),
    ),
    _Source(
        EpisodeMetric(
            "policy/card_tile",
            "1",
            f"card times {TILES} plus tile of each play, own frame",
            "categories",
        ),
        lambda e: e.placed,
    ),
    _count("policy/tile", "play", "plays by tile, row * 12 + column, own frame", lambda e: e.tiles),
)


def _reward_terms() -> Iterable[_Source]:
    goal = TERMS.index(TERMINAL_TERM)
    for index, term in enumerate(TERMS):
        yield from _reward_term(index, term)
    yield _mean(
        "reward_shaping_abs",
        "reward",
        f"{_ALL}: sum over the shaping terms of the episode's sum, without its sign",
        lambda e: sum(abs(total) for k, total in enumerate(e.term_sums) if k != goal),
    )
    yield _mean(
        "reward_shaping_step_abs",
        "reward",
        f"{_ALL}: sum over the shaping terms and steps, without signs",
        lambda e: sum(total for k, total in enumerate(e.term_magnitudes) if k != goal),
    )
    yield _mean("reward_terminal_abs", "reward", _ALL, lambda e: abs(e.term_sums[goal]))


def _reward_term(index: int, term: str) -> tuple[_Source, ...]:
    return (
        _mean(f"reward_terms/{term}", "reward", _ALL, lambda e: e.term_sums[index]),
        _mean(f"reward_terms_abs/{term}", "reward", _ALL, lambda e: abs(e.term_sums[index])),
        _mean(f"reward_terms_step_abs/{term}", "reward", _ALL, lambda e: e.term_magnitudes[index]),
    )


def _play_rate(level: int) -> _Source:
    return _ratio(
        f"play_rate_by_elixir/{level}",
        "1",
        f"{_CHOICES}, at {level} whole elixir",
        lambda e: (e.plays_at[level], e.choices_at[level]),
    )


def _card(card: int, name: str) -> tuple[_Source, ...]:
    key = name.lower().replace(" ", "_")
    holders = f"episodes of a seat whose deck holds {name}"
    return (
        _ratio(
            f"policy/card_play_frac/{key}",
            "1",
            f"{holders}: share of all plays",
            lambda e: (e.played[card], e.plays),
        ),
        _ratio(
            f"policy/card_in_hand_frac/{key}",
            "1",
            f"{holders}: share of decisions with it in hand",
            lambda e: (e.in_hand[card], e.steps),
        ),
        _ratio(
            f"policy/card_legal_frac/{key}",
            "1",
            f"decisions with {name} in hand: share in which it could be played",
            lambda e: (e.playable[card], e.in_hand[card]),
        ),
        _ratio(
            f"policy/card_play_rate/{key}",
            "1",
            f"decisions in which {name} could be played: share in which it was",
            lambda e: (e.played[card], e.playable[card]),
        ),
    )


_OF_ALL = (
    *_BATTLE,
    *(_play_rate(level) for level in range(CHEAPEST, ELIXIR_LEVELS)),
    *_reward_terms(),
    *_POLICY,
)
_OF_CARD = tuple(_card(index, card.name) for index, card in enumerate(CARDS))
"""By card; a record holds those of its deck."""

EPISODE_METRICS: tuple[EpisodeMetric, ...] = tuple(
    source.metric for sources in (_OF_ALL, *_OF_CARD) for source in sources
)
"""All metrics a record may hold, as the client declares them."""


def episode_metrics(battles: Battles, tallies: Tallies, i: int) -> tuple[Record, Record]:
    """Return the metrics of a finished battle, before it is started anew.

    Args:
        battles: N battles.
        tallies: Their counters.
        i: Index of the battle.

    Returns:
        The values of seat 0 and of seat 1 by metric name.
    """
    first, second = (_record(_ended(battles, tallies, i, seat)) for seat in range(2))
    return first, second


def top_share(counts: NDArray[np.integer[Any]], k: int) -> float | None:
    """Return which share of all plays the ``k`` most played entries hold; None without a play.

    ``top_share(tiles, 1)`` is `tile_top1_share`; over counts by card and tile ``top_share(…, 10)``
    is `card_tile_top10_share`.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    return float(np.sort(counts, axis=None)[-k:].sum() / total)


_Reader: TypeAlias = tuple[str, bool, Callable[[Ended], Any]]


def _readers(sources: Iterable[_Source]) -> tuple[_Reader, ...]:
    """Return name, whether it is a ratio, and where the value comes from: looked up once."""
    return tuple(
        (source.metric.name, source.metric.aggregation in ("ratio", "share"), source.value)
        for source in sources
    )


_READERS = _readers(_OF_ALL)
_CARD_READERS = tuple(_readers(sources) for sources in _OF_CARD)


def _record(ended: Ended) -> Record:
    record: Record = {}
    for readers in (_READERS, *(_CARD_READERS[card] for card in ended.deck)):
        for name, is_ratio, value_of in readers:
            value = value_of(ended)
            if not is_ratio:
                record[name] = value
            elif value[1]:
                record[name] = [value[0], value[1]]
    return record


def _ended(battles: Battles, tallies: Tallies, i: int, seat: int) -> Ended:
    numbers = tallies.numbers[i, seat].tolist()
    own, enemy = _numbers(battles, i, seat), _numbers(battles, i, 1 - seat)
    return Ended(
        seat,
        int(battles.tick[i]),
        int(battles.outcome[i]),
        own[layout.CROWNS],
        enemy[layout.CROWNS],
        _hp_share(own),
        _hp_share(enemy),
        enemy[layout.ELIXIR] == enemy[layout.COUNTED_ELIXIR],
        own[layout.PLAYS],
        own[layout.REFUSED],
        own[layout.DROPPED],
        own[layout.LEAK_DECISIONS],
        own[layout.DECK : layout.DECK + DECK_SIZE],
        tallies.plays[i, seat, : own[layout.PLAYS]].tolist(),
        *(numbers[part] for part in PARTS.values()),
        *tallies.terms[i, seat].tolist(),
    )


def _numbers(battles: Battles, i: int, seat: int) -> list[int]:
    """Return a seat's block as far as a record reads it: all before the towers' cooldowns."""
    start = layout.SEAT_STARTS[seat]
    numbers: list[int] = battles.raw[i, start : start + layout.TOWER_COOLDOWN].tolist()
    return numbers


def _hp_share(block: list[int]) -> float:
    tower_hp = block[layout.TOWER_HP : layout.TOWER_HP + TOWERS]
    return sum(hp / full for hp, full in zip(tower_hp, TOWER_HP, strict=True)) / TOWERS
