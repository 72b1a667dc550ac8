"""What the arena says about itself when a server asks: found out by trying, in battles of its own.

Masks come from the code that writes those of training (`batch`), verdicts from the kernels that
carry plays out; neither is derived from the other here. Judges nothing: the server compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena import kernels, rules
from royale_client.envs.arena.batch import ArenaBatch
from royale_client.envs.arena.cards import CARDS, NUM_CARDS, SPELL
from royale_client.envs.arena.rules import (
    ACTIONS,
    HAND_SIZE,
    LEFT_FLANK,
    NO_OP,
    PLAY_DONE,
    PLAY_NONE,
    RIGHT_FLANK,
    RUNNING,
    SEATS,
    TILE_UNITS,
)
from royale_client.envs.arena.state import Battles, views_of
from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING, ProbeAnswer

NewBatch = Callable[[int], ArenaBatch]
"""Makes a batch of so many battles, as training does."""

SAMPLED_BATTLES, SAMPLES = 20, 25
"""``SAMPLED_BATTLES * SAMPLES * SEATS`` = 1,000 states."""
SAMPLE_EVERY = 15
"""Decisions from one sample to the next: 24 of them reach beyond the longest battle's 360th."""
COLUMNS = ("slot", "row", "column")

_ELIXIRS = (rules.ELIXIR_CAP, 3 * rules.ELIXIR_UNIT, 0)
"""Everything affordable, what costs up to 3, nothing."""
_FALLEN = (
    ("both enemy flank towers up", ()),
    ("the enemy's left flank tower down", (LEFT_FLANK,)),
    ("the enemy's right flank tower down", (RIGHT_FLANK,)),
    ("both enemy flank towers down", (LEFT_FLANK, RIGHT_FLANK)),
)
_ALL_ACTIONS = np.arange(ACTIONS, dtype=np.int32)
_KEYS = np.uint64(2**63)
"""Battles of probes are dealt from here on, away from those of seeds."""


class _Scene(NamedTuple):
    """A state that both seats are put into, each in its own frame."""

    hand: tuple[int, ...]
    elixir: int
    towers: str
    fallen: tuple[int, ...]

    def describe(self, seat: int) -> str:
        names = ", ".join(f"{slot} {CARDS[card].name}" for slot, card in enumerate(self.hand))
        elixir = self.elixir // rules.ELIXIR_UNIT
        return f"seat {seat}, hand {names}, {elixir} elixir, {self.towers}"

    def put(self, battles: Battles) -> None:
        battles.hand[...] = self.hand
        battles.elixir[...] = battles.counted_elixir[...] = self.elixir
        for tower in self.fallen:
            battles.tower_hp[..., tower] = 0


def answer(question: str, new_batch: NewBatch) -> ProbeAnswer:
    """Answer a server's question.

    Args:
        question: See `royale_client.wire.probes.QUESTIONS`.
        new_batch: Makes the battles.

    Raises:
        ValueError: If the question is unknown.
    """
    known = {LAYOUT: _layout, WAITING: _waiting, LEGALITY: _legality}
    if question not in known:
        raise ValueError(f"the arena knows no answer to {question!r}")
    return known[question](new_batch)


def _fresh(new_batch: NewBatch, count: int) -> ArenaBatch:
    batch = new_batch(count)
    batch.reset(_KEYS + np.arange(count, dtype=np.uint64))
    return batch


def _scenes() -> Iterator[_Scene]:
    """Every card in every slot with all elixir; every card once with less; all tower states."""
    for elixir, (towers, fallen) in product(_ELIXIRS, _FALLEN):
        firsts = range(NUM_CARDS) if elixir == rules.ELIXIR_CAP else range(0, NUM_CARDS, HAND_SIZE)
        for first in firsts:
            hand = tuple((first + k) % NUM_CARDS for k in range(HAND_SIZE))
            yield _Scene(hand, elixir, towers, fallen)


def _legality(new_batch: NewBatch) -> ProbeAnswer:
    """Try every action in every scene, from both seats."""
    seen = _fresh(new_batch, 1)
    origin = seen.battles.raw.copy()
    states, masks, verdicts = [], [], []
    for scene in _scenes():
        seen.battles.raw[...] = origin
        scene.put(seen.battles)
        seen.observe()
        masks.append(seen.mask[0].copy())
        verdicts.append(_tried(seen.battles.raw))
        states += [scene.describe(seat) for seat in range(SEATS)]
    return ProbeAnswer(
        states=tuple(states), masks=np.concatenate(masks), verdicts=np.concatenate(verdicts)
    )


def _tried(row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which actions each seat can carry out in one battle. Shape ``(2, 961)``."""
    battles = views_of(np.repeat(row, ACTIONS, axis=0))
    kernels.step(battles, np.repeat(_ALL_ACTIONS[:, None], SEATS, axis=1))
    done: NDArray[np.bool_] = battles.play_status == PLAY_DONE
    done[NO_OP] = battles.play_status[NO_OP] == PLAY_NONE
    return done.T


def _layout(new_batch: NewBatch) -> ProbeAnswer:
    """Let seat 0 play every action with a spell in each slot, and see which left, and where to.

    The spell is the one that is longest on its way, so that it is still there after the decision.
    """
    spell = max(range(NUM_CARDS), key=lambda card: (CARDS[card].kind == SPELL, CARDS[card].delay))
    other = (spell + 1) % NUM_CARDS
    batch = _fresh(new_batch, 1)
    _Scene((spell,) * HAND_SIZE, rules.ELIXIR_CAP, "", ()).put(batch.battles)
    batch.battles.queue[...] = other
    battles = views_of(np.repeat(batch.battles.raw, ACTIONS, axis=0))
    kernels.step(battles, np.stack([_ALL_ACTIONS, np.zeros_like(_ALL_ACTIONS)], axis=1))
    layout = np.full((ACTIONS, len(COLUMNS)), -1, np.int64)
    left = battles.hand[:, 0] == other
    played = left.sum(axis=1) == 1
    layout[played, 0] = left[played].argmax(axis=1)
    layout[played, 1] = battles.spell_y[played, 0, 0] // TILE_UNITS
    layout[played, 2] = battles.spell_x[played, 0, 0] // TILE_UNITS
    return ProbeAnswer(columns=COLUMNS, layout=layout)


def _waiting(new_batch: NewBatch) -> ProbeAnswer:
    """Sample what is legal while random legal play goes on, and once battles are over."""
    batch = _fresh(new_batch, SAMPLED_BATTLES)
    choices = np.random.default_rng(0)
    states, masks = [], []
    for sample in range(SAMPLES):
        masks.append(batch.mask.reshape(-1, ACTIONS).copy())
        states += [
            f"seat {seat}, decision {sample * SAMPLE_EVERY}, "
            f"{'running' if outcome == RUNNING else 'the battle is over'}"
            for outcome, seat in product(batch.battles.outcome.tolist(), range(SEATS))
        ]
        for _ in range(SAMPLE_EVERY):
            batch.step(_random_legal(batch.mask, choices))
    return ProbeAnswer(states=tuple(states), masks=np.concatenate(masks))


def _random_legal(masks: NDArray[np.bool_], choices: np.random.Generator) -> NDArray[np.int64]:
    """Draw one legal action of each seat, each as likely as the next. Shape ``(N, 2)``."""
    scores = choices.random(masks.shape, np.float32)
    chosen: NDArray[np.int64] = np.where(masks, scores, -1.0).argmax(axis=-1)
    return chosen
