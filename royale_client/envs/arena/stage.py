"""A running battle, kept for spectators: what it was after every decision.

Written by the thread that steps, which copies one battle a decision and waits for nobody; read by
those that show it. The battle before is kept until the next one ends, so that its end is seen.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from royale_client.envs.arena.rules import RUNNING
from royale_client.envs.arena.state import Battles, views_of


@dataclass(slots=True, kw_only=True)
class ShownBattle:
    """A battle from where it was first seen to where it is by now; both lists only grow."""

    number: int
    """Which of those shown, from 0."""
    players: tuple[str, ...]
    """Who sits in each seat."""
    states: list[NDArray[np.int32]] = field(default_factory=list)
    """Its row ``(1, ROW_WORDS)``, at first and after every decision; see `state.views_of`."""
    actions: list[tuple[int, ...]] = field(default_factory=list)
    """Both seats' actions, a pair a decision; one less than there are states."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self.states) and int(views_of(self.states[-1]).outcome[0]) != RUNNING


class Stage:
    """Shows one battle of many after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._shown: list[ShownBattle] = []

    def begin(self, battles: Battles, i: int, players: Sequence[str]) -> None:
        """Show a battle from now on.

        Args:
            battles: N battles; they are copied.
            i: Which of them.
            players: Who sits in each seat.
        """
        state = battles.raw[i : i + 1].copy()
        with self._lock:
            shown = ShownBattle(number=self._next, players=tuple(players), states=[state])
            self._next += 1
            self._shown = [*self._shown[-1:], shown]

    def add(self, battles: Battles, i: int, actions: NDArray[Any]) -> None:
        """Show a decision of the battle that was begun.

        Args:
            battles: N battles after it; they are copied.
            i: Which of them.
            actions: What both seats did, ``(2,)``.
        """
        state, pair = battles.raw[i : i + 1].copy(), tuple(actions.tolist())
        with self._lock:
            self._shown[-1].actions.append(pair)
            self._shown[-1].states.append(state)

    def since(self, number: int, count: int) -> ShownBattle | None:
        """Return what a spectator has not seen yet.

        Args:
            number: Number of the battle that the spectator saw last; -1 for none.
            count: How many states of it.

        Returns:
            The rest of that battle, if there is any or if it is the newest; else the newest from
            its begin. None before the first.
        """
        with self._lock:
            for shown in self._shown:
                is_newest = shown is self._shown[-1]
                if is_newest or (shown.number == number and count < len(shown.states)):
                    first = count if shown.number == number else 0
                    return ShownBattle(
                        number=shown.number,
                        players=shown.players,
                        states=shown.states[first:],
                        actions=shown.actions[max(0, first - 1) :],
                    )
        return None
