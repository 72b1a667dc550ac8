"""Plays the battles of an evaluation round, a block of them at a time.

The two halves of a block have the same deals; the first player sits in seat 0 of the one and in
seat 1 of the other, so it plays either hand of every deal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from royale_client.envs.arena import kernels
from royale_client.envs.arena.columns import VECTOR_SIZE
from royale_client.envs.arena.deals import start
from royale_client.envs.arena.replay import Replay, record
from royale_client.envs.arena.rules import ACTIONS, DRAWN, RUNNING, SEATS
from royale_client.envs.arena.state import Battles, empty, views_of
from royale_client.envs.arena.tensors import PLANES_SHAPE, observe
from royale_server.evaluation.players import Player, View
from royale_server.evaluation.round import DRAW, LOSS, WIN, EvaluationRound, Results

BLOCK_PAIRS = 256
"""Pairs that are played at once: enough to fill a batch, and a few megabytes."""


def play(
    evaluation: EvaluationRound,
    first: Player,
    second: Player,
    *,
    progress: Callable[[int], None],
) -> Replay:
    """Play all pairs of a round; return the first of its battles.

    Args:
        evaluation: Takes the results.
        first: The player whose results they are; it sits in seat 0 of the battle returned.
        second: The other one.
        progress: Called with the number of battles that are over, after every block.
    """
    replays: list[Replay] = []
    for begin in range(0, evaluation.num_pairs, BLOCK_PAIRS):
        pairs = np.arange(begin, min(begin + BLOCK_PAIRS, evaluation.num_pairs))
        battles, played = _play_block(evaluation.seed, pairs, first, second)
        outcomes = battles.outcome.reshape(SEATS, len(pairs))
        for side in range(SEATS):
            evaluation.enter(pairs, side, _results(outcomes[side], side))
        if not replays:
            replays.append(record(battles, 0, (first.name, second.name), played))
        progress(evaluation.num_known)
    return replays[0]


def _play_block(
    seed: int, pairs: npt.NDArray[np.int64], first: Player, second: Player
) -> tuple[Battles, list[list[int]]]:
    """Play ``2 k`` battles: in the first k the first player sits in seat 0, then in seat 1.

    Returns:
        The battles, and both seats' actions of the first one, a pair a decision.
    """
    count = len(pairs)
    battles = empty(SEATS * count)
    start(
        battles,
        np.arange(SEATS * count),
        seed=seed,
        battle_ids=np.tile(pairs, SEATS),
        ordinals=0,
    )
    tensors = _Tensors(SEATS * count)
    actions = np.zeros((SEATS * count, SEATS), np.int32)
    played: list[list[int]] = []
    while len(running := (battles.outcome == RUNNING).nonzero()[0]):
        is_late = running >= count
        sides = running[~is_late], running[is_late]
        tensors.look(battles, running, is_needed=first.needs_view or second.needs_view)
        for seat in range(SEATS):
            for player, rows in ((first, sides[seat]), (second, sides[1 - seat])):
                if len(rows):
                    actions[rows, seat] = player.act(tensors.view(battles, rows, seat))
        if running[0] == 0:
            played.append(actions[0].tolist())
        kernels.step(battles, actions)
    return battles, played


class _Tensors:
    """What both seats of a block see."""

    def __init__(self, n: int) -> None:
        self.planes = np.zeros((n, SEATS, *PLANES_SHAPE), np.uint8)
        self.vector = np.zeros((n, SEATS, VECTOR_SIZE), np.float32)
        self.mask = np.zeros((n, SEATS, ACTIONS), np.bool_)
        self._rows = np.zeros(0, np.int64)

    def look(self, battles: Battles, rows: npt.NDArray[np.int64], *, is_needed: bool) -> None:
        """Bring the rows up to date."""
        self._rows = rows
        if not is_needed:
            return
        count = len(rows)  # the rest of the arrays is room
        observe(
            views_of(battles.raw[rows]), self.planes[:count], self.vector[:count], self.mask[:count]
        )

    def view(self, battles: Battles, rows: npt.NDArray[np.int64], seat: int) -> View:
        """Return what a seat sees in some of the rows looked at."""
        places = np.searchsorted(self._rows, rows)
        return View(
            battles,
            rows,
            seat,
            self.planes[places, seat],
            self.vector[places, seat],
            self.mask[places, seat],
        )


def _results(outcomes: npt.NDArray[np.int32], side: int) -> Results:
    """Return the results of who sat in seat ``side``."""
    won = outcomes == 1 + side
    results: Results = np.where(outcomes == DRAWN, DRAW, np.where(won, WIN, LOSS)).astype(np.int8)
    return results
